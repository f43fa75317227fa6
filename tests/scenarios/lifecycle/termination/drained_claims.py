"""NodeClaims that were deleted, of whose nodes no pod is left: their instances are terminated next."""

from spotwright.lifecycle.drain import MINIMUM_DRAIN
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.simulation import builders
from spotwright.simulation.effects import Effect
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell

NODES = 3
STATE = "EC2 Instance State-change Notification"


def drained(world: World) -> list[NodeClaim]:
    """NodeClaims that were deleted, whose instances the next step terminates."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    assert world.run(60, until=lambda: len(world.running_pods()) == NODES)
    world.forget_deployments()
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    step(world)
    world.clock.advance(MINIMUM_DRAIN.total_seconds())
    world.forget_changes()
    return list(world.claims())


def step(world: World) -> list[Effect]:
    """The changes of an invocation with a step for each claim."""
    before = len(world.effects.log)
    bells = [Doorbell(world.cluster.name, "claim", claim.name) for claim in world.claims()]
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    return world.effects.log[before:]
