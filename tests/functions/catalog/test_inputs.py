"""What the catalog depends on besides classes and region: prices of the account, zonal shifts, outages, memory seen."""

import msgspec
import pytest

from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.price_file import PriceFile, PriceRule
from spotwright.errors import Denied, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import CapacityReservation, CapacityReservationSelectorTerm, SelectorTerm
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.simulation import builders
from spotwright.workflows.catalog.workflow import apply_zonal_shifts
from tests.functions.catalog.fakes import TYPES, CatalogWorld, Shifts
from tests.unit.aws.samples import ZONES

PODS, POOLS = ("provision", "pods", ""), ("lifecycle", "nodepools", "")


@pytest.fixture
def world() -> CatalogWorld:
    return CatalogWorld()


def test_a_parameter_that_may_not_be_read_is_said_and_stops_no_other_class() -> None:
    world = CatalogWorld()
    world.selectors.fails["/mine"] = Denied("GetParameters: not authorized on /mine", code="AccessDeniedException")
    world.apply("other")
    world.apply("mine", ami_family="AL2023", ami_selector_terms=(SelectorTerm(ssm_parameter="/mine"),))
    world.run()
    condition = world.condition("AMIsReady", "mine")
    assert (condition.status, condition.reason, "/mine" in condition.message) == ("False", "AMINotFound", True)
    assert world.condition("Ready", "other").status == "True"


def test_a_reservation_that_fills_up_makes_another_catalog_whoever_is_asked_for() -> None:
    world = CatalogWorld()
    reservation = CapacityReservation("cr-1", "m5.large", ZONES[0], available_instance_count=2)
    world.selectors.reservations = (reservation,)
    world.apply("reserving", capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(id="cr-1"),))
    world.apply("plain")
    world.run()
    before = world.state.catalog_key()
    world.run("plain")
    assert world.state.catalog_key() == before
    world.selectors.reservations = (msgspec.structs.replace(reservation, available_instance_count=1),)
    world.run("plain")
    assert world.state.catalog_key() != before
    assert [each.id for each in world.nodeclass("reserving").capacity_reservations] == ["cr-1"]


def prices_of(world: CatalogWorld, name: str = "m5.large") -> dict[tuple[str, str], int]:
    (instance_type,) = (it for it in world.catalog().instance_types("default") if it.name == name)
    return {
        (offering.capacity_type, offering.zone): offering.price_picousd_per_hour
        for offering in instance_type.offerings
        if offering.available
    }


