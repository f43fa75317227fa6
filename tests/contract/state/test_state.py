"""StatePort: the fake and DynamoDB obey one suite."""

from typing import Any

import msgspec
import pytest

from spotwright.adapters.aws import clients
from spotwright.adapters.aws.dynamodb.cluster_facts import ClusterFactsRow
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.aws.instance_types import offering_health, subnet_addresses
from spotwright.aws.token_bucket import TokenBucket
from spotwright.composition import cluster_clients
from spotwright.disruption.breaker import Breaker
from spotwright.errors import Conflict, Unavailable
from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import Outcome, RegistrationHealth
from spotwright.model.ec2.fleet import ClusterFacts, FleetError, Instance, OfferingHealth
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import LaunchedInMinute
from spotwright.telemetry import log_lines
from spotwright.workflows.account import offering_health_store, rate_limits
from spotwright.workflows.ports.rows import CommitPause, NoticeRow
from spotwright.workflows.ports.state import FAILED_PLANS, LISTED_EVALUATIONS, LISTED_FOR_PODS, StatePort
from tests.contract import tables
from tests.contract.conftest import LocalAws
from tests.contract.state.rows import NAMES, NOW, NOW_MS, launch


def test_a_cluster_nobody_wrote_to_stands_at_version_zero(state: StatePort) -> None:
    row = state.cluster()
    assert (row.version, row.head, row.pending_decisions, row.planning_requests, row.served_requests, row.paused) == (
        0,
        "",
        (),
        0,
        0,
        False,
    )


def test_of_two_commits_on_one_version_exactly_one_becomes_true(state: StatePort) -> None:
    state.commit(expected_version=0, key="k1")
    with pytest.raises(Conflict):
        state.commit(expected_version=0, key="k2")
    row = state.cluster()
    assert (row.version, row.head, row.pending_decisions) == (1, "k1", ("k1",))


def test_what_was_acted_on_leaves_the_list_and_may_be_said_twice(state: StatePort) -> None:
    for version, key in enumerate(("k1", "k2", "k3")):
        state.commit(expected_version=version, key=key)
    state.mark_acted("k2")
    state.mark_acted("k2")
    state.mark_acted("never committed")
    assert state.cluster().pending_decisions == ("k1", "k3")
    assert state.cluster().version == 3


def test_requests_count_up_and_served_never_goes_back(state: StatePort) -> None:
    assert [state.request_planning(), state.request_planning(), state.request_planning()] == [1, 2, 3]
    state.mark_served(3)
    state.mark_served(2)
    assert state.cluster().served_requests == 3


def test_the_pause_after_a_plan_is_of_the_last_requests_that_were_served(state: StatePort) -> None:
    for _ in range(3):
        state.request_planning()
    state.mark_served(2, pause_until=4_000, pause_digest="of the plan")
    state.mark_served(1, pause_until=9_000, pause_digest="of an older one")
    assert (state.cluster().plans_pause_until, state.cluster().plans_pause_digest) == (4_000, "of the plan")
    state.mark_served(3)
    assert (state.cluster().plans_pause_until, state.cluster().plans_pause_digest) == (0, "")


def test_the_pauses_of_commits_are_those_of_the_last_write(state: StatePort) -> None:
    assert state.cluster().commit_pauses == ()
    pauses = (CommitPause("Drifted", "of the nodes", 4_000), CommitPause("Underutilized", "of others", 9_000))
    state.pause_commits(pauses)
    assert state.cluster().commit_pauses == pauses
    state.pause_commits(pauses[:1])
    assert state.cluster().commit_pauses == pauses[:1]


def test_what_is_launched_is_counted_by_the_commit_that_becomes_true(state: StatePort) -> None:
    minutes = (LaunchedInMinute(100, 1, 2, 3), LaunchedInMinute(101, 4, 5, 6))
    state.commit(expected_version=0, key="k1", launched=minutes)
    with pytest.raises(Conflict):
        state.commit(expected_version=0, key="k2", launched=(LaunchedInMinute(102, 9, 9, 9),))
    assert state.cluster().launched == minutes
    state.commit(expected_version=1, key="k3")
    assert state.cluster().launched == minutes, "a decision that launches nothing"


