"""What pods get when the planner is given a class's own types: accelerators, disks, zones, and what is closed."""

import msgspec
import pytest

from spotwright.aws.images import families
from spotwright.aws.instance_types import (
    capacity,
    catalog_codec,
    offering_health,
    offerings,
    region_facts,
    unavailable_offerings,
)
from spotwright.aws.launch import fleet_plan
from spotwright.cli.inputs.builtin_regions import DEFAULT_REGION, load_region
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import Catalog, InstanceType, find_instance_type
from spotwright.model.karpenter.nodeclass import BlockDeviceMapping, CapacityReservation, EC2NodeClass, SelectorTerm
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.pod_planner import plan_pods
from tests.unit.aws.samples import FACTS, ZONES, nodeclass, region, types
from tests.unit.scheduling.builders import daemonset, pod, pool, snapshot, why, zone_is

GIB = 2**30


def planned(catalog: tuple[InstanceType, ...], *waiting: Pod, **fields: object) -> Plan:
    return plan_pods(snapshot(*waiting, **fields), Catalog({"": catalog}))  # type: ignore[arg-type]


def asking(resource: str, *amounts: int) -> tuple[Pod, ...]:
    return tuple(pod(f"p-{number}", requests={resource: amount}) for number, amount in enumerate(amounts))


def names(plan: Plan) -> list[str]:
    return sorted(new_node.instance_types[0] for new_node in plan.new_nodes)


def recorded(*chosen: str, of: EC2NodeClass | None = None) -> tuple[InstanceType, ...]:
    """Types that need not be sold in the region of the other tests; a dollar an hour each."""
    described = tuple(info for info in load_region(DEFAULT_REGION).types if info.name in chosen)
    sold = dict.fromkeys(chosen, 10**12)
    facts = region_facts.RegionFacts("r", described, dict.fromkeys(chosen, ZONES), sold, {name: {} for name in chosen})
    wanted = of or nodeclass()
    family = families.ami_family(wanted)
    assert isinstance(family, families.AMIFamily)
    return offerings.instance_types(facts, offerings.offering_context(wanted, family), capacity.Overheads())


@pytest.mark.parametrize(
    ("resource", "amounts", "name"),
    [
        ("nvidia.com/gpu", (5, 2, 5), "p5.48xlarge"),
        ("aws.amazon.com/neuron", (2, 2, 4), "inf2.24xlarge"),
        ("amd.com/gpu", (1, 2, 4), "g4ad.16xlarge"),
    ],
)
def test_pods_with_accelerators_share_the_fewest_machines(resource: str, amounts: tuple[int, ...], name: str) -> None:
    """Twelve GPUs on machines of eight, eight Neuron devices on machines of six, seven GPUs on machines of four."""
    catalog = recorded("m5.large", name)
    if resource == "amd.com/gpu":
        # The images of this class are for NVIDIA and Neuron; a class for AMD's has an image that fits all.
        catalog = tuple(_sold(instance_type) for instance_type in catalog)
    plan = planned(catalog, *asking(resource, *amounts))
    assert names(plan) == [name, name]
    assert not plan.unschedulable_pods


def _sold(instance_type: InstanceType) -> InstanceType:
    open_ones = tuple(msgspec.structs.replace(offering, available=True) for offering in instance_type.offerings)
    return msgspec.structs.replace(instance_type, offerings=open_ones)


def test_branch_interfaces_are_there_on_trunking_types_only() -> None:
    """t3 cannot be a trunk."""
    catalog = types("t3.large", "m5.large")
    wanted = asking("vpc.amazonaws.com/pod-eni", 1)
    assert names(planned(catalog, *wanted)) == ["m5.large"]
    (requested,) = wanted
    t3 = msgspec.structs.replace(requested, node_selector={labels.INSTANCE_PREFIX + "family": "t3"})
    assert planned(catalog, t3).new_nodes == ()


