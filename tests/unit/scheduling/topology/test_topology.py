"""Pods that have rules about each other."""

from collections import Counter

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import (
    HostPort,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from spotwright.model.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings
from spotwright.scheduling.plan import Plan
from tests.unit.scheduling.builders import (
    SMALL,
    daemonset,
    instance,
    node,
    planned,
    pod,
    pods,
    pool,
    why,
    zone_is,
)

WEB = (NodeSelectorRequirement("app", "In", ("web",)),)
IN_ZONE = PodAffinityTerm(labels.ZONE, WEB, ("default",))
ON_HOST = PodAffinityTerm(labels.HOSTNAME, WEB, ("default",))


def zones(plan: Plan) -> Counter[str]:
    """New pods per zone; every node must be in one."""
    counts: Counter[str] = Counter()
    for new_node in plan.new_nodes:
        (zone,) = new_node.zones
        counts[zone] += len(new_node.pods)
    return counts


class TestSpread:
    def test_zones_end_within_the_skew(self) -> None:
        plan = planned(
            *pods(
                7,
                cpu=1,
                labels={"app": "web"},
                topology_spread_constraints=(TopologySpreadConstraint(labels.ZONE, 1, WEB),),
            )
        )
        assert sorted(zones(plan).values()) == [2, 2, 3]

    def test_running_pods_count(self) -> None:
        old = pod("old", labels={"app": "web"}, node_name="n1", phase="Running")
        spread = (TopologySpreadConstraint(labels.ZONE, 1, WEB),)
        full = node("n1", cpu="100m")
        plan = planned(old, *pods(2, cpu=1, labels={"app": "web"}, topology_spread_constraints=spread), nodes=(full,))
        assert zones(plan) == {"z2": 1, "z3": 1}

    def test_a_zone_the_pod_may_not_use_does_not_hold_it_back(self) -> None:
        waiting = pods(
            4,
            cpu=1,
            labels={"app": "web"},
            topology_spread_constraints=(TopologySpreadConstraint(labels.ZONE, 1, WEB),),
            node_affinity=((zone_is("z1"),),),
        )
        assert zones(planned(*waiting)) == {"z1": 4}

    def test_hosts_hold_no_more_than_the_skew(self) -> None:
        plan = planned(
            *pods(
                5,
                labels={"app": "web"},
                topology_spread_constraints=(TopologySpreadConstraint(labels.HOSTNAME, 2, WEB),),
            )
        )
        assert sorted(len(new_node.pods) for new_node in plan.new_nodes) == [1, 2, 2]

    def test_too_few_domains_let_every_domain_hold_only_the_skew(self) -> None:
        spread = (TopologySpreadConstraint(labels.ZONE, 1, WEB, min_domains=5),)
        plan = planned(*pods(5, cpu=1, labels={"app": "web"}, topology_spread_constraints=spread))
        assert (sorted(zones(plan).values()), len(plan.unschedulable_pods)) == ([1, 1, 1], 2)

    def test_a_soft_spread_gives_way(self) -> None:
        soft = (TopologySpreadConstraint(labels.ZONE, 1, WEB, do_not_schedule=False),)
        plan = planned(
            *pods(4, labels={"app": "web"}, topology_spread_constraints=soft), pools=[pool("default", zone_is("z1"))]
        )
        assert plan.unschedulable_pods == ()

    def test_an_unknown_label_has_no_domain(self) -> None:
        plan = planned(
            pod(labels={"app": "web"}, topology_spread_constraints=(TopologySpreadConstraint("rack", 1, WEB),))
        )
        assert "rack" in why(plan)["default/p"]


class TestHostPorts:
    def test_a_daemon_that_is_still_to_come_holds_no_port_of_a_node_there_is(self) -> None:
        port = (HostPort(9100),)
        agents = (daemonset(host_ports=port),)
        plan = planned(pod(host_ports=port), nodes=(node("n1"),), daemonsets=agents)
        assert [assignment.name for assignment in plan.existing_nodes] == ["n1"]


class TestAffinity:
    def test_pods_that_want_each_other_found_one_zone(self) -> None:
        plan = planned(*pods(6, cpu=3, memory="6Gi", labels={"app": "web"}, pod_affinity=(IN_ZONE,)))
        assert len(zones(plan)) == 1

    def test_a_pod_follows_those_it_wants(self) -> None:
        target = pod("web", cpu=1, labels={"app": "web"}, node_selector={labels.ZONE: "z2"})
        plan = planned(pod("client", cpu=7, pod_affinity=(IN_ZONE,)), target)
        assert zones(plan) == {"z2": 2}

    def test_pods_that_others_want_near_go_to_the_heaviest_pool(self) -> None:
        pools = [pool("any"), pool("heavy", zone_is("z2", "z3"), weight=9)]
        plan = planned(pod("web", labels={"app": "web"}), pod("client", pod_affinity=(IN_ZONE,)), pools=pools)
        assert {new_node.nodepool for new_node in plan.new_nodes} == {"heavy"}

    def test_without_them_it_stays(self) -> None:
        assert "pod affinity" in why(planned(pod(pod_affinity=(IN_ZONE,))))["default/p"]

    def test_there_are_hosts_enough_for_those_who_want_one_each(self) -> None:
        targets = pods(
            5,
            "web",
            labels={"app": "web"},
            topology_spread_constraints=(TopologySpreadConstraint(labels.ZONE, 1, WEB),),
        )
        selector = (NodeSelectorRequirement("app", "In", ("client",)),)
        alone = TopologySpreadConstraint(labels.HOSTNAME, 1, selector)
        clients = pods(
            5, "client", cpu=1, labels={"app": "client"}, pod_affinity=(ON_HOST,), topology_spread_constraints=(alone,)
        )
        plan = planned(*targets, *clients)
        assert plan.unschedulable_pods == ()
        assert [sum("client" in key for key in new_node.pods) for new_node in plan.new_nodes] == [1] * 5

    def test_those_that_avoid_each_other_are_parted(self) -> None:
        plan = planned(*pods(4, labels={"app": "web"}, pod_anti_affinity=(ON_HOST,)))
        assert [len(new_node.pods) for new_node in plan.new_nodes] == [1, 1, 1, 1]
        plan = planned(*pods(4, labels={"app": "web"}, pod_anti_affinity=(IN_ZONE,)))
        assert (sorted(zones(plan).values()), len(plan.unschedulable_pods)) == ([1, 1, 1], 1)

    def test_a_running_pod_keeps_those_away_that_it_avoids(self) -> None:
        guard = pod("guard", node_name="n1", phase="Running", pod_anti_affinity=(IN_ZONE,))
        plan = planned(guard, pod("web", labels={"app": "web"}), nodes=(node("n1"),))
        assert plan.existing_nodes == ()
        assert "z1" not in plan.new_nodes[0].zones

    def test_another_namespace_is_another_circle(self) -> None:
        other_pod_affinity_term = PodAffinityTerm(labels.HOSTNAME, WEB, ("other",))
        plan = planned(*pods(3, labels={"app": "web"}, pod_anti_affinity=(other_pod_affinity_term,)))
        assert len(plan.new_nodes) == 1

    def test_a_wish_for_company_is_given_up(self) -> None:
        assert planned(pod(preferred_pod_affinity=(WeightedPodAffinityTerm(50, IN_ZONE),))).unschedulable_pods == ()

    def test_a_wish_to_be_alone_is_kept_where_it_costs_no_pod_its_place(self) -> None:
        plan = planned(
            *pods(2, labels={"app": "web"}, preferred_pod_anti_affinity=(WeightedPodAffinityTerm(1, ON_HOST),))
        )
        assert len(plan.new_nodes) == 2

    def test_a_namespace_selector_needs_to_know_the_namespaces(self) -> None:
        chosen = PodAffinityTerm(labels.HOSTNAME, WEB, (), (NodeSelectorRequirement("team", "In", ("a",)),))
        assert "namespaceSelector" in why(planned(pod(pod_anti_affinity=(chosen,))))["default/p"]
        assert planned(pod(pod_anti_affinity=(chosen,)), namespaces={"default": {"team": "a"}}).unschedulable_pods == ()


class TestPorts:
    def test_a_port_is_bound_once_per_node(self) -> None:
        plan = planned(*pods(3, host_ports=(HostPort(80),)))
        assert [len(new_node.pods) for new_node in plan.new_nodes] == [1, 1, 1]

    def test_a_bound_port_keeps_others_off_a_node(self) -> None:
        holder = pod("old", node_name="n1", phase="Running", host_ports=(HostPort(80),))
        assert planned(holder, pod(host_ports=(HostPort(80),)), nodes=(node("n1"),)).existing_nodes == ()

    def test_pods_without_rules_fill_the_rest_of_the_node(self) -> None:
        plan = planned(pod("port", host_ports=(HostPort(80),)), *pods(3, "plain"), types=[SMALL])
        assert [len(new_node.pods) for new_node in plan.new_nodes] == [4]

    def test_a_pod_that_gave_up_a_preference_keeps_off_a_port_that_is_bound(self) -> None:
        web, port = pod("web", cpu="1", labels={"app": "web"}), (HostPort(80),)
        apart = (WeightedPodAffinityTerm(1, ON_HOST),)
        late = pod("late", "50m", host_ports=port, pod_affinity=(ON_HOST,), preferred_pod_anti_affinity=apart)
        plan = planned(web, pod("early", host_ports=port), late)
        assert not any({"default/early", "default/late"} <= set(new_node.pods) for new_node in plan.new_nodes)
        assert plan.unschedulable_pods == ()


class TestVolumes:
    CLASS = StorageClass(ObjectMeta("gp3"), "ebs.csi.aws.com", waits_for_first_consumer=True)
    CLAIM = PersistentVolumeClaim(ObjectMeta("data", "default"), storage_class_name="gp3")
    BOUND = PersistentVolumeClaim(ObjectMeta("data", "default"), volume_name="pv", bind_completed=True)

    def test_a_bound_volume_pins_the_zone(self) -> None:
        volume = PersistentVolume(ObjectMeta("pv"), ((zone_is("z3"),),), "ebs.csi.aws.com")
        storage = Storage((self.BOUND,), (volume,))
        (new_node,) = planned(pod(volume_claim_names=("data",)), storage=storage).new_nodes
        assert new_node.zones == ("z3",)

    def test_the_topologies_of_a_storage_class_are_alternatives(self) -> None:
        chosen = StorageClass(ObjectMeta("gp3"), "ebs.csi.aws.com", True, ((zone_is("nowhere"),), (zone_is("z2"),)))
        storage = Storage((self.CLAIM,), storage_classes=(chosen,))
        (new_node,) = planned(pod(volume_claim_names=("data",)), storage=storage).new_nodes
        assert new_node.zones == ("z2",)

    @pytest.mark.parametrize(
        ("storage", "reason"),
        [
            (Storage(), "does not exist"),
            (Storage((CLAIM,)), "StorageClass gp3 does not exist"),
            (Storage((CLAIM,), storage_classes=(StorageClass(ObjectMeta("gp3")),)), "waits for StorageClass gp3"),
            (Storage((BOUND,)), "missing"),
        ],
    )
    def test_a_claim_that_nothing_can_satisfy_is_named(self, storage: Storage, reason: str) -> None:
        assert reason in why(planned(pod(volume_claim_names=("data",)), storage=storage))["default/p"]

    def test_a_node_takes_no_more_volumes_than_it_can_attach(self) -> None:
        claims = tuple(
            PersistentVolumeClaim(ObjectMeta(f"d{n}", "default"), storage_class_name="gp3") for n in range(3)
        )
        limit = CSINode(ObjectMeta("n1"), {"ebs.csi.aws.com": 2})
        storage = Storage(claims, storage_classes=(self.CLASS,), csi_nodes=(limit,))
        waiting = [pod(f"p{n}", volume_claim_names=(f"d{n}",)) for n in range(3)]
        plan = planned(*waiting, storage=storage, nodes=(node("n1"),))
        assert [len(assignment.pods) for assignment in plan.existing_nodes] == [2]
        assert len(plan.new_nodes) == 1

    def test_a_volume_that_a_running_pod_shares_is_attached_already(self) -> None:
        limit = CSINode(ObjectMeta("n1"), {"ebs.csi.aws.com": 1})
        storage = Storage((self.CLAIM,), storage_classes=(self.CLASS,), csi_nodes=(limit,))
        there = pod("there", volume_claim_names=("data",), node_name="n1")
        plan = planned(there, pod("joins", volume_claim_names=("data",)), storage=storage, nodes=(node("n1"),))
        assert [assignment.pods for assignment in plan.existing_nodes] == [("default/joins",)]

    @staticmethod
    def limited(volumes: int) -> InstanceType:
        return msgspec.structs.replace(instance("big", 64, 256, 1.0), attachable_volumes={"ebs.csi.aws.com": volumes})

    def waiting(self, count: int, claims_per_pod: int = 1) -> tuple[Storage, list[Pod]]:
        names = [[f"d{n}-{place}" for place in range(claims_per_pod)] for n in range(count)]
        claims = tuple(
            PersistentVolumeClaim(ObjectMeta(claim_name, "default"), storage_class_name="gp3")
            for name in names
            for claim_name in name
        )
        return Storage(claims, storage_classes=(self.CLASS,)), [
            pod(f"p{n}", volume_claim_names=tuple(names[n])) for n in range(count)
        ]

    def test_a_new_node_takes_no_more_volumes_than_its_type_can_attach(self) -> None:
        storage, waiting = self.waiting(7)
        plan = planned(*waiting, storage=storage, types=[self.limited(3)])
        assert sorted(len(new_node.pods) for new_node in plan.new_nodes) == [1, 3, 3]
        assert all(not name.startswith("attachable") for new_node in plan.new_nodes for name in new_node.requests)

    def test_pods_without_volumes_join_a_node_full_of_them(self) -> None:
        storage, waiting = self.waiting(3)
        plan = planned(*waiting, *pods(5, "free"), storage=storage, types=[self.limited(3)])
        assert [len(new_node.pods) for new_node in plan.new_nodes] == [8]

    def test_a_pod_with_more_volumes_than_any_type_can_attach_is_told_so(self) -> None:
        storage, waiting = self.waiting(1, claims_per_pod=4)
        (reason,) = why(planned(*waiting, storage=storage, types=[self.limited(3)])).values()
        assert "it attaches 4 volumes through ebs.csi.aws.com, the most is 3 on big" in reason

    def test_a_driver_that_no_type_limits_is_not_counted(self) -> None:
        storage, waiting = self.waiting(7)
        other_instance_type = msgspec.structs.replace(self.limited(3), attachable_volumes={"other.csi.example": 1})
        assert len(planned(*waiting, storage=storage, types=[other_instance_type]).new_nodes) == 1

    def test_a_volume_that_pods_share_takes_no_place_of_its_own(self) -> None:
        storage, _ = self.waiting(1)
        sharing = [pod(f"s{n}", volume_claim_names=("d0-0",)) for n in range(7)]
        assert len(planned(*sharing, storage=storage, types=[self.limited(3)]).new_nodes) == 1

    def test_a_claim_in_flight_takes_what_its_type_can_attach(self) -> None:
        storage, waiting = self.waiting(5)
        claim = NodeClaim(
            ObjectMeta("c1", labels={labels.NODEPOOL: "default"}),
            NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
            requirements=(NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("big",)), zone_is("z1")),
        )
        plan = planned(*waiting, storage=storage, types=[self.limited(3)], nodeclaims=(claim,))
        assert [len(assignment.pods) for assignment in plan.existing_nodes] == [3]
        assert [len(new_node.pods) for new_node in plan.new_nodes] == [2]