def test_whether_pods_are_alike_is_said_by_the_commit_that_becomes_true(state: StatePort) -> None:
    assert not state.pods_alike()
    state.commit(expected_version=0, key="k1", pods_alike=True)
    with pytest.raises(Conflict):
        state.commit(expected_version=0, key="k2", pods_alike=False)
    assert (state.pods_alike(), state.cluster().pods_alike) == (True, True)
    state.commit(expected_version=1, key="k3")
    assert state.pods_alike(), "a decision that launches nothing"
    state.commit(expected_version=2, key="k4", pods_alike=False)
    assert (state.pods_alike(), state.cluster().pods_alike) == (False, False)
    state.commit(expected_version=3, key="k5", pods_alike=True)
    state.note_other_pods()
    assert (state.pods_alike(), state.cluster().pods_alike) == (False, False)
    assert state.cluster().version == 4


def test_a_planner_at_work_keeps_others_out_until_its_end(state: StatePort) -> None:
    assert state.begin_planning("provision", now=1_000, until=61_000)
    assert state.cluster().planner_until == 61_000
    assert not state.begin_planning("provision", now=60_999, until=120_999)
    assert state.begin_planning("disrupt", now=2_000, until=62_000), "another kind of work"
    assert state.begin_planning("provision", now=61_000, until=121_000)
    assert not state.end_planning("provision", until=61_000), "the note of somebody else by now"
    assert state.end_planning("provision", until=121_000)
    assert state.cluster().planner_until == 0
    assert state.begin_planning("provision", now=62_000, until=122_000)


def test_a_throttled_work_is_begun_once_until_its_note_ends(state: StatePort) -> None:
    assert state.throttle("nodepools", now=1_000, until=4_000) == 0
    assert state.throttle("nodepools", now=1_000, until=4_000) == 4_000, "the same moment, another claim"
    assert state.throttle("nodepools", now=3_999, until=9_000) == 4_000
    assert state.throttle("nodepools", now=4_000, until=7_000) == 0
    assert state.throttle("looks", now=4_000, until=9_000) == 0, "another work"


def test_a_work_has_one_note_whoever_makes_it(state: StatePort) -> None:
    """So the name of a work that is throttled must not be that of a planner's."""
    assert state.begin_planning("both", now=1_000, until=4_000)
    assert state.throttle("both", now=1_000, until=5_000) == 4_000
    assert state.throttle("both", now=4_000, until=5_000) == 0
    assert not state.begin_planning("both", now=4_000, until=9_000)


def test_the_pause_of_evaluations_that_list_is_in_the_cluster_s_row(state: StatePort) -> None:
    assert state.cluster().evaluations_pause_until == 0
    assert state.begin_planning("disrupt", now=4_000, until=9_000)
    assert state.begin_planning(LISTED_EVALUATIONS, now=1_000, until=4_000)
    assert state.cluster().evaluations_pause_until == 4_000
    assert state.end_planning(LISTED_EVALUATIONS, until=4_000)
    assert state.cluster().evaluations_pause_until == 0


def test_the_pause_after_a_plan_that_failed_is_in_the_cluster_s_row(state: StatePort) -> None:
    assert state.cluster().failed_plans_pause_until == 0
    assert state.begin_planning(FAILED_PLANS, now=1_000, until=4_000)
    assert state.cluster().failed_plans_pause_until == 4_000
    assert state.cluster().planner_until == 0


def test_that_the_cluster_was_listed_for_pods_is_in_its_row(state: StatePort) -> None:
    assert state.cluster().listed_for_pods_until == 0
    assert state.begin_planning(LISTED_FOR_PODS, now=1_000, until=4_000)
    assert state.cluster().listed_for_pods_until == 4_000


@pytest.mark.parametrize("work", ["claim evaluations", "a-b.c", "set", "1"])
def test_the_name_of_a_work_is_any_text(state: StatePort, work: str) -> None:
    assert state.throttle(work, now=1_000, until=4_000) == 0
    assert state.throttle(work, now=1_001, until=4_001) == 4_000
    planning = f"planning {work}"
    assert state.begin_planning(planning, now=1_000, until=4_000)
    assert not state.begin_planning(planning, now=1_001, until=4_001)
    assert not state.end_planning(planning, until=4_001)
    assert state.end_planning(planning, until=4_000, served=0)
    assert state.begin_planning(planning, now=1_002, until=4_002)
    assert state.end_planning(planning, until=4_002)


