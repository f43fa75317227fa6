"""What the planner decides for small clusters."""

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements
from spotwright.model.snapshot import InFlightNodeClaim
from tests.unit.scheduling.builders import (
    LARGE,
    MEDIUM,
    NOW,
    SMALL,
    daemonset,
    instance,
    node,
    owned_by,
    planned,
    pod,
    pods,
    pool,
    shown,
    why,
    zone_is,
)

ON_DEMAND = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))
BATCH = Taint("dedicated", "NoSchedule", "batch")


class TestPrice:
    def test_one_node_is_made_where_two_would_cost_the_same(self) -> None:
        assert shown(planned(*pods(4, cpu=1, memory="1Gi"), pools=[pool("default", ON_DEMAND)])) == ["medium x 4"]

    def test_the_shape_follows_the_pods(self) -> None:
        assert shown(planned(*pods(4, cpu="500m", memory="7Gi"), types=[SMALL, MEDIUM, LARGE])) == ["large x 2"] * 2
        assert shown(planned(*pods(4, cpu="500m", memory="7Gi"))) == ["fat x 4"]

    def test_spot_is_taken_where_the_pool_allows_it_and_on_demand_stays_an_alternative(self) -> None:
        (new_node,) = planned(pod()).new_nodes
        assert (new_node.capacity_type, new_node.price_picousd_per_hour) == (labels.SPOT, 40_000_000_000)
        assert any(alternative.capacity_type == labels.ON_DEMAND for alternative in new_node.alternatives)
        kinds = next(expression for expression in new_node.requirements if expression.key == labels.CAPACITY_TYPE)
        assert kinds.values == (labels.ON_DEMAND, labels.SPOT)

    def test_types_are_listed_cheapest_first_and_all_fit(self) -> None:
        (new_node,) = planned(pod(cpu=3), pools=[pool("default", ON_DEMAND)]).new_nodes
        assert new_node.instance_types == ("medium", "fat", "large")

    def test_a_cheaper_larger_type_is_taken(self) -> None:
        sale = instance("sale", 16, 64, 0.05)
        assert shown(planned(pod(cpu=1), types=[SMALL, sale], pools=[pool("default", ON_DEMAND)])) == ["sale x 1"]

    def test_a_pod_gets_no_gpu_it_did_not_ask_for(self) -> None:
        gpu = instance("gpu", 2, 4, 0.01, labels={labels.INSTANCE_PREFIX + "gpu-count": "1"})
        plain = pool("default", ON_DEMAND)
        assert shown(planned(pod(), types=[SMALL, gpu], pools=[plain])) == ["small x 1"]
        assert shown(planned(pod(), types=[gpu], pools=[plain])) == ["gpu x 1"]

    def test_pods_with_a_device_come_onto_nodes_with_it(self) -> None:
        gpu = instance("gpu", 8, 16, 2, capacity={"nvidia.com/gpu": 4})
        wanting = pods(5, "g", cpu=1, memory="1Gi", requests={"nvidia.com/gpu": 1})
        plan = planned(*wanting, *pods(2, "plain", cpu=1), types=[SMALL, gpu], pools=[pool("default", ON_DEMAND)])
        assert [
            len([key for key in new_node.pods if "/g-" in key])
            for new_node in plan.new_nodes
            if "gpu" in new_node.instance_types
        ]
        assert sum(new_node.instance_types[0] == "gpu" for new_node in plan.new_nodes) == 2

    def test_nodes_stay_within_the_usual_size_unless_a_pod_needs_more(self) -> None:
        huge = instance("huge", 192, 384, 8)
        usual = instance("usual", 48, 96, 2)
        plain = pool("default", ON_DEMAND)
        assert shown(planned(*pods(8, cpu=20, memory="1Gi"), types=[usual, huge], pools=[plain])) == ["usual x 2"] * 4
        assert shown(planned(pod(cpu=100), types=[usual, huge], pools=[plain])) == ["huge x 1"]

    def test_a_reason_and_the_binding_resource_are_given(self) -> None:
        (new_node,) = planned(*pods(3, cpu=1, memory="128Mi"), pools=[pool("default", ON_DEMAND)]).new_nodes
        assert new_node.binding_resource == "cpu"
        assert "medium on-demand at $0.2000/h is the cheapest of 3 types with room for 3 pods" in new_node.reason