class TestMinValues:
    FAMILY = "family"

    def test_enough_kinds_stay_on_a_node(self) -> None:
        kinds = [
            instance(f"{letter}-{cpu}", cpu, 4 * cpu, cpu / 10, labels={"family": letter})
            for cpu in (1, 4)
            for letter in "ab"
        ]
        kinds = [instance_type for instance_type in kinds if instance_type.name != "b-4"]
        plan = planned(
            *pods(2, cpu="900m"),
            types=kinds,
            pools=[pool("default", NodeSelectorRequirement("family", "Exists", (), 2))],
        )
        assert all({name[0] for name in new_node.instance_types} == {"a", "b"} for new_node in plan.new_nodes)
        assert len(plan.new_nodes) == 2

    def test_too_few_kinds_are_a_reason(self) -> None:
        plan = planned(pod(), pools=[pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 9))])
        assert "minValues asks for 9" in why(plan)["default/p"]


class TestPatience:
    def test_a_pod_that_waits_for_another_is_tried_again_when_that_one_gives_in(self) -> None:
        wishes = ((1, (zone_is("nowhere"),)),)
        target = pod("web", cpu=1, labels={"app": "web"}, preferred_node_affinity=wishes)
        plan = planned(target, pod("client", pod_affinity=(IN_ZONE,)))
        assert plan.unschedulable_pods == ()

    def test_pods_that_give_in_use_what_was_bought_before(self) -> None:
        wishes = ((1, (zone_is("nowhere"),)),)
        plan = planned(pod("first", cpu=1), pod("late", cpu="500m", preferred_node_affinity=wishes), types=[SMALL])
        assert len(plan.new_nodes) == 1

    def test_preferences_can_be_ignored(self) -> None:
        wishes = ((1, (zone_is("z2"),)),)
        ignoring = Settings(preference_policy="Ignore")
        (new_node,) = planned(pod(preferred_node_affinity=wishes), settings=ignoring).new_nodes
        assert len(new_node.zones) == 3


