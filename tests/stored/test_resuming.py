"""Functions of an earlier version died with their work half done; the functions of this version carry it to its end.

Rows, bodies and messages are the recorded ones. The API server and EC2 are as they were at that moment.
"""

import pytest

from spotwright.model.snapshot import Snapshot
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.planning.snapshot import gather
from spotwright.workflows.ports.doorbells import Doorbell
from tests.stored.outcome import count, find_unfinished, run_to_end
from tests.stored.recorded import FULL, list_moments, read_json, read_stores, restore


@pytest.mark.parametrize("messages", ["waiting", "lost"])
@pytest.mark.parametrize("name", list_moments())
def test_what_was_begun_is_carried_to_its_end(name: str, messages: str) -> None:
    """Every pod runs that should, nothing is bought twice, nothing is left over. Lost messages cost time only."""
    world = restore(name)
    assert find_unfinished(world), "otherwise nothing is to be done"
    if messages == "lost":
        world.doorbells.messages.clear()
    run_to_end(world)
    assert count(world) == read_stores()[name].ends
    assert find_unfinished(world) == []
    assert world.failures == []


def test_the_decisions_for_the_full_cluster_become_nodeclaims() -> None:
    """They are for static capacity, capacity buffers, reservations, volumes and pods with every kind of constraint."""
    world, before = restore(FULL), {claim.name for claim in restore(FULL).claims()}
    launches = [launch for key in world.state.cluster_row.pending_decisions for launch in read_json(key)["launches"]]
    bells = [Doorbell(world.cluster.name, "launch", launch["id"]) for launch in launches]
    # Launches step before decisions: those of a decision come with doorbells of their own.
    lifecycle(world.ports, [Doorbell(world.cluster.name, "decision")], now=world.clock.now())
    lifecycle(world.ports, bells, now=world.clock.now())
    decided = {name for launch in launches for name in launch["claims"]}
    assert {claim.name for claim in world.claims()} - before == decided


def test_nodes_that_a_decision_or_a_command_takes_away_are_known_to_the_next_plan() -> None:
    """A static pool's surplus goes whatever happens; what is empty may still be needed."""
    for name in ("scale-down-committed", "scale-down-planned"):
        snapshot = gather_at(name)
        assert (len(snapshot.nodeclaims_to_delete), len(snapshot.nodeclaims_to_replace)) == (2, 0), name
    snapshot = gather_at("pods-decided-while-disrupting")
    assert (len(snapshot.nodeclaims_to_delete), len(snapshot.nodeclaims_to_replace)) == (0, 1)


def test_nodes_that_were_decided_are_known_to_the_next_plan_and_hold_their_pods() -> None:
    for name in ("decision-committed", "decision-half-acted-on", "launch-planned"):
        snapshot = gather_at(name)
        expected = {claim.name for claim in (*snapshot.nodeclaims, *(node.nodeclaim for node in snapshot.in_flight))}
        assert len(expected) == 2, name
        assert {pod.node_name for pod in snapshot.pods} == expected, name


def gather_at(name: str) -> Snapshot:
    world = restore(name)
    return gather(world.ports, world.state.cluster(), now=world.clock.now())