class TestPlacesThereAre:
    def test_a_node_with_room_is_filled_first(self) -> None:
        plan = planned(*pods(3, cpu=1), nodes=(node("n1"),))
        assert [(assignment.name, len(assignment.pods)) for assignment in plan.existing_nodes] == [("n1", 3)]
        assert plan.new_nodes == ()

    def test_running_pods_and_daemons_to_come_take_room(self) -> None:
        running = pod("old", cpu=2, node_name="n1", phase="Running")
        plan = planned(running, *pods(3, cpu=1), nodes=(node("n1"),), daemonsets=(daemonset(cpu="500m"),))
        assert [len(assignment.pods) for assignment in plan.existing_nodes] == [1]

    def test_a_daemon_that_runs_already_is_counted_once(self) -> None:
        agent = pod(
            "agent-x", cpu=1, namespace="kube-system", node_name="n1", owner_references=owned_by("DaemonSet", "agent")
        )
        plan = planned(agent, pod(cpu=3), nodes=(node("n1"),), daemonsets=(daemonset(cpu=1),))
        assert [assignment.name for assignment in plan.existing_nodes] == ["n1"]

    @pytest.mark.parametrize(
        "standing",
        [
            node("n1", taints=(BATCH,)),
            node("n1", unschedulable=True),
            node("n1", deletion_timestamp=NOW),
            node("n1", cpu="50m"),
            node("n1", labels={labels.ZONE: "z2"}),
        ],
        ids=["tainted", "cordoned", "leaving", "full", "elsewhere"],
    )
    def test_a_node_that_does_not_take_the_pod_is_passed_over(self, standing: object) -> None:
        plan = planned(pod(node_selector={labels.ZONE: "z1"}), nodes=(standing,))
        assert (plan.existing_nodes, len(plan.new_nodes)) == ((), 1)

    def test_what_a_starting_node_loses_by_itself_is_no_obstacle(self) -> None:
        startup = Taint("cilium", "NoSchedule", "wait")
        fresh = node("n1", labels={labels.INITIALIZED: ""}, taints=(Taint(labels.NOT_READY, "NoExecute"), startup))
        plan = planned(pod(), nodes=(fresh,), pools=[pool(startup_taints=(startup,))])
        assert [assignment.name for assignment in plan.existing_nodes] == ["n1"]

    def test_a_claim_in_flight_takes_pods_by_what_its_types_have_in_common(self) -> None:
        claim = claimed("c1", instance_types=("medium", "large"))
        plan = planned(*pods(4, cpu=1, memory="1Gi"), nodeclaims=(claim,))
        assert [(assignment.name, len(assignment.pods)) for assignment in plan.existing_nodes] == [("c1", 4)]
        assert planned(pod(cpu=5), nodeclaims=(claim,)).existing_nodes == ()

    @pytest.mark.parametrize(("tenancy", "joins"), [("default", True), ("dedicated", False)])
    def test_a_claim_in_flight_has_the_tenancy_it_is_launched_with(self, tenancy: str, joins: bool) -> None:
        either = Requirement(labels.TENANCY, False, frozenset(labels.TENANCIES))
        stated = Requirements(dict(MEDIUM.requirements.by_key) | {either.key: either})
        types = [msgspec.structs.replace(MEDIUM, requirements=stated)]
        wanting = pod(node_selector={labels.TENANCY: tenancy})
        plan = planned(wanting, types=types, nodeclaims=(claimed("c1", instance_types=("medium",)),))
        assert not plan.unschedulable_pods
        assert bool(plan.existing_nodes) == joins

    def test_a_claim_in_flight_that_demands_dedicated_hardware_takes_no_other_pod(self) -> None:
        either = Requirement(labels.TENANCY, False, frozenset(labels.TENANCIES))
        stated = Requirements(dict(MEDIUM.requirements.by_key) | {either.key: either})
        types = [msgspec.structs.replace(MEDIUM, requirements=stated)]
        demands = (
            NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("medium",)),
            NodeSelectorRequirement(labels.TENANCY, "In", ("dedicated",)),
        )
        claim = claimed("c1", requirements=demands)
        shared, alone = (pod(node_selector={labels.TENANCY: tenancy}) for tenancy in labels.TENANCIES)
        assert planned(shared, types=types, nodeclaims=(claim,)).existing_nodes == ()
        assert len(planned(alone, types=types, nodeclaims=(claim,)).existing_nodes) == 1

    def test_a_node_that_was_only_decided_counts_too(self) -> None:
        entry = InFlightNodeClaim(claimed("c1"), ("medium",))
        plan = planned(*pods(2, cpu=1), in_flight=(entry,))
        assert [assignment.name for assignment in plan.existing_nodes] == ["c1"]

    def test_planning_again_on_the_decision_buys_nothing(self) -> None:
        waiting = pods(30, cpu="700m", memory="1Gi")
        first = planned(*waiting)
        entries = tuple(
            InFlightNodeClaim(claimed(f"c{number}", requirements=new_node.requirements), new_node.instance_types)
            for number, new_node in enumerate(first.new_nodes)
        )
        again = planned(*waiting, in_flight=entries)
        assert (again.new_nodes, again.unschedulable_pods) == ((), ())

    def test_pods_of_a_leaving_node_look_for_a_new_place(self) -> None:
        leaving = node("n1", deletion_timestamp=NOW)
        stays = pod("daemon", node_name="n1", owner_references=owned_by("DaemonSet"))
        moves = pod("web", node_name="n1", phase="Running", owner_references=owned_by("ReplicaSet"))
        ends = pod("ending", node_name="n1", phase="Running", deletion_timestamp=NOW)
        plan = planned(stays, moves, ends, nodes=(leaving,))
        assert [new_node.pods for new_node in plan.new_nodes] == [("default/web",)]

    def test_a_pod_that_may_never_be_evicted_gets_no_replacement(self) -> None:
        fixed = pod("db", node_name="n1", labels={"app": "db"})
        budget = PodDisruptionBudget(
            ObjectMeta("b", "default"), (NodeSelectorRequirement("app", "In", ("db",)),), max_unavailable=0
        )
        assert (
            planned(fixed, nodes=(node("n1", deletion_timestamp=NOW),), pod_disruption_budgets=(budget,)).new_nodes
            == ()
        )


