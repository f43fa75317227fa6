"""An annotation may hold anything: it costs its own object at most, and it is said."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell

NO_TIMES = ("soon", "", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "1767225600")


def annotated_and_deleted(world: World, annotation: str, value: str) -> tuple[NodeClaim, ...]:
    """Three claims that are deleted, the first one with this annotation."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    world.forget_deployments()
    claims = world.claims()
    world.cluster.update("nodeclaims", claims[0].name, annotations={annotation: value})
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    return claims


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize("annotation", [labels.TERMINATION_TIMESTAMP, labels.INSTANCE_NOT_FOUND])
def test_a_time_that_is_none_keeps_no_claim(world: World, annotation: str, value: str) -> None:
    claims = annotated_and_deleted(world, annotation, value)
    if annotation == labels.INSTANCE_NOT_FOUND:
        world.ec2.forget_instance(instance_id(claims[0].provider_id))
    assert world.run(180, until=lambda: not world.claims())
    assert not world.failures
    assert not world.ec2.live_instances()


def test_a_termination_time_that_is_none_is_said_and_the_grace_period_counts(world: World) -> None:
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=60)
    claim, *_ = annotated_and_deleted(world, labels.TERMINATION_TIMESTAMP, "soon")
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    assert world.run(120, until=lambda: not world.claims())
    (event,) = [event for event in world.cluster.events if event.reason == "InvalidTerminationTimestamp"]
    assert (event.name, event.type) == (claim.name, "Warning")
    assert event.message == (
        "Annotation karpenter.sh/nodeclaim-termination-timestamp is 'soon', which is not a time such as"
        " 2026-01-01T12:00:00Z: the NodeClaim's terminationGracePeriod counts instead"
    )


def test_an_instance_that_was_not_found_in_the_future_is_looked_for_twice(world: World) -> None:
    later = (world.clock.now() + timedelta(days=400)).strftime("%Y-%m-%dT%H:%M:%SZ")
    claims = annotated_and_deleted(world, labels.INSTANCE_NOT_FOUND, later)
    world.ec2.forget_instance(instance_id(claims[0].provider_id))
    assert not world.run(50, until=lambda: world.cluster.nodeclaim(claims[0].name) is None)
    assert world.run(60, until=lambda: not world.claims())


def test_an_unforeseen_error_of_one_claim_does_not_keep_the_others(world: World) -> None:
    claims = annotated_and_deleted(world, "example.com/note", "x")
    world.settle()
    world.clock.advance(3)
    usual, broken = world.cluster.pods, claims[0].node_name

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if node == broken:
            raise ValueError("a defect")
        return usual(node=node, pending=pending, limit=limit)

    world.cluster.pods = pods  # type: ignore[method-assign]
    bells = [Doorbell(world.cluster.name, "claim", claim.name) for claim in claims]
    again = msgspec.structs.replace(bells[0], epoch=3)
    failures = step_doorbells(world.ports, [*bells, again], now=world.clock.now())
    assert {bell: str(failure) for bell, failure in failures.items()} == {bells[0]: "a defect", again: "a defect"}
    assert len({effect.subject for effect in world.effects.select("cluster", "evict")}) == 2