def test_a_note_of_a_clock_that_is_minutes_ahead_holds_nobody_up(state: StatePort) -> None:
    ahead = 300_000
    assert state.throttle("looks", now=ahead, until=ahead + 2_000) == 0
    assert state.throttle("looks", now=1_000, until=3_000) == 0
    assert state.throttle("looks", now=2_000, until=4_000) == 3_000, "of a clock like its own"
    assert state.begin_planning("notices", now=ahead, until=ahead + 15_000)
    assert state.begin_planning("notices", now=1_000, until=16_000)
    assert not state.begin_planning("notices", now=2_000, until=17_000)
    assert state.begin_planning("provision", now=2_000, until=62_000)
    assert not state.begin_planning("provision", now=3_000, until=4_000), "a shorter work, beside a long one"


def test_a_planner_ends_only_when_every_request_is_served(state: StatePort) -> None:
    assert state.begin_planning("provision", now=1_000, until=61_000)
    requested = state.request_planning()
    assert not state.end_planning("provision", until=61_000, served=requested - 1)
    assert not state.begin_planning("provision", now=2_000, until=62_000)
    assert state.end_planning("provision", until=61_000, served=requested)
    assert not state.end_planning("provision", until=61_000)


def test_one_reads_the_region_at_a_time_and_who_died_at_it_is_not_waited_for(state: StatePort) -> None:
    assert state.begin_region_read(100_000, since=70_000)
    assert not state.begin_region_read(110_000, since=80_000)
    assert state.begin_region_read(140_000, since=110_000)
    state.end_region_read()
    assert state.begin_region_read(141_000, since=111_000)


def test_what_an_offering_did_is_remembered_beyond_its_time(state: StatePort) -> None:
    name = f"m5.{state.cluster().cluster}"
    mark = OfferingHealth(
        "spot", name, "z", unavailable_until_ms=5_000, code="InsufficientInstanceCapacity", recorded_at_ms=2_000
    )
    state.save_offering_health(mark)
    state.save_offering_health(msgspec.structs.replace(mark, scope="pg-1"))

    def health_rows(now: int) -> list[OfferingHealth]:
        return [health for health in state.offering_health(now) if health.instance_type == name]

    assert health_rows(4_999) == health_rows(5_000) == [
        msgspec.structs.replace(mark, version=1), msgspec.structs.replace(mark, scope="pg-1", version=1),
    ]  # fmt: skip
    assert health_rows(5_000 + offering_health.HEALTH_TTL_SECONDS * 1_000) == []


def test_of_two_who_learn_at_once_one_learns_again(state: StatePort) -> None:
    mark = OfferingHealth("spot", f"c5.{state.cluster().cluster}", "z", unavailable_until_ms=5_000, code="Some")
    state.save_offering_health(mark)
    with pytest.raises(Conflict):
        state.save_offering_health(msgspec.structs.replace(mark, code="Other"))
    state.save_offering_health(msgspec.structs.replace(mark, code="Third", version=1))
    (health,) = [row for row in state.offering_health(0) if row.key == mark.key]
    assert (health.code, health.version) == ("Third", 2)


def test_a_call_rate_is_one_for_all_and_nobody_overwrites_it(state: StatePort) -> None:
    action = f"Create{state.cluster().cluster}"
    assert state.call_rate(action) is None
    rate = TokenBucket(action, refill_per_second=5, tokens=7, updated_at_ms=1_000)
    state.save_call_rate(rate)
    assert state.call_rate(action) == msgspec.structs.replace(rate, version=1)
    with pytest.raises(Conflict):
        state.save_call_rate(rate)


def test_several_call_rates_are_read_together(state: StatePort) -> None:
    cluster = state.cluster().cluster
    first, second, other = (TokenBucket(f"{action}{cluster}", 5, 7, updated_at_ms=1_000) for action in "ABC")
    assert state.call_rates([first.action, second.action]) == ()
    assert state.call_rates([first.action]) == ()
    for rate in (first, second, other):
        state.save_call_rate(rate)
    stored = tuple(msgspec.structs.replace(rate, version=1) for rate in (first, second))
    assert state.call_rates([second.action, first.action, second.action, f"D{cluster}"]) == stored
    assert state.call_rates([second.action]) == stored[1:]