def claimed(name: str, *, instance_types: tuple[str, ...] = (), **fields: object) -> NodeClaim:
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    if instance_types:
        fields["requirements"] = (NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", instance_types),)
    metadata = ObjectMeta(name, labels={labels.NODEPOOL: "default"})
    return NodeClaim(metadata, reference, **fields)  # type: ignore[arg-type]


class TestPools:
    def test_the_heavier_pool_is_used_while_it_can(self) -> None:
        heavy, light = pool("heavy", ON_DEMAND, weight=10), pool("light")
        assert {new_node.nodepool for new_node in planned(*pods(5, cpu=1), pools=[light, heavy]).new_nodes} == {"heavy"}

    def test_a_pod_of_a_heavier_pool_joins_a_node_that_a_lighter_one_makes_anyway(self) -> None:
        heavy, light = pool("heavy", weight=10, taints=(BATCH,)), pool("light")
        batch = pod("batch", cpu=1, memory="1Gi", tolerations=(Toleration("dedicated", "Exists"),))
        plan = planned(batch, pod("web", cpu=1, memory="1Gi"), pools=[heavy, light])
        assert [(new_node.nodepool, new_node.pods) for new_node in plan.new_nodes] == [
            ("light", ("default/batch", "default/web"))
        ]

    def test_among_equal_weights_the_price_decides(self) -> None:
        dear, cheap = (
            pool("a-dear", ON_DEMAND),
            pool("b-cheap", NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,))),
        )
        assert {new_node.nodepool for new_node in planned(*pods(5, cpu=1), pools=[dear, cheap]).new_nodes} == {
            "b-cheap"
        }

    def test_the_lighter_pool_takes_what_the_limit_of_the_heavier_leaves(self) -> None:
        heavy = pool("heavy", weight=10, limits={"cpu": "4"})
        plan = planned(*pods(8, cpu=1, memory="1Gi"), pools=[heavy, pool("light")])
        assert plan.unschedulable_pods == ()
        assert {new_node.nodepool for new_node in plan.new_nodes} == {"heavy", "light"}

    def test_limits_hold_whichever_type_is_launched(self) -> None:
        plan = planned(*pods(10, cpu=1, memory="1Gi"), pools=[pool(limits={"cpu": "8"})])
        most = {"small": 2, "medium": 4, "large": 8, "fat": 4}
        assert sum(max(most[name] for name in new_node.instance_types) for new_node in plan.new_nodes) <= 8
        assert len(plan.unschedulable_pods) == 2
        assert "limit of cpu 8" in why(plan)[plan.unschedulable_pods[0].pod]

    def test_a_pool_far_from_its_limits_keeps_all_types(self) -> None:
        (new_node,) = planned(pod(), pools=[pool(limits={"cpu": "100"})]).new_nodes
        assert len(new_node.instance_types) == 4

    def test_nodes_there_are_count_against_the_limits(self) -> None:
        plan = planned(pod(cpu=3), pools=[pool(limits={"cpu": "6"})], nodes=(node("n1", cpu=4, taints=(BATCH,)),))
        assert plan.new_nodes == ()

    def test_the_number_of_nodes_is_limited(self) -> None:
        plan = planned(*pods(3, cpu=7), pools=[pool(limits={"nodes": "2"})])
        assert (len(plan.new_nodes), len(plan.unschedulable_pods)) == (2, 1)

    @pytest.mark.parametrize(
        ("closed", "reason"),
        [
            (pool(replicas=2), "static"),
            (pool(conditions=(Condition("Ready", "False", message="no subnets"),)), "not Ready: no subnets"),
            (pool("default", NodeSelectorRequirement("a", "In", ("1",)), labels={"a": "2"}), "contradict"),
            (pool("default", NodeSelectorRequirement("a", "Gt", ("x",))), "invalid"),
            (pool("default", zone_is("z9")), "z9"),
        ],
        ids=["static", "not ready", "contradiction", "invalid", "nowhere"],
    )
    def test_a_pool_that_makes_no_nodes_says_why_and_stops_no_other(self, closed: object, reason: str) -> None:
        plan = planned(pod(), pools=[closed])
        assert reason in why(plan)["default/p"]
        assert len(planned(pod(), pools=[closed, pool("other")]).new_nodes) == 1

    def test_a_node_carries_labels_and_taints_of_its_pool(self) -> None:
        own = pool("batch", NodeSelectorRequirement("rack", "In", ("r2", "r1")), labels={"team": "a"}, taints=(BATCH,))
        tolerant = pod(tolerations=(Toleration("dedicated", "Exists"),))
        (new_node,) = planned(tolerant, pools=[own]).new_nodes
        assert new_node.taints == (BATCH,)
        assert (new_node.labels["team"], new_node.labels[labels.NODEPOOL]) == ("a", "batch")
        assert new_node.labels["rack"] in ("r1", "r2")

    def test_pods_that_need_different_values_of_an_open_label_are_parted(self) -> None:
        racks = pool("default", NodeSelectorRequirement("rack", "Exists"))
        pod_of_r1, pod_of_r2 = pod("a", node_selector={"rack": "r1"}), pod("b", node_selector={"rack": "r2"})
        neither = pod("c", node_affinity=((NodeSelectorRequirement("rack", "NotIn", ("r1",)),),))
        plan = planned(pod_of_r1, pod_of_r2, neither, pools=[racks])
        assert {new_node.labels["rack"]: new_node.pods for new_node in plan.new_nodes} == {
            "r1": ("default/a",),
            "r2": ("default/b", "default/c"),
        }


