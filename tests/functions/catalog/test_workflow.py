"""Doorbells of the catalog function → class statuses, catalogs, and doorbells for those who depend on them."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from spotwright.aws.nodeclass import hashes
from spotwright.errors import Denied, NotFound, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import CapacityReservationSelectorTerm, SelectorTerm
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.catalog.workflow import READ_ELSEWHERE, REGION_READ_MS, RETRY_SECONDS, update_catalog
from spotwright.workflows.ports.doorbells import RUNG_ANYWAY, Doorbell
from spotwright.workflows.sweep.poll import POLL_SECONDS, poll
from tests.functions.catalog.fakes import NODE_ROLE, TYPES, CatalogWorld
from tests.unit.aws.samples import CLUSTER, FACTS, ZONES

PODS, POOLS = ("provision", "pods", ""), ("lifecycle", "nodepools", "")
DRIFT = ("lifecycle", "drift", "")


@pytest.fixture
def world() -> CatalogWorld:
    return CatalogWorld()


def test_a_new_class_is_resolved_and_what_it_can_buy_is_known(world: CatalogWorld) -> None:
    world.apply()
    catalog_result = world.run("default")
    nodeclass = world.nodeclass()
    assert catalog_result.ready_classes == ("default",)
    assert world.condition("Ready").status == "True"
    assert [subnet.id for subnet in nodeclass.subnets] == ["subnet-a", "subnet-b", "subnet-c"]
    assert len(nodeclass.amis) == 5
    assert nodeclass.resolved_instance_profile in world.instance_profiles.profiles
    assert [instance_type.name for instance_type in world.catalog().instance_types("default")] == list(TYPES)
    assert world.rung() == {PODS, POOLS, DRIFT}


def test_subnets_with_few_free_addresses_are_told_to_launches(world: CatalogWorld) -> None:
    world.apply()
    first, *others = world.selectors.found_subnets
    plenty = [msgspec.structs.replace(subnet, available_ip_address_count=8000) for subnet in others]
    world.selectors.found_subnets = (first, *plenty)
    world.run("default")
    (row,) = world.state.health.values()
    assert (row.key, row.subnet and row.subnet.free_addresses) == (f"subnet:{first.id}:{first.zone}", 100)


def test_a_catalog_is_stored_also_where_free_addresses_cannot_be(world: CatalogWorld) -> None:
    """They may stand in the table of another cell."""
    world.apply()
    world.effects.inject(Fault("state", "save_offering_health", Unavailable("no answer"), times=100))
    with pytest.raises(Unavailable):
        world.run("default")
    assert [instance_type.name for instance_type in world.catalog().instance_types("default")] == list(TYPES)
    assert world.rung() == {PODS, POOLS, DRIFT}


def test_a_class_gets_its_hash_and_our_finalizer(world: CatalogWorld) -> None:
    applied = world.apply()
    world.run()
    about = world.nodeclass().metadata
    assert about.finalizers == (labels.EC2NODECLASS_FINALIZER,)
    assert about.annotations[labels.EC2NODECLASS_HASH] == hashes.nodeclass_hash(applied, FACTS.certificate_authority)
    assert about.annotations[labels.EC2NODECLASS_HASH_VERSION] == "v6"


def test_a_second_run_changes_nothing(world: CatalogWorld) -> None:
    world.apply()
    world.apply("other", tags={"a": "b"})
    world.run()
    world.rung()
    before = len(world.effects.log)
    catalog_result = world.run()
    assert world.effects.log[before:] == []
    assert not catalog_result.changed
    assert world.region_source.reads == 1


def test_the_region_is_read_once_and_again_when_it_is_asked_for(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    world.run("default")
    assert world.region_source.reads == 1
    world.region_source.sells = msgspec.structs.replace(
        world.region_source.sells, on_demand=dict.fromkeys(TYPES, 1), spot={name: {ZONES[0]: 1} for name in TYPES}
    )
    world.rung()
    assert world.refresh().changed
    assert world.region_source.reads == 2
    assert {
        offering.price_picousd_per_hour
        for instance_type in world.catalog().instance_types("default")
        for offering in instance_type.offerings
    } == {
        0,
        1,
    }
    assert PODS in world.rung()
    world.run()
    assert world.region_source.reads == 2


def test_the_first_reading_is_kept_before_the_cluster_is_open(world: CatalogWorld) -> None:
    world.effects.inject(Fault("cluster", "nodeclaims", NotFound("no such definition", code="NotFound")))
    put_off = world.refresh()
    assert put_off.catalog_key
    assert "does not grant access yet" in put_off.notes[0]
    assert world.rung() == {("catalog", "nodeclasses", "")}
    world.apply()
    world.run("default")
    assert world.region_source.reads == 1
    assert [instance_type.name for instance_type in world.catalog().instance_types("default")] == list(TYPES)


def test_a_cluster_that_stops_letting_us_in_later_is_a_failure(world: CatalogWorld) -> None:
    world.refresh()
    world.effects.inject(Fault("cluster", "nodeclaims", Denied("no", code="Forbidden")))
    with pytest.raises(Denied):
        world.refresh()


def test_while_one_run_reads_the_region_another_settles_classes_and_comes_back(world: CatalogWorld) -> None:
    now = int(world.clock.now().timestamp() * 1000)
    assert world.state.begin_region_read(now, since=now - REGION_READ_MS)
    world.apply()
    put_off = world.run("default")
    assert (put_off.ready_classes, put_off.catalog_key, world.region_source.reads) == (("default",), "", 0)
    assert ("catalog", "nodeclasses", "default") in world.rung()
    assert READ_ELSEWHERE in world.refresh().notes
    assert world.region_source.reads == 0


def test_a_reading_that_died_is_not_waited_for_longer_than_its_doorbells_ring(world: CatalogWorld) -> None:
    assert 1000 * sum(RETRY_SECONDS) > REGION_READ_MS
    now = int(world.clock.now().timestamp() * 1000)
    assert world.state.begin_region_read(now - REGION_READ_MS, since=0)
    world.apply()
    assert world.run("default").catalog_key
    assert world.region_source.reads == 1


def test_one_named_class_is_settled_and_the_others_stay_in_the_catalog(world: CatalogWorld) -> None:
    world.apply()
    world.apply("other")
    world.run()
    world.selectors.found_subnets = world.selectors.found_subnets[:1]
    world.run("other")
    assert len(world.nodeclass().subnets) == 3
    assert {offering.zone for offering in world.catalog().instance_types("default")[0].offerings} == set(ZONES)
    assert {offering.zone for offering in world.catalog().instance_types("other")[0].offerings} == {ZONES[0]}


def test_a_catalog_made_piece_by_piece_is_the_one_made_at_once(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    world.apply("small", kubelet={"maxPods": 9})
    world.apply("alike", tags={"a": "b"})
    world.run()
    world.edit("small", kubelet={"maxPods": 11})
    key = world.run("small").catalog_key
    assert world.catalog().instance_types("small")[0].capacity["pods"] == 11
    assert world.catalog().instance_types("alike") == world.catalog().instance_types("default")
    world.state.current_catalog_key = ""
    assert world.run().catalog_key == key


def test_a_catalog_of_another_schema_is_made_anew(world: CatalogWorld) -> None:
    world.apply()
    key = world.run().catalog_key
    body = json.loads(world.blobs.bodies[key])
    world.state.current_catalog_key = world.blobs.put(
        "catalogs", json.dumps(body | {"schema": 0, "types": "other"}).encode()
    )
    assert world.run().catalog_key == key
    world.state.current_catalog_key = world.blobs.put("catalogs", b"not a catalog")
    assert world.run().catalog_key == key
    world.state.current_catalog_key = "catalogs/gone.json"
    assert world.run().catalog_key == key


def test_a_class_that_finds_nothing_says_so_and_sells_nothing(world: CatalogWorld) -> None:
    world.selectors.found_subnets = ()
    world.apply()
    catalog_result = world.run()
    assert world.condition("SubnetsReady").reason == "SubnetsNotFound"
    assert world.condition("Ready").message == "SubnetsReady=False, ValidationSucceeded=False"
    assert "SubnetsNotFound" in catalog_result.not_ready["default"]
    assert world.catalog().instance_types("default") == ()
    reasons = [event.reason for event in world.cluster.events]
    assert reasons == ["SubnetsNotFound", "DependenciesNotReady"]
    world.run()
    assert len(world.cluster.events) == 2


def test_a_class_that_recovers_rings_for_its_pools_and_pods(world: CatalogWorld) -> None:
    subnets, world.selectors.found_subnets = world.selectors.found_subnets, ()
    world.apply()
    world.run()
    world.rung()
    world.selectors.found_subnets = subnets
    world.run()
    assert world.condition("Ready").status == "True"
    assert world.rung() == {PODS, POOLS, DRIFT}


def test_a_class_with_very_many_wrong_values_says_so_once(world: CatalogWorld) -> None:
    """The API server takes messages of 32,768 characters."""
    world.apply("default", tags={f"kubernetes.io/cluster/{number:064}": "owned" for number in range(600)})
    world.run()
    found = world.condition("ValidationSucceeded")
    assert (found.status, found.reason) == ("False", "TagValidationFailed")
    assert found.message.startswith("spec.tags: kubernetes.io/cluster/0000")
    assert (len(found.message), found.message[-3:]) == (32_768, "...")
    writes = len(world.effects.select("cluster", "set_conditions"))
    world.run()
    assert len(world.effects.select("cluster", "set_conditions")) == writes


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({"role": "Administrator"}, "InstanceProfileReady", "RoleNotAllowed"),
        ({"role": "", "instance_profile": "nobody"}, "InstanceProfileReady", "InstanceProfileNotFound"),
        ({"ami_selector_terms": (SelectorTerm(alias="al2@latest"),)}, "AMIsReady", "UnsupportedAlias"),
        ({"tags": {"karpenter.sh/nodepool": "x"}}, "ValidationSucceeded", "TagValidationFailed"),
    ],
)  # fmt: skip
def test_a_refused_class_stops_no_other(world: CatalogWorld, fields: dict[str, Any], kind: str, reason: str) -> None:
    world.apply("bad", **fields)
    world.apply("good")
    catalog_result = world.run()
    assert world.condition(kind, "bad").reason == reason
    assert catalog_result.ready_classes == ("good",)
    assert [instance_type.name for instance_type in world.catalog().instance_types("good")] == list(TYPES)


def test_a_role_that_iam_does_not_know_is_said(world: CatalogWorld) -> None:
    world.instance_profiles.roles.clear()
    world.apply()
    world.run()
    assert world.condition("InstanceProfileReady").reason == "RoleNotFound"
    assert world.instance_profiles.profiles == {}


def test_a_profile_of_the_user_must_hold_a_role_of_the_cluster(world: CatalogWorld) -> None:
    world.instance_profiles.profiles = {"mine": ("/", NODE_ROLE), "admin": ("/", "Administrator")}
    world.apply("good", role="", instance_profile="mine")
    world.apply("bad", role="", instance_profile="admin")
    world.run()
    assert world.nodeclass("good").resolved_instance_profile == "mine"
    assert world.condition("InstanceProfileReady", "bad").reason == "RoleNotAllowed"
    assert set(world.instance_profiles.profiles) == {"mine", "admin"}


def test_trouble_at_aws_keeps_what_is_known_and_comes_again(world: CatalogWorld) -> None:
    world.apply("bad", subnet_selector_terms=(SelectorTerm(id="subnet-x"),))
    world.apply("good")
    world.run()
    world.rung()
    world.selectors.fails["subnet-x"] = Unavailable("no answer")
    catalog_result = world.run()
    assert catalog_result.failures == {"bad": "Unavailable: no answer"}
    assert world.condition("Ready", "bad").status == "True"
    assert world.catalog().instance_types("bad") != ()
    assert world.rung() == {("catalog", "nodeclasses", "bad")}


def test_coming_again_ends_and_the_sweep_takes_over(world: CatalogWorld) -> None:
    world.apply(subnet_selector_terms=(SelectorTerm(id="subnet-x"),))
    world.selectors.fails["subnet-x"] = Denied("not allowed")
    world.run(attempt=len(RETRY_SECONDS) - 1)
    (bell,) = [message.doorbell for message in world.doorbells.messages if message.queue == "catalog"]
    assert bell.epoch == len(RETRY_SECONDS)
    world.rung()
    world.run(attempt=bell.epoch)
    assert ("catalog", "nodeclasses", "default") not in world.rung()


def test_a_class_is_tried_again_at_longer_and_longer_intervals_each_for_itself(world: CatalogWorld) -> None:
    for name in ("first", "second"):
        world.apply(name, subnet_selector_terms=(SelectorTerm(id="subnet-x"),))
    world.selectors.fails["subnet-x"] = Denied("not allowed")
    world.run("first", attempt=3)
    bells = (Doorbell(CLUSTER, "nodeclasses", "first", 4), Doorbell(CLUSTER, "nodeclasses", "second"))
    world.doorbells.messages.clear()
    list(update_catalog(world, bells, clock=world.clock.now))
    now = world.clock.milliseconds()
    waiting = {message.doorbell: message.at - now for message in world.doorbells.messages if message.queue == "catalog"}
    assert waiting == {
        Doorbell(CLUSTER, "nodeclasses", "first", 5): 1000 * RETRY_SECONDS[4],
        Doorbell(CLUSTER, "nodeclasses", "second", 1): 1000 * RETRY_SECONDS[0],
    }
    assert 1 == RETRY_SECONDS[0] < RETRY_SECONDS[4] < RETRY_SECONDS[-1]


def test_classes_with_reservations_that_fail_do_not_begin_each_others_retries_again(world: CatalogWorld) -> None:
    """They are resolved whichever class is named; an invocation may get one doorbell alone."""
    for name in ("first", "second"):
        terms, reserved = (SelectorTerm(id="subnet-x"),), (CapacityReservationSelectorTerm(id="cr-1"),)
        world.apply(name, subnet_selector_terms=terms, capacity_reservation_selector_terms=reserved)
    world.selectors.fails["subnet-x"] = Denied("not allowed")
    tried = Counter[str]()
    bells = [Doorbell(CLUSTER, "nodeclasses", "first")]
    for _ in range(2 * sum(RETRY_SECONDS)):
        for bell in bells:
            list(update_catalog(world, [bell], clock=world.clock.now))
            tried[bell.key] += 1
        world.clock.advance(1)
        bells = [bell for bell in world.doorbells.receive("catalog") if bell.kind == "nodeclasses"]
    assert tried == {"first": 1 + len(RETRY_SECONDS), "second": len(RETRY_SECONDS)}


def test_a_class_that_the_sweep_rings_for_is_not_rung_for_again_unless_only_its_types_are_missing(
    world: CatalogWorld,
) -> None:
    world.apply(subnet_selector_terms=(SelectorTerm(id="subnet-x"),))
    world.selectors.fails["subnet-x"] = Denied("not allowed")
    world.run("default", attempt=RUNG_ANYWAY)
    assert ("catalog", "nodeclasses", "default") not in world.rung()
    world.apply("ready")
    world.state.current_catalog_key = ""
    world.region_source.fails = Unavailable("throttled")
    with pytest.raises(Unavailable):
        world.run("ready", attempt=RUNG_ANYWAY)
    assert ("catalog", "nodeclasses", "ready") in world.rung()


@pytest.mark.parametrize("forwarder", [True, False])
def test_a_class_that_is_not_ready_is_resolved_seldom_however_often_somebody_looks(forwarder: bool) -> None:
    """While pods wait: the polls of five minutes, and what catalog rings for itself. A change is looked at at once."""
    sweeping = World()
    world = CatalogWorld(clock=sweeping.clock)
    sweeping.cluster, sweeping.state, sweeping.doorbells = world.cluster, world.state, world.doorbells
    sweeping.cluster.put("pods", builders.pod("web", unschedulable=True))
    world.apply(subnet_selector_terms=(SelectorTerm(id="subnet-x"),))
    world.selectors.fails["subnet-x"] = Denied("not allowed")
    resolved: list[float] = []

    def pass_time(seconds: int) -> None:
        for _ in range(seconds):
            second = int(world.clock.now().timestamp())
            if second % POLL_SECONDS == 0:
                world.state.heartbeat_at = world.clock.milliseconds() if forwarder else 0
                poll(sweeping, now=world.clock.now(), scheduled=second % 60 == 0)
            bells = [bell for bell in world.doorbells.receive("catalog") if bell.kind == "nodeclasses"]
            if bells:
                list(update_catalog(world, bells, clock=world.clock.now))
                resolved.append(second)
            world.clock.advance(1)

    def change() -> None:
        if forwarder:
            world.doorbells.ring("catalog", [Doorbell(CLUSTER, "nodeclasses", "default")])

    change()
    pass_time(100)
    assert len(resolved) <= 12
    pass_time(200)
    assert len(resolved) <= 16
    world.selectors.fails.clear()
    world.edit("default", user_data="echo")
    change()
    before = len(resolved)
    pass_time(POLL_SECONDS + 1)
    assert len(resolved) == before + 1
    assert world.condition("Ready").status == "True"


def test_statuses_are_written_before_the_region_is_read(world: CatalogWorld) -> None:
    world.apply()
    world.region_source.fails = Unavailable("throttled")
    with pytest.raises(Unavailable):
        world.run("default")
    assert world.condition("Ready").status == "True"
    assert world.state.catalog_key() == ""
    assert ("catalog", "nodeclasses", "default") in world.rung()
    world.region_source.fails = None
    world.run("default")
    assert [instance_type.name for instance_type in world.catalog().instance_types("default")] == list(TYPES)


def test_a_run_that_was_overtaken_does_not_bring_old_prices_back(world: CatalogWorld) -> None:
    """Another run stores a newer region while this one is on its way."""
    world.apply()
    world.run()
    newer = msgspec.structs.replace(world.region_source.sells, on_demand=dict.fromkeys(TYPES, 7))
    raced: list[str] = []
    put = world.blobs.put

    def interleaved(kind: str, body: bytes) -> str:
        key = put(kind, body)
        if not raced:
            raced.append(key)
            world.region_source.sells = newer
            world.refresh()
        return key

    world.edit("default", kubelet={"maxPods": 9})
    world.blobs.put = interleaved  # type: ignore[method-assign]
    world.run()
    bought = world.catalog().instance_types("default")[0]
    assert {
        offering.price_picousd_per_hour for offering in bought.offerings if offering.capacity_type == "on-demand"
    } == {7}
    assert bought.capacity["pods"] == 9


@pytest.mark.parametrize("after", range(1, 9))
def test_a_crash_anywhere_is_made_good_by_a_run_soon_after(world: CatalogWorld, after: int) -> None:
    world.apply()
    world.effects.crash_after(after)
    with pytest.raises(Crash):
        world.run()
    world.effects.crash_after(None)
    world.clock.advance(sum(RETRY_SECONDS))
    world.run()
    assert world.condition("Ready").status == "True"
    assert [instance_type.name for instance_type in world.catalog().instance_types("default")] == list(TYPES)
    assert len(world.instance_profiles.profiles) == 1
