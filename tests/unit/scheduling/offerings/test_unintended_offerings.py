"""Capacity that a NodeOverlay states for some offerings counts in these, and what they are bought for keeps to them."""

from typing import Any

import msgspec
import pytest

from spotwright.lifecycle.nodeclaim_creation import to_new_node
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType, find_instance_type
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements
from spotwright.model.snapshot import STATIC_CAPACITY, InFlightNodeClaim, Settings
from spotwright.scheduling import planner
from spotwright.scheduling.offerings.overlays import OverlaidCatalog, apply_overlays
from spotwright.scheduling.plan import NewNode, Plan, to_in_flight_nodeclaim
from tests.unit.scheduling.builders import (
    GIB,
    SMALL,
    TYPES,
    ZONES,
    daemonset,
    instance,
    launchable,
    planned,
    pod,
    pods,
    pool,
    snapshot,
    why,
    zone_is,
)

FUSE = "example.com/fuse"
HUGE = "hugepages-2Mi"
APP = (NodeSelectorRequirement("app", "In", ("a",)),)
SPOT = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,))


def type_is(*names: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", names)


def overlay(*requirements: NodeSelectorRequirement, name: str = "fuse", **fields: Any) -> NodeOverlay:
    return NodeOverlay(ObjectMeta(name), requirements, **({"capacity": {FUSE: 3}} | fields))


def asking(name: str = "p", count: int = 1, **fields: Any) -> Pod:
    return pod(name, requests={FUSE: count}, **fields)


def made_of(*overlays: NodeOverlay, types: tuple[InstanceType, ...] = TYPES) -> OverlaidCatalog:
    return apply_overlays(Catalog({"": types}), overlays, [pool()])


def named(overlaid_catalog: OverlaidCatalog, name: str) -> list[InstanceType]:
    return [
        instance_type
        for instance_type in overlaid_catalog.catalog.instance_types("default", "default")
        if instance_type.name == name
    ]


def bought(node: NewNode, *overlays: NodeOverlay) -> set[tuple[str, str, str]]:
    return launchable(node, made_of(*overlays).catalog.instance_types("default", "default"))


def the_node(plan: Plan) -> NewNode:
    (node,) = plan.new_nodes
    return node


class TestWhatAnOverlayMakesOfAType:
    def test_one_entry_for_each_amount_each_with_its_own_offerings(self) -> None:
        plain, fused = named(made_of(overlay(zone_is("z1"))), "small")
        assert (plain.allocatable.get(FUSE), fused.allocatable[FUSE]) == (None, 3)
        assert {offering.zone for offering in plain.offerings} == {"z2", "z3"}
        assert {offering.zone for offering in fused.offerings} == {"z1"}
        assert sorted((*plain.offerings, *fused.offerings), key=str) == sorted(SMALL.offerings, key=str)

    def test_an_entry_says_where_it_is_sold(self) -> None:
        plain, fused = named(made_of(overlay(zone_is("z1"), SPOT)), "small")
        assert fused.requirements.get(labels.ZONE).values == {"z1"}
        assert fused.requirements.get(labels.CAPACITY_TYPE).values == {labels.SPOT}
        assert plain.requirements.get(labels.ZONE).values == set(ZONES)

    def test_all_offerings_alike_leave_one_entry(self) -> None:
        (only,) = named(made_of(overlay(type_is("small"))), "small")
        assert only.offerings == SMALL.offerings
        assert only.requirements == SMALL.requirements

    def test_overlays_of_one_weight_do_not_conflict_over_different_offerings(self) -> None:
        overlays = (overlay(zone_is("z1"), name="a"), overlay(zone_is("z2"), name="b", capacity={FUSE: 7}))
        assert {overlay_status.reason for overlay_status in made_of(*overlays).statuses} == {""}
        assert sorted(instance_type.capacity.get(FUSE, 0) for instance_type in named(made_of(*overlays), "small")) == [
            0,
            3,
            7,
        ]

    def test_overlays_of_one_weight_conflict_over_one_offering(self) -> None:
        overlays = (overlay(zone_is("z1", "z2"), name="a"), overlay(zone_is("z2"), name="b"))
        assert {overlay_status.name: overlay_status.reason for overlay_status in made_of(*overlays).statuses} == {
            "a": "Conflict",
            "b": "",
        }
        assert {offering.zone for offering in named(made_of(*overlays), "small")[1].offerings} == {"z2"}

    def test_the_heavier_one_wins_where_both_count(self) -> None:
        overlays = (overlay(zone_is("z1"), name="a", weight=9, capacity={FUSE: 9}), overlay(name="b"))
        assert {instance_type.capacity[FUSE] for instance_type in named(made_of(*overlays), "small")} == {3, 9}

    def test_a_reservation_may_have_what_nothing_else_has(self) -> None:
        types = (_reserving(SMALL, "cr-1", "cr-2"),)
        only = NodeSelectorRequirement(labels.RESERVATION_ID, "In", ("cr-2",))
        plain, fused = named(made_of(overlay(only), types=types), "small")
        assert [offering.requirements.get(labels.RESERVATION_ID).sole_value for offering in fused.offerings] == ["cr-2"]
        assert len(plain.offerings) == len(types[0].offerings) - 1


def _reserving(type_: InstanceType, *reservations: str) -> InstanceType:
    requirements = ((name, Requirement(labels.RESERVATION_ID, False, frozenset((name,)))) for name in reservations)
    offering = msgspec.structs.replace(
        type_.offerings[0], capacity_type=labels.RESERVED, price_picousd_per_hour=1, reservation_capacity=5
    )
    taken = (
        msgspec.structs.replace(offering, requirements=Requirements({labels.RESERVATION_ID: requirement}))
        for _, requirement in requirements
    )
    return msgspec.structs.replace(type_, offerings=(*type_.offerings, *taken))


class TestAPodThatNeedsIt:
    def test_goes_where_the_overlay_counts(self) -> None:
        node = the_node(planned(asking(), nodeoverlays=(overlay(zone_is("z2")),)))
        assert node.zones == ("z2",)
        assert zone_is("z2") in node.requirements
        assert node.capacity_overlay_applied
        assert {zone for _, zone, _ in bought(node, overlay(zone_is("z2")))} == {"z2"}

    def test_goes_by_the_capacity_type_where_the_overlay_counts(self) -> None:
        stated = overlay(NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,)))
        node = the_node(planned(asking(), nodeoverlays=(stated,)))
        assert node.capacity_type == labels.ON_DEMAND
        assert {kind for _, _, kind in bought(node, stated)} == {labels.ON_DEMAND}

    def test_is_refused_in_another_zone(self) -> None:
        plan = planned(asking(node_selector={labels.ZONE: "z1"}), nodeoverlays=(overlay(zone_is("z2")),))
        assert why(plan)["default/p"].endswith(
            "it asks for example.com/fuse 1, none of 4 instance types has any; small has room for it as spot in z2"
        )

    def test_gets_another_type_where_the_right_one_is_in_the_wrong_zone(self) -> None:
        stated = (overlay(zone_is("z2"), type_is("small")), overlay(zone_is("z1"), type_is("large"), name="other"))
        node = the_node(planned(asking(node_selector={labels.ZONE: "z1"}), nodeoverlays=stated))
        assert node.instance_types == ("large",)

    def test_gets_a_type_of_which_nothing_else_is_available(self) -> None:
        offerings = tuple(
            msgspec.structs.replace(offering, available=offering.zone == "z3") for offering in SMALL.offerings
        )
        types = (msgspec.structs.replace(SMALL, offerings=offerings),)
        for waiting_pod in (asking(), pod()):
            node = the_node(planned(waiting_pod, types=types, nodeoverlays=(overlay(zone_is("z3")),)))
            assert (node.instance_types, node.zones) == (("small",), ("z3",))

    def test_is_refused_where_all_that_has_it_is_sold_out(self) -> None:
        offerings = tuple(
            msgspec.structs.replace(offering, available=offering.zone != "z3") for offering in SMALL.offerings
        )
        types = (msgspec.structs.replace(SMALL, offerings=offerings),)
        assert planned(asking(), types=types, nodeoverlays=(overlay(zone_is("z3")),)).unschedulable_pods

    def test_shares_its_node_with_others_up_to_what_is_there(self) -> None:
        asking_pods = tuple(asking(f"p-{number}") for number in range(4))
        plan = planned(*asking_pods, *pods(3, "other"), nodeoverlays=(overlay(zone_is("z1")),))
        assert sum(len(new_node.pods) for new_node in plan.new_nodes) == 7
        for node in plan.new_nodes:
            assert len([key for key in node.pods if key.startswith("default/p-")]) <= 3

    def test_may_have_its_reservation(self) -> None:
        types = (_reserving(SMALL, "cr-1", "cr-2"),)
        stated = overlay(NodeSelectorRequirement(labels.RESERVATION_ID, "In", ("cr-2",)))
        node = the_node(planned(asking(), types=types, nodeoverlays=(stated,)))
        assert NodeSelectorRequirement(labels.RESERVATION_ID, "In", ("cr-2",)) in node.requirements