def test_the_accounts_own_prices_are_those_of_the_catalog(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    listed = prices_of(world)["on-demand", ZONES[0]]
    world.rung()
    world.account_prices.file = PriceFile((PriceRule(instance_types=("m5.*",), factor=(3, 4)),))
    assert world.run().changed
    assert prices_of(world)["on-demand", ZONES[0]] == listed * 3 // 4
    assert PODS in world.rung()
    assert not world.run().changed
    world.account_prices.file, world.account_prices.complaint = PriceFile(), "prices/c.yaml is not used: rules[0]"
    assert world.run().notes == ("prices/c.yaml is not used: rules[0]",)
    assert prices_of(world)["on-demand", ZONES[0]] == listed


def test_a_shifted_zone_has_nothing_to_buy_until_the_shift_ends(world: CatalogWorld) -> None:
    world.apply()
    world.cluster.put("nodepools", builders.nodepool())
    world.run()
    assert apply_zonal_shifts(world, now=world.clock.now()) is None
    world.zonal_shifts = Shifts("az-a")
    catalog_result = apply_zonal_shifts(world, now=world.clock.now())
    assert catalog_result is not None
    assert catalog_result.changed
    assert world.catalog().shifted_zone_ids == ("az-a",)
    assert {zone for _, zone in prices_of(world)} == set(ZONES[1:])
    assert PODS in world.rung()
    assert apply_zonal_shifts(world, now=world.clock.now()) is None
    world.zonal_shifts.away = frozenset()
    assert apply_zonal_shifts(world, now=world.clock.now()) is not None
    assert {zone for _, zone in prices_of(world)} == set(ZONES)
    assert [event.reason for event in world.cluster.events if event.kind == "nodepools"] == [
        "ZonalShiftActive",
        "ZonalShiftCleared",
    ]


def test_while_nobody_says_which_zones_are_shifted_those_of_last_time_are(world: CatalogWorld) -> None:
    world.apply()
    world.zonal_shifts = Shifts("az-a")
    world.run()
    world.zonal_shifts.fails = Unavailable("GetManagedResource: timed out")
    catalog_result = world.run()
    assert catalog_result.notes == (
        "zonal shifts could not be read, the last known ones stay: GetManagedResource: timed out",
    )
    assert {zone for _, zone in prices_of(world)} == set(ZONES[1:])


def test_the_region_is_read_with_the_prices_of_last_time_at_hand(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    world.refresh()
    assert world.region_source.before == world.region_source.sells


def test_while_ssm_is_down_a_class_keeps_its_images_and_a_new_one_waits(world: CatalogWorld) -> None:
    world.apply()
    world.apply("pinned", ami_selector_terms=(SelectorTerm(id="ami-standard-x86_64"),), ami_family="AL2023")
    world.run()
    images = world.nodeclass().amis
    down = Unavailable("no answer from SSM")
    world.selectors.fails = {
        "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id": down
    }
    world.apply("new")
    catalog_result = world.run()
    assert world.nodeclass().amis == images
    assert set(catalog_result.ready_classes) == {"default", "pinned"}
    assert sorted(catalog_result.failures) == ["default", "new"]
    assert world.condition("AMIsReady", "new").status == "Unknown"
    assert world.condition("SubnetsReady", "new").status == "True"
    assert world.condition("Ready", "new").reason == "ReconcilingDependents"
    assert [instance_type.name for instance_type in world.catalog().instance_types("default")] == list(TYPES)
    world.selectors.fails = {}
    assert set(world.run().ready_classes) == {"default", "new", "pinned"}


def test_expressions_of_a_class_are_held_against_every_type(world: CatalogWorld) -> None:
    world.overheads = Overheads(nodeclass_cel=True)
    world.apply("fine", kubelet={"maxPods": "vcpus * 4"})
    world.apply("wrong", kubelet={"maxPods": "100 / (vcpus - 2)"})
    assert world.run().ready_classes == ()
    assert world.condition("ValidationSucceeded", "fine").status == "Unknown"
    assert ("catalog", "nodeclasses", "fine") in world.rung()
    assert world.run("fine", "wrong", attempt=1).ready_classes == ("fine",)
    assert world.condition("ValidationSucceeded", "wrong").reason == "KubeletExpressionEvaluationFailed"


def test_types_have_the_memory_that_their_nodes_were_seen_to_have(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    estimated = {
        instance_type.name: instance_type.capacity["memory"]
        for instance_type in world.catalog().instance_types("default")
    }
    claim = world.claim("a")
    image = next(one.id for one in world.nodeclass().amis if one.id.startswith("ami-standard-x86_64"))
    changed = msgspec.structs.replace(claim, provider_id="aws:///z/i-1", image_id=image)
    world.cluster.put("nodeclaims", changed)
    told = {labels.INSTANCE_TYPE: "m5.large", labels.REGISTERED: "true"}
    node = Node(ObjectMeta("n", labels=told), "aws:///z/i-1", capacity={"memory": 7 * 2**30})
    world.cluster.put("nodes", node)
    world.rung()
    assert world.run().changed
    assert PODS in world.rung()
    found = {
        instance_type.name: instance_type.capacity["memory"]
        for instance_type in world.catalog().instance_types("default")
    }
    assert found == estimated | {"m5.large": 7 * 2**30}
    world.cluster.delete("nodes", node.metadata)
    assert not world.run().changed
    assert not world.run("default").changed
    assert {
        instance_type.name: instance_type.capacity["memory"]
        for instance_type in world.catalog().instance_types("default")
    } == found
    world.clock.advance(61 * 86_400)
    world.run()
    assert {
        instance_type.name: instance_type.capacity["memory"]
        for instance_type in world.catalog().instance_types("default")
    } == estimated
