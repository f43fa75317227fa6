"""Nothing that is stored was left out of what was recorded."""

import msgspec

from spotwright.adapters.aws.dynamodb.items import decode_timer_row
from spotwright.aws.instance_types import catalog_codec
from spotwright.aws.instance_types.catalog_codec import CatalogHeader
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.token_bucket import TokenBucket
from spotwright.decisions.decision import Decision, Disruption, Launch, decode_decision
from spotwright.disruption.breaker import Breaker
from spotwright.model.ec2.fleet import LaunchedIntoSubnet, OfferingHealth, SubnetAddresses
from spotwright.model.karpenter.nodeclass import CapacityReservation, Subnet
from spotwright.model.snapshot import LaunchBound, LaunchedInMinute, OfferingHistory, Settings, Snapshot
from spotwright.scheduling.plan import Cause, HeldBackNodes, NewNode, Plan, ResourceUsage, UnplacedPod
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import (
    ClusterRow,
    CommandRow,
    CommitPause,
    LaunchRow,
    NominationRow,
    NoticeRow,
    ProposedMove,
)
from tests.stored.fields import Field, find_stated, list_fields
from tests.stored.recorded import (
    is_region,
    list_keys,
    read_body,
    read_messages,
    read_rows,
    read_state,
    read_stores,
)

ROOTS = (
    Snapshot,
    Decision,
    RegionFacts,
    CatalogHeader,
    LaunchRow,
    CommandRow,
    NoticeRow,
    NominationRow,
    ClusterRow,
    Breaker,
    OfferingHealth,
    TokenBucket,
    Doorbell,
)
ONE_SCHEMA = "it has been the same since the first version"
NOT_IN_STATUS = "it is not in the status of a class, which snapshots are made of"
UNUSED = "no code sets it"
YOUNGER = "rows and decisions have had it since the recording"
# Fields that are nowhere set to anything but their default, by the name under which they are stored, and why.
NOT_STATED: dict[Field, str] = {
    (Snapshot, "schema"): ONE_SCHEMA,
    (Decision, "schema"): ONE_SCHEMA,
    (RegionFacts, "schema"): ONE_SCHEMA,
    (LaunchRow, "schema"): ONE_SCHEMA,
    (CommandRow, "schema"): ONE_SCHEMA,
    (NoticeRow, "schema"): ONE_SCHEMA,
    (NominationRow, "schema"): ONE_SCHEMA,
    (ClusterRow, "schema"): ONE_SCHEMA,
    (Breaker, "schema"): ONE_SCHEMA,
    (Doorbell, "schema"): ONE_SCHEMA,
    (Plan, "is_cheapest"): YOUNGER,
    (ClusterRow, "alike"): YOUNGER,
    (CapacityReservation, "available"): NOT_IN_STATUS,
    (Subnet, "free_addresses"): NOT_IN_STATUS,
    (Launch, "replaces"): UNUSED,
    (Launch, "reason"): UNUSED,
    (LaunchRow, "replaces"): UNUSED,
    (LaunchRow, "reason"): YOUNGER,
    (Disruption, "savings_picousd_per_hour"): UNUSED,
    (CommandRow, "own_replacements"): YOUNGER,
    (CommandRow, "awaited"): YOUNGER,
    (CommandRow, "moves"): YOUNGER,
    (ProposedMove, "candidates"): YOUNGER,
    (ProposedMove, "move"): YOUNGER,
    (ProposedMove, "saving"): YOUNGER,
    (NoticeRow, "ended"): YOUNGER,
    (NoticeRow, "warning"): YOUNGER,
    (NoticeRow, "events"): YOUNGER,
    (CommandRow, "rollout"): YOUNGER,
    (CommandRow, "failed"): YOUNGER,
    (Disruption, "rollout"): YOUNGER,
    (Disruption, "evictions"): YOUNGER,
    (CommandRow, "evictions"): YOUNGER,
    (NominationRow, "launch"): YOUNGER,
    (NominationRow, "moving"): YOUNGER,
    (Launch, "moving"): YOUNGER,
    (Launch, "requests"): YOUNGER,
    (LaunchRow, "requests"): YOUNGER,
    (LaunchRow, "commands"): YOUNGER,
    (Decision, "disruptions"): YOUNGER,
    (Snapshot, "moving"): YOUNGER,
    (NewNode, "usage"): YOUNGER,
    (ResourceUsage, "resource"): YOUNGER,
    (ResourceUsage, "requested"): YOUNGER,
    (ClusterRow, "planner_until"): YOUNGER,
    (ClusterRow, "evaluations_pause_until"): YOUNGER,
    (ClusterRow, "plans_pause_until"): YOUNGER,
    (ClusterRow, "plans_pause_digest"): YOUNGER,
    (ClusterRow, "failed_plans_pause_until"): YOUNGER,
    (ClusterRow, "listed_for_pods_until"): YOUNGER,
    (ClusterRow, "commit_pauses"): YOUNGER,
    (CommitPause, "reason"): YOUNGER,
    (CommitPause, "digest"): YOUNGER,
    (CommitPause, "until"): YOUNGER,
    (CommandRow, "digest"): YOUNGER,
    (ClusterRow, "launched"): YOUNGER,
    (ClusterRow, "other_provisioner"): YOUNGER,
    (HeldBackNodes, "node_pool"): YOUNGER,
    (HeldBackNodes, "nodes"): YOUNGER,
    (HeldBackNodes, "setting"): YOUNGER,
    (HeldBackNodes, "reason"): YOUNGER,
    (HeldBackNodes, "resumes_at"): YOUNGER,
    (LaunchBound, "setting"): YOUNGER,
    (LaunchBound, "allowed"): YOUNGER,
    (LaunchBound, "used"): YOUNGER,
    (LaunchBound, "resumes_at"): YOUNGER,
    (LaunchedInMinute, "minute"): YOUNGER,
    (LaunchedInMinute, "launches"): YOUNGER,
    (LaunchedInMinute, "nodes"): YOUNGER,
    (LaunchedInMinute, "price"): YOUNGER,
    (Plan, "held_back"): YOUNGER,
    (Snapshot, "launch_bounds"): YOUNGER,
    (Settings, "max_launches_per_minute"): YOUNGER,
    (Settings, "max_nodes_per_hour"): YOUNGER,
    (Settings, "max_dollars_per_hour"): YOUNGER,
    (Settings, "max_evictions_per_hour"): YOUNGER,
    (ResourceUsage, "available"): YOUNGER,
    (OfferingHealth, "subnet"): YOUNGER,
    (OfferingHealth, "interrupted"): YOUNGER,
    (OfferingHealth, "rebalanced"): YOUNGER,
    (Snapshot, "histories"): YOUNGER,
    (OfferingHistory, "instance_type"): YOUNGER,
    (OfferingHistory, "zone"): YOUNGER,
    (OfferingHistory, "interruptions"): YOUNGER,
    (OfferingHistory, "rebalances"): YOUNGER,
    (OfferingHistory, "penalty"): YOUNGER,
    (OfferingHistory, "troubled"): YOUNGER,
    (SubnetAddresses, "free"): YOUNGER,
    (SubnetAddresses, "at"): YOUNGER,
    (SubnetAddresses, "launches"): YOUNGER,
    (LaunchedIntoSubnet, "at_ms"): YOUNGER,
    (LaunchedIntoSubnet, "instances"): YOUNGER,
    (LaunchedIntoSubnet, "addresses"): YOUNGER,
    (UnplacedPod, "causes"): YOUNGER,
    (Cause, "code"): YOUNGER,
    (Cause, "nodepools"): YOUNGER,
    (Cause, "details"): YOUNGER,
}


