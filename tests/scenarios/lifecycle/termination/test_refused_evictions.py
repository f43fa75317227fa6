"""An eviction beside those of other nodes, that a PodDisruptionBudget refused before: who asks, and who waits."""

import msgspec
import pytest

from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.lifecycle.refused_evictions import FIRST_RETRY, RefusedEvictions
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.termination.evictions import evict_pod, known_refusals

API = builders.pod("api", labels={"app": "api"}, node_name="n", is_ready=True)


@pytest.fixture
def pod(world: World) -> Pod:
    """Two replicas run, which their budget keeps; what it refused a moment ago is known, and may be asked for now."""
    for number in (1, 2):
        replica = msgspec.structs.replace(API, metadata=msgspec.structs.replace(API.metadata, name=f"api-{number}"))
        world.cluster.put("pods", replica)
        world.cluster.update("pods", replica.key, phase="Running")
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("api", "api", max_unavailable=0))
    one, _ = world.cluster.pods()
    assert not evict(world, one)
    world.clock.advance(FIRST_RETRY.seconds)
    return one


def evict(world: World, pod: Pod, known: dict[str, RefusedEvictions] | None = None) -> bool:
    return evict_pod(world.ports, pod, known_refusals(world.ports) if known is None else known, now=world.clock.now())


def asked(world: World) -> int:
    return len(world.effects.select("cluster", "evict"))


def test_of_two_nodes_that_may_ask_the_second_waits(world: World, pod: Pod) -> None:
    """Both have read the same row."""
    known, before = known_refusals(world.ports), asked(world)
    assert not evict(world, pod, known.copy())
    assert not evict(world, pod, known)
    assert asked(world) == before + 1


def test_a_node_that_asked_does_not_ask_for_its_other_pods(world: World, pod: Pod) -> None:
    known, before = known_refusals(world.ports), asked(world)
    for one in world.cluster.pods():
        assert not evict(world, one, known)
    assert asked(world) == before + 1


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Throttled("too many requests")])
def test_a_node_asks_where_its_note_cannot_be_stored(world: World, pod: Pod, failure: ApiError) -> None:
    """Rows can be read, and not written: nodes drain all the same."""
    world.cluster.remove("poddisruptionbudgets", "default/api")
    world.effects.inject(Fault("state", "save_refused_evictions", failure, times=100))
    assert evict(world, pod)


def test_two_nodes_that_are_refused_at_once_leave_one_row(world: World, pod: Pod) -> None:
    """What the second found is what the first has noted; nothing is written over it."""
    world.state.refused.clear()
    first, second = dict[str, RefusedEvictions](), dict[str, RefusedEvictions]()
    assert not evict(world, pod, first)
    assert not evict(world, pod, second)
    (row,) = world.state.refused_evictions()
    assert row.version == 1
    assert first == second == {row.key: row}


def test_a_row_that_expired_meanwhile_keeps_nobody_for_long(world: World, pod: Pod) -> None:
    known = known_refusals(world.ports)
    world.state.refused.clear()
    world.cluster.remove("poddisruptionbudgets", "default/api")
    assert not evict(world, pod, known), "another node seems to ask"
    assert evict(world, pod)