def test_several_call_rates_are_written_together_or_not_at_all(state: StatePort) -> None:
    cluster = state.cluster().cluster
    first, second = (TokenBucket(f"{action}{cluster}", 5, 7, updated_at_ms=1_000) for action in "AB")
    actions = [first.action, second.action]
    state.save_call_rate(second)
    with pytest.raises(Conflict):
        state.save_call_rates([first, second])
    assert state.call_rate(first.action) is None
    state.save_call_rates([first, msgspec.structs.replace(second, tokens=3, version=1)])
    read = state.call_rates(actions)
    assert [(rate.tokens, rate.version) for rate in read] == [(7, 1), (3, 2)]
    state.save_call_rates(read[:1])
    with pytest.raises(Conflict):
        state.save_call_rates(read)
    with pytest.raises(Conflict):
        state.save_call_rates(read[:1])
    assert [rate.version for rate in state.call_rates(actions)] == [2, 2]


def test_the_current_catalog_is_named(state: StatePort) -> None:
    assert state.catalog_key() == ""
    state.set_catalog_key("catalogs/x.json", at=1)
    assert state.catalog_key() == state.recent_catalog_key() == "catalogs/x.json"


def test_a_catalog_says_when_it_was_described(state: StatePort) -> None:
    assert state.catalog_stored_at() == 0
    state.set_catalog_key("catalogs/x.json", at=1_000)
    state.set_catalog_key("catalogs/x.json", at=2_000)
    assert state.catalog_stored_at() == 2_000


def test_what_was_taken_of_a_reservation_is_remembered(state: StatePort) -> None:
    row = offering_health.record_reservation_launches(None, f"cr-{state.cluster().cluster}", 2, now_ms=10**12)
    state.save_offering_health(row)
    (health,) = [stored for stored in state.offering_health(10**12) if stored.key == row.key]
    assert health.reservation_launches == ((10**12, 2),)


def test_what_launches_took_of_a_subnet_is_remembered(state: StatePort) -> None:
    subnet = f"subnet-{state.cluster().cluster}"
    described = subnet_addresses.record_description(None, subnet, "z", 11, now_ms=10**12)
    assert described is not None
    row = subnet_addresses.record_launch(described, "l-1", instances=1, addresses=29, now_ms=10**12)
    assert row is not None
    state.save_offering_health(row)
    (health,) = [stored for stored in state.offering_health(10**12) if stored.key == row.key]
    assert health.subnet == row.subnet


def test_what_eks_said_of_a_cluster_is_kept(local_aws: LocalAws, table: str) -> None:
    row = ClusterFactsRow(Table(local_aws.client("dynamodb"), table), next(NAMES))  # type: ignore[arg-type]
    assert row.read() is None
    for version in ("1.34", "1.35"):
        facts = ClusterFacts("c", "https://a", "ca", version, "10.100.0.0/16", "vpc-1", arn="arn:aws:eks:r:1:cluster/c")
        row.write(facts)
        assert row.read() == facts


def test_the_breaker_is_replaced_only_by_who_read_it(state: StatePort) -> None:
    fresh = state.breaker()
    assert fresh == Breaker()
    state.save_breaker(msgspec.structs.replace(fresh, trips=1, reason="first"))
    with pytest.raises(Conflict):
        state.save_breaker(msgspec.structs.replace(fresh, trips=7))
    read = state.breaker()
    assert (read.trips, read.reason) == (1, "first")
    state.save_breaker(msgspec.structs.replace(read, trips=2))
    with pytest.raises(Conflict):
        state.save_breaker(read)
    assert state.breaker().trips == 2


def test_the_registration_health_of_a_nodepool_is_replaced_only_by_who_read_it(state: StatePort) -> None:
    assert state.registration_health("uid-1") is None
    health = RegistrationHealth("uid-1", (Outcome("a", True), Outcome("b", False)), 3, "Why", "because", NOW_MS)
    state.save_registration_health(health)
    with pytest.raises(Conflict):
        state.save_registration_health(health)
    read = state.registration_health("uid-1")
    assert read == msgspec.structs.replace(health, version=1)
    assert read is not None
    state.save_registration_health(msgspec.structs.replace(read, outcomes=()))
    assert (emptied := state.registration_health("uid-1")) is not None
    assert emptied.outcomes == ()
    assert state.registration_health("uid-2") is None