def test_every_stored_field_is_stated_somewhere() -> None:
    assert name(list_fields(ROOTS) - find_recorded() - NOT_STATED.keys()) == []


def test_every_exception_exists_and_is_stated_nowhere() -> None:
    assert name(NOT_STATED.keys() - list_fields(ROOTS)) == []
    assert name(NOT_STATED.keys() & find_recorded()) == []


def find_recorded() -> set[Field]:
    """Every field that anything recorded states."""
    return set[Field]().union(*map(find_stated, (*read_all_bodies(), *read_all_rows(), *read_all_messages())))


def read_all_bodies() -> list[object]:
    values: list[object] = [decode_decision(read_body(key)) for key in list_keys("decisions")]
    values += [msgspec.json.decode(read_body(key), type=Snapshot) for key in list_keys("snapshots")]
    for key in list_keys("catalogs"):
        body = read_body(key)
        values.append(
            msgspec.json.decode(body, type=RegionFacts) if is_region(key) else catalog_codec.read_header(body)
        )
    return values


def read_all_rows() -> list[object]:
    values: list[object] = [decode_timer_row(row) for row in read_rows() if "phase" in row]
    for state in map(read_state, read_stores()):
        values += [state.cluster_row, state.stored_breaker, *state.health.values(), *state.rates.values()]
    return values


def read_all_messages() -> list[object]:
    messages = (*read_messages()["functions"], *read_messages()["forwarder"])
    return [msgspec.json.decode(message["body"], type=Doorbell) for message in messages]


def name(fields: set[Field]) -> list[str]:
    return sorted(f"{kind.__name__}.{field}" for kind, field in fields)