@pytest.mark.parametrize(("flex", "name"), [("true", "m7i-flex.large"), ("false", "m7i.large")])
def test_flex_is_chosen_and_left_out_by_label(flex: str, name: str) -> None:
    wanted = pod(node_selector={labels.INSTANCE_PREFIX + "capability-flex": flex})
    assert names(planned(recorded("m7i.large", "m7i-flex.large"), wanted)) == [name]


def storing(name: str, gibibytes: int) -> Pod:
    return pod(name, requests={"ephemeral-storage": gibibytes * GIB})


def test_local_disks_hold_what_the_root_volume_cannot_when_they_are_joined() -> None:
    kind = "m6idn.32xlarge"
    joined = recorded(kind, of=nodeclass(instance_store_policy="RAID0"))
    assert names(planned(joined, storing("large", 5000))) == [kind]
    assert why(planned(recorded(kind), storing("large", 5000)))


@pytest.mark.parametrize(
    ("gibibytes", "daemon", "nodes"), [((10,), 0, 1), ((19,), 0, 0), ((10, 10), 0, 2), ((1,), 1, 1), ((10,), 10, 0)]
)
def test_the_default_root_volume_holds_so_much(gibibytes: tuple[int, ...], daemon: int, nodes: int) -> None:
    waiting = [storing(f"p-{number}", size) for number, size in enumerate(gibibytes)]
    agents = [daemonset(requests={"ephemeral-storage": daemon * GIB})] if daemon else []
    plan = planned(types("m5.large"), *waiting, daemonsets=tuple(agents))
    assert len(plan.new_nodes) == nodes


def test_of_a_custom_image_the_last_volume_counts() -> None:
    devices = (BlockDeviceMapping("/dev/xvda", volume_size="20G"), BlockDeviceMapping("/dev/xvdb", volume_size="40G"))
    own = nodeclass(ami_family="Custom", ami_selector_terms=(SelectorTerm(id="ami-1"),), block_device_mappings=devices)
    assert names(planned(types("m5.large", of=own), storing("p", 25))) == ["m5.large"]
    swapped = msgspec.structs.replace(own, block_device_mappings=tuple(reversed(devices)))
    assert planned(types("m5.large", of=swapped), storing("p", 25)).new_nodes == ()


def test_spot_that_is_sold_in_one_zone_is_planned_there_only() -> None:
    facts = region("m5.large")
    assert facts.spot is not None
    sells = msgspec.structs.replace(facts, spot={"m5.large": {ZONES[0]: 10**10}})
    catalog = types(sells=sells)
    spot = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,))
    assert names(planned(catalog, pod(), pools=(pool("default", spot, zone_is(ZONES[0])),))) == ["m5.large"]
    assert planned(catalog, pod(), pools=(pool("default", spot, zone_is(ZONES[1])),)).new_nodes == ()


def test_what_has_no_capacity_is_planned_elsewhere_until_the_mark_is_over() -> None:
    """One type in one zone, by pods that must be in the zone, then again when three minutes are over."""
    catalog = Catalog({"": types("c5.large", "m5.large")})
    mark = OfferingHealth(
        "spot", "c5.large", ZONES[0], offering_health.UNAVAILABLE_MS, "InsufficientInstanceCapacity", failures=1
    )

    def bought(now_ms: int, *zones: str) -> list[tuple[str, tuple[str, ...]]]:
        left = unavailable_offerings.apply_to_catalog(
            catalog, [nodeclass()], offering_health.from_health_rows([mark], now_ms=now_ms)
        )
        plan = plan_pods(snapshot(pod(), pools=(pool("default", zone_is(*zones)),)), left)
        return [(new_node.instance_types[0], new_node.zones) for new_node in plan.new_nodes]

    assert [name for name, _ in bought(0, ZONES[0])] == ["m5.large"]
    assert [name for name, _ in bought(0, ZONES[0], ZONES[1])] == ["c5.large"]
    assert [name for name, _ in bought(offering_health.UNAVAILABLE_MS, ZONES[0])] == ["c5.large"]


