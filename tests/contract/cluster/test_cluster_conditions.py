"""ClusterPort: conditions and status, written beside other writers."""

from datetime import UTC, datetime

import msgspec
import pytest

from spotwright.errors import Conflict
from spotwright.model.kubernetes.meta import Condition, find_condition
from tests.contract.cluster.claims import claim
from tests.contract.cluster_world import World


def test_conditions_keep_their_neighbours_and_their_time(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    world.port.set_conditions(
        "nodeclaims", nodeclaim.metadata, [Condition("Launched", "True", "Launched", last_transition_time=since)]
    )
    world.port.set_conditions(
        "nodeclaims",
        nodeclaim.metadata,
        [Condition("Registered", "Unknown", "NodeNotFound", last_transition_time=since)],
    )
    later = Condition("Launched", "True", "Again", last_transition_time=datetime(2026, 2, 1, tzinfo=UTC))
    world.port.set_conditions("nodeclaims", nodeclaim.metadata, [later])
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    launched, registered = (
        find_condition(current.conditions, "Launched"),
        find_condition(current.conditions, "Registered"),
    )
    assert launched is not None
    assert registered is not None
    assert (launched.reason, launched.last_transition_time) == ("Again", since)
    assert registered.status == "Unknown"


def test_conditions_are_written_only_if_others_are_as_they_were_seen(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)

    def write(kind: str, status: str, seen: dict[str, str]) -> None:
        stated = [Condition(kind, status, kind, last_transition_time=since)]
        world.port.set_conditions("nodeclaims", nodeclaim.metadata, stated, seen=seen)

    write("Registered", "True", {"Registered": "", "Initialized": ""})
    with pytest.raises(Conflict, match="has another Registered by now"):
        write("Initialized", "Unknown", {"Registered": "", "Initialized": ""})
    write("Initialized", "True", {"Registered": "True", "Initialized": ""})
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    assert {condition.type: condition.status for condition in current.conditions} == {
        "Registered": "True", "Initialized": "True",
    }  # fmt: skip


def test_a_condition_that_is_taken_out_leaves_its_neighbours(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    stated = [Condition(kind, "True", kind, last_transition_time=since) for kind in ("Launched", "Drifted")]
    world.port.set_conditions("nodeclaims", nodeclaim.metadata, stated)
    for _ in range(2):
        world.port.set_conditions("nodeclaims", nodeclaim.metadata, (), removed=("Drifted",))
        current = world.port.nodeclaim(nodeclaim.name)
        assert current is not None
        assert [(condition.type, condition.last_transition_time) for condition in current.conditions] == [
            ("Launched", since)
        ]


def test_status_is_merged(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    about = msgspec.structs.replace(nodeclaim.metadata, resource_version="")
    world.port.patch_status("nodeclaims", about, {"providerID": "aws:///z/i-1", "imageID": "ami-1"})
    world.port.patch_status("nodeclaims", about, {"nodeName": "n", "capacity": {"cpu": "2", "nvidia.com/gpu": "1"}})
    world.port.patch_status("nodeclaims", about, {"capacity": {"pods": "58", "nvidia.com/gpu": None}})
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    assert (current.provider_id, current.image_id, current.node_name) == ("aws:///z/i-1", "ami-1", "n")
    assert current.capacity == {"cpu": 2000, "pods": 58}


def test_the_status_of_a_claim_is_written_at_once_and_answers_the_claim(world: World) -> None:
    before = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    launched = Condition("Launched", "True", "Launched", last_transition_time=since)
    first = world.port.write_nodeclaim_status(before, [launched], status={"providerID": "aws:///z/i-1"})
    assert first.provider_id == "aws:///z/i-1"
    labeled = world.port.patch_nodeclaim(first, {"labels": {"team": "a"}})
    assert (labeled.metadata.labels["team"], labeled.conditions) == ("a", first.conditions)
    # As it was read before it was labeled: what others wrote meanwhile stays.
    registered = Condition("Registered", "True", "Registered", last_transition_time=since)
    second = world.port.write_nodeclaim_status(first, [registered], seen={"Launched": "True", "Registered": ""})
    assert second == world.port.nodeclaim(before.name)
    assert second.metadata.labels["team"] == "a"
    assert [(found.type, found.status) for found in second.conditions] == [("Launched", "True"), ("Registered", "True")]
    assert world.port.write_nodeclaim_status(second, [registered]) == second
    with pytest.raises(Conflict, match="has another Registered by now"):
        world.port.write_nodeclaim_status(first, [launched], status={"nodeName": "n"}, seen={"Registered": ""})
    current = world.port.nodeclaim(before.name)
    assert current is not None
    assert current.node_name == ""