class TestAPodThatDoesNotNeedIt:
    def test_may_go_anywhere(self) -> None:
        node = the_node(planned(pod(), nodeoverlays=(overlay(zone_is("z2")),)))
        assert node.zones == ZONES
        assert labels.ZONE not in {expression.key for expression in node.requirements}
        assert {zone for _, zone, _ in bought(node, overlay(zone_is("z2")))} == set(ZONES)

    def test_keeps_off_the_memory_that_huge_pages_take(self) -> None:
        """3 GiB fit on a small node of 4 GiB where no huge pages take 2 GiB of them, on a medium one anywhere."""
        huge = overlay(zone_is("z2"), type_is("small"), capacity={HUGE: 2 * GIB})
        node = the_node(planned(pod(memory="3Gi"), nodeoverlays=(huge,)))
        assert set(node.instance_types) >= {"small", "medium"}
        sold = bought(node, huge)
        assert {zone for name, zone, _ in sold if name == "small"} == {"z1", "z3"}
        assert {zone for name, zone, _ in sold if name == "medium"} == set(ZONES)

    def test_every_type_is_listed_and_counted_once(self) -> None:
        node = the_node(planned(pod(), nodeoverlays=(overlay(zone_is("z2")),)))
        assert node.instance_types == ("small", "medium", "fat", "large")
        assert "cheapest of 4 types" in node.reason

    def test_of_a_hundred_types_all_offerings_remain(self) -> None:
        """More types cannot be named; that the overlay divides them leaves none of them less to be bought as."""
        types = tuple(instance(f"t-{number:03d}", 2, 4, 0.10 + number / 1000, spot=0.01) for number in range(120))
        dear = overlay(NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,)))
        node = the_node(planned(pod(), types=types, nodeoverlays=(dear,)))
        assert len(node.instance_types) == 100
        kinds = {expression.key: expression.values for expression in node.requirements}[labels.CAPACITY_TYPE]
        assert set(kinds) == {labels.SPOT, labels.ON_DEMAND}

    def test_min_values_count_a_type_once(self) -> None:
        five = pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 5))
        plan = planned(pod(), pools=(five,), nodeoverlays=(overlay(zone_is("z2")),))
        assert "minValues asks for 5 different values" in why(plan)["default/p"]