def test_what_budgets_refuse_is_replaced_only_by_who_read_it(state: StatePort) -> None:
    assert state.refused_evictions() == ()
    selector = (NodeSelectorRequirement("app", "In", ("api",)),)
    refused = RefusedEvictions("default", ("api",), (selector,), True, NOW_MS, NOW_MS + 2000)
    state.save_refused_evictions(refused)
    with pytest.raises(Conflict):
        state.save_refused_evictions(refused)
    other = msgspec.structs.replace(refused, namespace="a")
    state.save_refused_evictions(other)
    stored = tuple(msgspec.structs.replace(row, version=1) for row in (other, refused))
    assert state.refused_evictions() == stored
    ended = msgspec.structs.replace(stored[1], since_ms=0)
    state.save_refused_evictions(ended)
    assert state.refused_evictions()[1] == msgspec.structs.replace(ended, version=2)


def test_a_missing_table_proves_nothing_about_a_row(local_aws: LocalAws) -> None:
    state = DynamoState(local_aws.client("dynamodb"), table="never-made", cluster="c")  # type: ignore[arg-type]
    row = NoticeRow(instance_id="i-1", cluster="c", kind="k")
    for ask in (
        state.cluster, state.launches, state.breaker, state.heartbeat, state.request_planning,
        lambda: state.launch("x"), lambda: state.due_rows(1), lambda: state.create(row), lambda: state.save(row),
    ):  # fmt: skip
        with pytest.raises(Unavailable, match="ResourceNotFoundException"):
            ask()


FULL = FleetError("InsufficientInstanceCapacity", "none left", "m7i.large", "z1", "spot", "subnet-1")


def cells(aws: LocalAws) -> tuple[DynamoState, DynamoState, str]:
    """Two cells of one account: the second learns in the table of the first, whose name is the third."""
    client: Any = aws.client("dynamodb")
    first, second = (tables.create_table(client, f"{next(NAMES)}-cell") for _ in range(2))
    return (
        DynamoState(client, table=first, cluster="one"),
        DynamoState(client, table=second, cluster="two", memory_table=first),
        first,
    )


def test_what_one_cell_learnt_the_other_knows(local_aws: LocalAws) -> None:
    dynamo_state, two, _ = cells(local_aws)
    for here, there in ((dynamo_state, two), (two, dynamo_state)):
        name = f"m{next(NAMES)}.large"
        refused = msgspec.structs.replace(FULL, instance_type=name)
        offering_health_store.record_fleet_response(here, (), [refused], now_ms=NOW_MS, cpu_millicores={})
        assert not offering_health_store.current_health(there, now_ms=NOW_MS).is_available("spot", name, "z1")
        given = Instance("i-1", name, "z1", "spot", "pending")
        offering_health_store.record_fleet_response(there, [given], (), now_ms=NOW_MS + 1, cpu_millicores={})
        assert offering_health_store.current_health(here, now_ms=NOW_MS + 1).is_available("spot", name, "z1")


def test_cells_ask_ec2_at_one_pace(local_aws: LocalAws) -> None:
    dynamo_state, two, _ = cells(local_aws)
    calls = [
        rate_limits.acquire(cell, rate_limits.CREATE_FLEET, caller="k", now=NOW) == 0
        for _ in range(30)
        for cell in (dynamo_state, two)
    ]
    assert sum(calls) == 40
    rate_limits.slow_down(two, rate_limits.CREATE_FLEET, now=NOW)
    slowed = dynamo_state.call_rate(rate_limits.CREATE_FLEET)
    assert slowed is not None
    assert slowed.throttled_at_ms == NOW_MS


