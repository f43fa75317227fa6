"""Nodes that exist, or are in flight, take pods before any node is made."""

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements
from spotwright.model.snapshot import InFlightNodeClaim
from tests.unit.scheduling.builders import (
    MEDIUM,
    NOW,
    daemonset,
    node,
    owned_by,
    planned,
    pod,
    pods,
    pool,
)

BATCH = Taint("dedicated", "NoSchedule", "batch")


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

    @pytest.mark.parametrize("names", [("c1", "c2"), ("c2", "c1")])
    def test_of_two_claims_of_an_instance_none_is_in_flight_beside_its_node(self, names: tuple[str, str]) -> None:
        """Only one of them is registered: that one promised what the Node has."""
        registered, other = names
        standing = node("n1", cpu=1)
        claims = (
            claimed(registered, provider_id="aws:///z1/n1", node_name="n1", instance_types=("medium",)),
            claimed(other, provider_id="aws:///z1/n1", instance_types=("medium",)),
        )
        plan = planned(*pods(3, cpu=1), nodes=(standing,), nodeclaims=claims)
        assert [(assignment.name, len(assignment.pods)) for assignment in plan.existing_nodes] == [("n1", 1)]

    @pytest.mark.parametrize("names", [("c1", "c2"), ("c2", "c1")])
    def test_of_two_claims_of_an_instance_the_one_that_is_registered_says_whether_the_node_goes(
        self, names: tuple[str, str]
    ) -> None:
        registered, other = names
        claims = (
            claimed(registered, provider_id="aws:///z1/n1", node_name="n1"),
            claimed(other, provider_id="aws:///z1/n1"),
        )
        going = tuple(
            msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=NOW))
            if claim.name == registered
            else claim
            for claim in claims
        )
        plan = planned(pod(cpu=1), nodes=(node("n1"),), nodeclaims=going)
        assert (plan.existing_nodes, len(plan.new_nodes)) == ((), 1)

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