class TestDaemons:
    def test_a_new_node_has_room_for_its_daemons(self) -> None:
        plan = planned(pod(cpu=2), daemonsets=(daemonset(cpu="100m"),), types=[SMALL, MEDIUM])
        assert shown(plan) == ["medium x 1"]
        assert plan.new_nodes[0].requests["cpu"] == 2100

    def test_a_daemon_that_does_not_come_takes_no_room(self) -> None:
        tainted = pool("default", taints=(BATCH,))
        tolerant = pod(cpu=2, tolerations=(Toleration("dedicated", "Exists"),))
        plan = planned(tolerant, pools=[tainted], daemonsets=(daemonset(cpu=1),), types=[SMALL, MEDIUM])
        assert shown(plan) == ["small x 1"]

    def test_each_type_has_its_own_daemons(self) -> None:
        only_large = daemonset(cpu=7, node_selector={labels.INSTANCE_TYPE: "large"})
        plan = planned(*pods(6, cpu=1, memory="128Mi"), daemonsets=(only_large,), types=[MEDIUM, LARGE])
        assert "large x" not in " ".join(shown(plan))


class TestFollowers:
    DNS = pod("dns", namespace="kube-system", labels={"k8s-app": "kube-dns"})

    def test_a_follower_never_causes_the_first_node(self) -> None:
        plan = planned(self.DNS, pod("agent", annotations={labels.FOLLOW: "true"}))
        assert plan.new_nodes == ()
        assert all("follows" in reason for reason in why(plan).values())

    def test_a_follower_is_sized_into_a_node_made_for_others(self) -> None:
        plan = planned(self.DNS, pod("web", cpu=1))
        assert [new_node.pods for new_node in plan.new_nodes] == [("default/web", "kube-system/dns")]

    def test_a_follower_waits_when_the_others_find_no_place_either(self) -> None:
        assert planned(self.DNS, pod("web", cpu=500)).new_nodes == ()

    def test_a_follower_takes_room_there_is(self) -> None:
        plan = planned(self.DNS, nodes=(node("n1"),))
        assert [assignment.pods for assignment in plan.existing_nodes] == [("kube-system/dns",)]

    def test_beside_other_work_a_follower_is_an_ordinary_pod(self) -> None:
        web = pod("web", cpu=4, memory="7Gi", node_name="n1", phase="Running")
        assert len(planned(self.DNS, web, nodes=(node("n1"),)).new_nodes) == 1

    def test_a_node_that_runs_only_followers_and_daemons_gets_no_company(self) -> None:
        dns = pod(
            "old", cpu=4, namespace="kube-system", labels={"k8s-app": "kube-dns"}, node_name="n1", phase="Running"
        )
        agent = pod("agent", node_name="n1", owner_references=owned_by("DaemonSet"))
        assert planned(self.DNS, dns, agent, nodes=(node("n1"),)).new_nodes == ()