class TestWhatAClaimCannotSay:
    """A NodeClaim names types, zones and capacity types: it is made so that all it allows was meant."""

    def test_limits_hold_whichever_offering_is_launched(self) -> None:
        """With a limit of two, no node of three; a type that has three in a zone is not bought there for others."""
        stated = overlay(zone_is("z2"), type_is("small", "fat"))
        none = pool(limits={"cpu": "1000", FUSE: "2"})
        for new_node in planned(*pods(3, cpu="1500m"), pools=(none,), nodeoverlays=(stated,)).new_nodes:
            assert not {(name, zone) for name, zone, _ in bought(new_node, stated)} & {("small", "z2"), ("fat", "z2")}

    @pytest.mark.parametrize(
        ("where", "zones", "kinds"),
        [
            ((zone_is("z2"),), {"z1", "z3"}, {labels.SPOT, labels.ON_DEMAND}),
            (
                (NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,)),),
                {"z1", "z2", "z3"},
                {labels.SPOT},
            ),
            ((zone_is("z1", "z2"), SPOT), {"z3"}, {labels.SPOT, labels.ON_DEMAND}),
        ],
    )
    def test_as_little_is_given_up_for_it_as_possible(
        self, where: tuple[NodeSelectorRequirement, ...], zones: set[str], kinds: set[str]
    ) -> None:
        """No type is bought where the cheapest has more than the limit, and all of them elsewhere."""
        stated, none = overlay(type_is("small"), *where), pool(limits={FUSE: "2"})
        node = the_node(planned(pod(), pools=(none,), nodeoverlays=(stated,)))
        sold = bought(node, stated)
        assert node.instance_types[0] == "small"
        assert {zone for _, zone, _ in sold} == zones
        assert {kind for _, _, kind in sold} == kinds

    @pytest.mark.parametrize("memory", ["1536Mi", "2560Mi"])
    def test_daemons_have_room_whichever_offering_is_launched(self, memory: str) -> None:
        """They run on the small type alone, of whose memory 2 GiB are left in z2: too little with the pod, or ever."""
        huge = overlay(zone_is("z2"), type_is("small"), capacity={HUGE: 2 * GIB})
        agent = daemonset("agent", memory=memory, node_selector={labels.INSTANCE_TYPE: "small"})
        node = the_node(planned(pod(memory="1Gi"), daemonsets=(agent,), nodeoverlays=(huge,)))
        sold = bought(node, huge)
        assert sold
        assert ("small", "z2") not in {(name, zone) for name, zone, _ in sold}

    def test_a_daemon_of_a_zone_takes_no_room_elsewhere(self) -> None:
        stated = overlay(zone_is("z2"), type_is("small"))
        local = daemonset("local", cpu="1500m", node_selector={labels.ZONE: "z2"})
        node = the_node(planned(asking(cpu="300m"), daemonsets=(local,), nodeoverlays=(stated,), types=(SMALL,)))
        assert node.zones == ("z2",)
        assert planned(
            asking(cpu="600m"), daemonsets=(local,), nodeoverlays=(stated,), types=(SMALL,)
        ).unschedulable_pods