def test_cells_ask_ec2_at_one_pace_for_what_is_counted_twice(local_aws: LocalAws) -> None:
    dynamo_state, two, shared = cells(local_aws)
    calls = {rate_limits.TERMINATE_INSTANCES: 1, rate_limits.TERMINATED_INSTANCES: 100}
    assert [rate_limits.acquire_all(two, calls, caller="k", now=NOW) for _ in range(10)] == [0] * 10
    assert rate_limits.acquire_all(dynamo_state, calls, caller="k", now=NOW) > 0
    client: Any = local_aws.client("dynamodb")
    rows = client.scan(TableName=shared)["Items"]
    assert {(row["pk"]["S"], row["sk"]["S"]) for row in rows} == {("rate", action) for action in calls}
    assert {row["version"]["N"] for row in rows} == {"10"}


def test_cells_share_nothing_else(local_aws: LocalAws) -> None:
    _, two, shared = cells(local_aws)
    two.commit(expected_version=0, key="k")
    two.set_catalog_key("catalog", 1)
    two.create(launch(two))
    two.save_offering_health(OfferingHealth("spot", "m5.large", "z1", NOW_MS, "X"))
    client: Any = local_aws.client("dynamodb")
    assert {row["pk"]["S"] for row in client.scan(TableName=shared)["Items"]} == {"offering"}


@pytest.mark.parametrize("code", ["never-made", "no-table-of-ours"])
def test_a_cell_learns_alone_when_the_shared_table_is_of_no_use(
    local_aws: LocalAws, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    client: Any = local_aws.client("dynamodb")
    if code != "never-made":
        key = {"AttributeName": "id", "KeyType": "HASH"}
        client.create_table(
            TableName=code, KeySchema=[key], BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )  # fmt: skip
    own = tables.create_table(client, f"{next(NAMES)}-cell")
    state = DynamoState(client, table=own, cluster="one", memory_table=code)
    offering_health_store.record_fleet_response(state, (), [FULL], now_ms=NOW_MS, cpu_millicores={})
    assert not offering_health_store.current_health(state, now_ms=NOW_MS).is_available("spot", "m7i.large", "z1")
    assert rate_limits.acquire(state, rate_limits.CREATE_FLEET, caller="k", now=NOW) == 0
    (said,) = [record for record in caplog.records if record.name == "spotwright.memory"]
    assert said.getMessage() == log_lines.MEMORY_TABLE_UNUSABLE.message


def test_a_shared_table_that_goes_takes_only_what_was_learnt(local_aws: LocalAws) -> None:
    _, two, shared = cells(local_aws)
    offering_health_store.record_fleet_response(two, (), [FULL], now_ms=NOW_MS, cpu_millicores={})
    client: Any = local_aws.client("dynamodb")
    client.delete_table(TableName=shared)
    assert offering_health_store.current_health(two, now_ms=NOW_MS).is_available("spot", "m7i.large", "z1")
    offering_health_store.record_fleet_response(two, (), [FULL], now_ms=NOW_MS, cpu_millicores={})
    assert not offering_health_store.current_health(two, now_ms=NOW_MS).is_available("spot", "m7i.large", "z1")


def test_a_function_that_is_told_of_another_cells_table_learns_there(
    local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = local_aws.client("dynamodb")
    first, own = (tables.create_table(client, f"{next(NAMES)}-cell") for _ in range(2))
    environment = {
        "SPOTWRIGHT_CELL": "second", "SPOTWRIGHT_TABLE": own, "SPOTWRIGHT_BUCKET": "b",
        "SPOTWRIGHT_MEMORY_TABLE": first,
        "SPOTWRIGHT_CLUSTERS": '{"two": {"readRoleArn": "arn:read", "actRoleArn": "arn:act"}}',
    }  # fmt: skip
    monkeypatch.setattr(clients, "client", lambda service: client)
    ports = cluster_clients.ClusterClients("two", cluster_clients.environment(environment), "arn:act")
    offering_health_store.record_fleet_response(ports.state, (), [FULL], now_ms=NOW_MS, cpu_millicores={})
    ports.state.commit(expected_version=0, key="k")
    assert {row["pk"]["S"] for row in client.scan(TableName=first)["Items"]} == {"offering"}
    assert {row["pk"]["S"] for row in client.scan(TableName=own)["Items"]} == {"two"}


def test_who_else_provisions_nodes_is_noted_until_it_has_gone(state: StatePort) -> None:
    assert state.cluster().other_provisioner == ""
    for name in ("Deployment karpenter/karpenter", ""):
        state.set_other_provisioner(name)
        assert state.cluster().other_provisioner == name
