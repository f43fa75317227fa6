"""Spot nodes of one pod each, and what becomes of their pods when EC2 takes the instances back."""

from datetime import datetime, timedelta
from typing import Any

from spotwright.aws.interruption_messages import parse_notice
from spotwright.decisions.decision import Decision, decode_decision
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.interrupt import record_notices
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world

# How long a pod that was evicted is without a node: it stops, it is replaced, the scheduler looks.
MOVING = timedelta(seconds=8)

SPOT, STATE = "EC2 Spot Instance Interruption Warning", "EC2 Instance State-change Notification"
MESSAGES = {
    "spot": (SPOT, {}),
    "rebalance": ("EC2 Instance Rebalance Recommendation", {}),
    "stopping": (STATE, {"state": "stopping"}),
    "stopped": (STATE, {"state": "stopped"}),
    "shutting-down": (STATE, {"state": "shutting-down"}),
    "terminated": (STATE, {"state": "terminated"}),
}


def running(pods: int, **fields: Any) -> World:
    world = fresh_world()
    world.deploy(builders.pod("inflate", cpu_millicores=1800, **fields), pods)
    assert world.run(120, until=lambda: len(world.running_pods()) == pods)
    world.run(60)
    assert len(world.claims()) == pods
    return world


def warn(world: World, *claims: NodeClaim) -> None:
    for claim in claims:
        world.interrupt_spot(instance_id(claim.provider_id))


def gathered(world: World) -> None:
    """The second passes in which further notices are waited for."""
    world.clock.advance(1)


def decisions(world: World, kind: str) -> list[Decision]:
    """What was committed, in order."""
    bodies = [world.blobs.bodies[commit.subject] for commit in world.effects.select("state", "commit")]
    return [decision for decision in map(decode_decision, bodies) if decision.kind == kind]


def longest_wait(world: World, seconds: int) -> timedelta:
    """How long, within this time, a pod was without a node at most."""
    since: dict[str, datetime] = {}
    longest = timedelta()
    for _ in range(seconds):
        world.run(1)
        now = world.clock.now()
        waiting = {pod.key for pod in world.cluster.all("pods") if not pod.node_name}
        since = {key: since.get(key, now) for key in waiting}
        longest = max([longest, *(now - began for began in since.values())])
    return longest


def initialized(world: World, names: tuple[str, ...]) -> bool:
    claims = [world.cluster.nodeclaim(name) for name in names]
    return all(claim is not None and claim.is_condition_true("Initialized") for claim in claims)


def bells_of(world: World, kind: str) -> list[Doorbell]:
    """The doorbells of a kind that wait in the queue for notices, which holds none of them afterwards."""
    waiting = world.doorbells.messages_of("notices", kind)
    world.doorbells.messages = [message for message in world.doorbells.messages if message not in waiting]
    return [message.doorbell for message in waiting]


def deliver(world: World, instance: str, *names: str) -> None:
    """One batch of messages; one of the same name is the same message."""
    notices = {}
    for number, name in enumerate(names):
        detail_type, detail = MESSAGES[name]
        envelope = {
            "id": f"event-{name}", "detail-type": detail_type, "source": "aws.ec2",
            "time": world.clock.now().isoformat(), "detail": {"instance-id": instance, **detail},
        }  # fmt: skip
        notice = parse_notice(envelope, now=world.clock.now())
        assert notice is not None
        notices[str(number)] = notice
    clusters = {world.cluster.name: world.ports}
    assert not record_notices(clusters, {instance: list(clusters)}, notices, now=world.clock.now())