class TestNodesOnTheirWay:
    def in_flight(
        self, *requirements: NodeSelectorRequirement, requests: dict[str, int] | None = None
    ) -> InFlightNodeClaim:
        claim = NodeClaim(
            ObjectMeta("coming", labels={labels.NODEPOOL: "default"}),
            NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
            requirements=(type_is("small"), *requirements),
            requests=requests or {},
        )
        return InFlightNodeClaim(nodeclaim=claim, instance_types=("small",))

    @pytest.mark.parametrize(
        ("coming", "seated"),
        [
            ({"requirements": (zone_is("z2"),)}, True),
            ({"requirements": (zone_is("z1"),)}, False),
            ({"requirements": ()}, False),
            ({"requirements": (), "requests": {FUSE: 1}}, True),
        ],
        ids=["there", "elsewhere", "anywhere", "bought-for-it"],
    )
    def test_have_what_all_they_may_become_has(self, coming: dict[str, Any], seated: bool) -> None:
        entry = self.in_flight(*coming["requirements"], requests=coming.get("requests"))
        plan = planned(asking(), in_flight=(entry,), nodeoverlays=(overlay(zone_is("z2"), type_is("small")),))
        assert bool(plan.existing_nodes) is seated

    def test_a_decided_node_is_there_for_the_pods_of_the_next_plan(self) -> None:
        stated = overlay(zone_is("z2"), type_is("small", "medium"))
        first = the_node(planned(asking(), nodeoverlays=(stated,)))
        again = planned(asking(), nodeoverlays=(stated,), in_flight=(to_in_flight_nodeclaim(first, "claim"),))
        assert [assignment.name for assignment in again.existing_nodes] == ["claim"]

    def test_a_claim_learns_what_its_offering_has(self) -> None:
        sold = made_of(overlay(zone_is("z2"), SPOT)).catalog.instance_types("default", "default")
        entries = {
            (zone, kind): find_instance_type(sold, "small", zone=zone, capacity_type=kind)
            for zone in ZONES
            for kind in (labels.SPOT, labels.ON_DEMAND)
        }
        assert {
            place
            for place, instance_type in entries.items()
            if instance_type is not None and FUSE in instance_type.allocatable
        } == {("z2", labels.SPOT)}
        assert find_instance_type(sold, "unheard-of", zone="z2", capacity_type=labels.SPOT) is None

    def test_a_claim_learns_what_its_reservation_has(self) -> None:
        types = (_reserving(SMALL, "cr-1", "cr-2"),)
        sold = made_of(
            overlay(NodeSelectorRequirement(labels.RESERVATION_ID, "In", ("cr-2",))), types=types
        ).catalog.instance_types("", "default")
        instance_types = [
            find_instance_type(sold, "small", zone="z1", capacity_type=labels.RESERVED, reservation=name)
            for name in ("cr-1", "cr-2")
        ]
        assert [
            instance_type is not None and FUSE in instance_type.allocatable for instance_type in instance_types
        ] == [False, True]