def test_without_a_role_for_spot_on_demand_is_planned() -> None:
    mark = OfferingHealth(
        "spot", "*", "*", offering_health.UNAVAILABLE_MS, "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    )
    catalog = unavailable_offerings.apply_to_catalog(
        Catalog({"": types("m5.large")}), [nodeclass()], offering_health.from_health_rows([mark], now_ms=0)
    )
    (node,) = plan_pods(snapshot(pod()), catalog).new_nodes
    assert node.capacity_type == labels.ON_DEMAND


@pytest.mark.parametrize(
    ("more", "price", "runs", "sold"),
    [
        ((), "0.5", True, True),
        ((), "", True, False),
        ((NodeSelectorRequirement(labels.ZONE, "In", ZONES),), "0.5", True, False),
        ((), "0.5", False, False),
    ],
)
def test_a_price_that_an_overlay_states_makes_an_unpriced_type_buyable(
    more: tuple[NodeSelectorRequirement, ...], price: str, runs: bool, sold: bool
) -> None:
    """It must state the price itself, and name types alone; what the class cannot run stays out."""
    own = nodeclass() if runs else nodeclass(amis=())
    unpriced = types(of=own, sells=msgspec.structs.replace(region("m5.large"), on_demand={}, spot={}))
    written = catalog_codec.decode(catalog_codec.encode(Catalog({"": unpriced})))
    assert planned(unpriced, pod()).new_nodes == ()
    demand = (NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("m5.large",)), *more)
    stated = NodeOverlay(ObjectMeta("priced"), demand, price=price, price_adjustment="" if price else "+1")
    catalog = apply_overlays(written, (stated,), (pool(),)).catalog
    assert bool(plan_pods(snapshot(pod()), catalog).new_nodes) is sold


@pytest.mark.parametrize(
    ("where", "pools"),
    [
        (NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.RESERVED,)), {(ZONES[1], "cr-1")}),
        (NodeSelectorRequirement(labels.RESERVATION_ID, "DoesNotExist"), {(zone, "") for zone in ZONES}),
        (NodeSelectorRequirement(labels.RESERVATION_ID, "In", ("cr-2",)), {(ZONES[2], "cr-2")}),
        (NodeSelectorRequirement(labels.ZONE_ID, "In", ("apne2-az1",)), {(ZONES[0], "")}),
        (NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,)), {(zone, "") for zone in ZONES}),
    ],
    ids=["reserved", "unreserved", "reservation", "zone-id", "on-demand"],
)
def test_what_an_overlay_states_of_some_offerings_is_launched_as_one_of_them(
    where: NodeSelectorRequirement, pools: set[tuple[str, str]]
) -> None:
    """As EC2 describes types, with two reservations of one of them; the claim knows what its instance has."""
    held = (
        CapacityReservation("cr-1", "m5.large", ZONES[1], available_instance_count=3),
        CapacityReservation("cr-2", "m5.large", ZONES[2], available_instance_count=2),
    )
    of = nodeclass(capacity_reservations=held)
    stated = NodeOverlay(ObjectMeta("fuse"), (where,), capacity={"example.com/fuse": 1})
    catalog = apply_overlays(Catalog({"": types("m5.large", "c5.large", of=of)}), (stated,), (pool(),)).catalog
    (new_node,) = plan_pods(snapshot(*asking("example.com/fuse", 1)), catalog).new_nodes
    fleet = fleet_plan.plan_fleet(
        new_node, of, catalog.instance_types("default", "default"), FACTS, unavailable_offerings.UnavailableOfferings()
    )
    assert isinstance(fleet, fleet_plan.FleetPlan)
    bought = {(override.zone, override.reservation_id) for override in fleet.overrides}
    assert bought == pools
    for zone, reservation in bought:
        instance_type = find_instance_type(
            catalog.instance_types("default", "default"), "m5.large",
            zone=zone, capacity_type=fleet.capacity_type, reservation=reservation,
        )  # fmt: skip
        assert instance_type is not None
        assert instance_type.allocatable["example.com/fuse"] == 1
