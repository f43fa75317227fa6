"""StatePort: the fake and DynamoDB obey one suite."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from spotwright.adapters.dynamodb import DynamoState
from spotwright.failures import Conflict
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.ports import LaunchRow, NominationRow, NoticeRow, OfferingHealth, StatePort
from tests.contract.conftest import LocalAws

NAMES = (f"cluster-{number}" for number in itertools.count())


@pytest.fixture(params=["fake", "dynamodb"])
def state(request: pytest.FixtureRequest) -> Iterator[StatePort]:
    """The state of a cluster that nobody used before."""
    if request.param == "fake":
        yield FakeState(next(NAMES), Effects(Clock()))
        return
    table = request.getfixturevalue("table")
    aws: LocalAws = request.getfixturevalue("local_aws")
    yield DynamoState(aws.client("dynamodb"), table=table, cluster=next(NAMES))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def table(local_aws: LocalAws) -> str:
    client: Any = local_aws.client("dynamodb")
    kinds = {"pk": "S", "sk": "S", "timer": "S", "due": "N"}
    client.create_table(
        TableName="contract",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in kinds.items()],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[
            {
                "IndexName": "due",
                "KeySchema": [
                    {"AttributeName": "timer", "KeyType": "HASH"},
                    {"AttributeName": "due", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    return "contract"


def launch(state: StatePort, id: str = "one", **changes: Any) -> LaunchRow:
    row = LaunchRow(id=id, cluster=state.cluster().cluster, decision="d", claims=("a", "b"), node="{}", created=1)
    return msgspec.structs.replace(row, **changes)


def test_a_cluster_nobody_wrote_to_stands_at_version_zero(state: StatePort) -> None:
    row = state.cluster()
    assert (row.version, row.head, row.unacted, row.requested, row.served, row.paused) == (0, "", (), 0, 0, False)


def test_of_two_commits_on_one_version_exactly_one_becomes_true(state: StatePort) -> None:
    state.commit(expected_version=0, key="k1")
    with pytest.raises(Conflict):
        state.commit(expected_version=0, key="k2")
    row = state.cluster()
    assert (row.version, row.head, row.unacted) == (1, "k1", ("k1",))


def test_what_was_acted_on_leaves_the_list_and_may_be_said_twice(state: StatePort) -> None:
    for version, key in enumerate(("k1", "k2", "k3")):
        state.commit(expected_version=version, key=key)
    state.acted("k2")
    state.acted("k2")
    state.acted("never committed")
    assert state.cluster().unacted == ("k1", "k3")
    assert state.cluster().version == 3


def test_requests_count_up_and_served_never_goes_back(state: StatePort) -> None:
    assert [state.request(), state.request(), state.request()] == [1, 2, 3]
    state.served(3)
    state.served(2)
    assert state.cluster().served == 3


def test_a_row_is_created_once_and_saved_only_on_its_version(state: StatePort) -> None:
    row = launch(state)
    assert state.create(row)
    assert not state.create(row)
    saved = state.save(msgspec.structs.replace(row, phase="claimed"))
    with pytest.raises(Conflict):
        state.save(msgspec.structs.replace(row, phase="failed"))
    assert state.launch("one") == saved
    assert saved.version == row.version + 1


def test_a_finished_row_is_history_that_can_still_be_read(state: StatePort) -> None:
    row = launch(state)
    state.create(row)
    assert state.launches() == (row,)
    done = state.save(msgspec.structs.replace(row, phase="done"))
    assert state.launches() == ()
    assert state.launch("one") == done


def test_rows_that_wait_are_found_by_their_time(state: StatePort) -> None:
    cluster = state.cluster().cluster
    state.create(launch(state, "early", due=1_000))
    state.create(launch(state, "late", due=9_000))
    state.create(launch(state, "never"))
    state.create(NoticeRow(instance_id="i-1", cluster=cluster, kind="spot_interrupted", due=2_000))
    assert {getattr(one, "id", "") or getattr(one, "instance_id", "") for one in state.due(5_000)} == {"early", "i-1"}


def test_a_nomination_is_open_until_its_last_phase_and_found_by_its_time(state: StatePort) -> None:
    cluster = state.cluster().cluster
    row = NominationRow("default-a", cluster, {"default/web-0": "uid-1"}, created=1, due=1_000)
    assert state.create(row)
    assert state.nomination("default-a") == row
    assert state.nomination("default-b") is None
    assert state.due(5_000) == (row,)
    nominated = state.save(msgspec.structs.replace(row, phase="nominated", node="n", due=2_000))
    assert state.nominations() == (nominated,)
    with pytest.raises(Conflict):
        state.save(msgspec.structs.replace(row, phase="failed", due=0))
    state.save(msgspec.structs.replace(nominated, phase="done", due=0))
    assert state.nominations() == state.due(5_000) == ()


def test_an_offering_without_capacity_is_known_until_its_time(state: StatePort) -> None:
    state.mark_offering(OfferingHealth("spot", "m5.large", "z", until=5_000, code="InsufficientInstanceCapacity"))
    ours = [one for one in state.offering_health(4_999) if one.instance_type == "m5.large"]
    assert [(one.capacity_type, one.zone) for one in ours] == [("spot", "z")]
    assert not [one for one in state.offering_health(5_000) if one.instance_type == "m5.large"]


def test_the_current_catalog_is_named(state: StatePort) -> None:
    assert state.catalog_key() == ""
    state.set_catalog_key("catalogs/x.json", at=1)
    assert state.catalog_key() == "catalogs/x.json"