class TestElsewhere:
    def test_a_static_pool_lists_each_type_once(self) -> None:
        planned_snapshot = snapshot(
            pools=(pool(replicas=1),),
            nodeoverlays=(overlay(zone_is("z2")),),
            settings=Settings(feature_gates=(STATIC_CAPACITY, "NodeOverlay")),
        )
        node = the_node(planner.plan(planned_snapshot, Catalog({"": TYPES})))
        assert node.instance_types == ("small", "medium", "fat", "large")

    def test_a_static_pool_s_nodes_hold_what_every_offering_has(self) -> None:
        planned_snapshot = snapshot(
            asking(),
            pools=(pool(replicas=1),),
            nodeoverlays=(overlay(zone_is("z2")),),
            settings=Settings(feature_gates=(STATIC_CAPACITY, "NodeOverlay")),
        )
        assert planner.plan(planned_snapshot, Catalog({"": TYPES})).unschedulable_pods

    def test_the_zone_cap_pins_a_node_to_what_has_room(self) -> None:
        """In z2 the small type is short of memory, so a node pinned there is of another type."""
        huge = overlay(zone_is("z2"), type_is("small"), capacity={HUGE: 2 * GIB})
        apart = pods(
            3,
            memory="3Gi",
            labels={"app": "a"},
            pod_anti_affinity=(PodAffinityTerm(labels.HOSTNAME, APP, ("default",)),),
        )
        plan = planned(*apart, nodeoverlays=(huge,), settings=Settings(largest_zone_share=34))
        assert {new_node.zones for new_node in plan.new_nodes} == {("z1",), ("z2",), ("z3",)}
        assert {new_node.instance_types[0] for new_node in plan.new_nodes if new_node.zones != ("z2",)} == {"small"}
        assert not [
            new_node for new_node in plan.new_nodes if new_node.zones == ("z2",) and "small" in new_node.instance_types
        ]

    def test_a_cheaper_type_elsewhere_makes_a_larger_one_here_no_dearer(self) -> None:
        types = (SMALL, instance("fused", 2, 4, 0.06, spot=0.03))
        node = the_node(planned(asking(), types=types, nodeoverlays=(overlay(zone_is("z2"), type_is("small")),)))
        assert node.instance_types == ("small",)
        node = the_node(planned(pod(), types=types, nodeoverlays=(overlay(zone_is("z2"), type_is("small")),)))
        assert node.instance_types[0] == "fused"


def test_a_claim_without_its_launch_row_is_launched_as_it_was_decided() -> None:
    about = ObjectMeta("lost", annotations={labels.CAPACITY_OVERLAY_APPLIED: "true"})
    claim = NodeClaim(about, NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"), requests={FUSE: 1})
    node = to_new_node(claim, ["small"])
    assert (node.capacity_overlay_applied, node.price_overlay_applied) == (True, False)