def test_problems_of_pools_become_notes() -> None:
    plan = planned(pod(), pools=[pool(problems=("unknown field spec.limit, did you mean limits?",))])
    assert plan.notes == ("NodePool default: unknown field spec.limit, did you mean limits?",)


def test_the_work_is_counted_and_bounded() -> None:
    assert planned(*pods(50, cpu="300m")).work_units > 0


def test_what_cannot_be_read_stops_nothing_else() -> None:
    broken = msgspec.structs.replace(node("n1"), read_error="status.allocatable.cpu: '?'")
    claim = NodeClaim(ObjectMeta("c1"), NodeClassReference("", "", ""), read_error="spec.expireAfter: 'soon'")
    plan = planned(pod(), nodes=(broken, node("n2")), nodeclaims=(claim,))
    assert [(assignment.name, assignment.pods) for assignment in plan.existing_nodes] == [("n2", ("default/p",))]
    assert plan.read_errors == {"nodeclaims/c1": "spec.expireAfter: 'soon'", "nodes/n1": "status.allocatable.cpu: '?'"}
    assert "Node n1 takes no pods, for it cannot be read: status.allocatable.cpu: '?'" in plan.notes


def test_a_pool_that_selects_nothing_says_so_without_a_pod() -> None:
    plan = planned(pools=[pool("none", NodeSelectorRequirement(labels.ARCH, "In", ("arm64",))), pool("some")])
    assert list(plan.nodepools_without_offerings) == ["none"]
    assert (
        "filtered out all available instance types: none has kubernetes.io/arch In [arm64]"
        in plan.nodepools_without_offerings["none"]
    )
    assert plan.notes[0].startswith("NodePool none makes no nodes: the pool's requirements filtered out")