def test_domains_are_kept_one_by_one_where_limits_leave_no_other_way() -> None:
    spread = (TopologySpreadConstraint(labels.ZONE, 1, WEB),)
    waiting = pods(6, cpu=7, labels={"app": "web"}, topology_spread_constraints=spread)
    plan = planned(*waiting, pools=[pool(limits={"cpu": "32"})])
    assert sorted(zones(plan).values()) == [1, 1, 2]
    assert len(plan.unschedulable_pods) == 2


class TestExchange:
    """Pods of a spread go where they save a node, as far as the skew allows it."""

    IN_Z2 = pods(70, "pinned", cpu="20m", memory="32Mi", node_selector={labels.ZONE: "z2"})

    @staticmethod
    def zones_of(plan: Plan, name: str) -> Counter[str]:
        """How many pods of this name each zone has; nodes whose zone is open do not count."""
        return Counter(
            node.zones[0] for node in plan.new_nodes for key in node.pods if name in key and len(node.zones) == 1
        )

    @staticmethod
    def web(count: int, *spreads: TopologySpreadConstraint, name: str = "web") -> tuple[Pod, ...]:
        return pods(count, name, cpu="20m", memory="32Mi", labels={"app": "web"}, topology_spread_constraints=spreads)

    def test_a_single_pod_goes_to_the_zone_that_needs_a_node_anyway(self) -> None:
        plan = planned(*self.IN_Z2, *self.web(1, TopologySpreadConstraint(labels.ZONE, 1, WEB)))
        assert (len(plan.new_nodes), self.zones_of(plan, "web")) == (1, Counter(z2=1))

    @pytest.mark.parametrize(("count", "skew"), [(2, 1), (4, 1), (4, 3), (7, 2)])
    def test_the_skew_is_kept(self, count: int, skew: int) -> None:
        plan = planned(*self.IN_Z2, *self.web(count, TopologySpreadConstraint(labels.ZONE, skew, WEB)))
        counts = self.zones_of(plan, "web")
        assert counts.total() == count
        assert max(counts.values()) - min(counts[zone] for zone in ("z1", "z2", "z3")) <= skew

    def test_pods_near_which_others_must_be_keep_their_zone(self) -> None:
        spread = TopologySpreadConstraint(labels.ZONE, 1, WEB)
        near = pod("near", cpu="20m", memory="32Mi", pod_affinity=(IN_ZONE,))
        plan = planned(*self.IN_Z2, *self.web(1, spread), near)
        (zone,) = self.zones_of(plan, "web")
        assert not plan.unschedulable_pods
        assert self.zones_of(plan, "near")[zone] == 1

    def test_two_classes_of_one_spread_keep_its_skew_together(self) -> None:
        spread = TopologySpreadConstraint(labels.ZONE, 1, WEB)
        large = pod("web-large", cpu="30m", memory="64Mi", labels={"app": "web"}, topology_spread_constraints=(spread,))
        plan = planned(*self.IN_Z2, *self.web(1, spread), large)
        assert self.zones_of(plan, "web") == Counter(z1=1, z2=1)
