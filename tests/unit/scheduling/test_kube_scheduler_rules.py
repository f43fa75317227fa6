"""Where kube-scheduler reads a demand strictly, the plan does: no node is made on which its pods would not run."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import NOW, daemonset, node, owned_by, planned, pod, pool, shown, why

RACK = "example.com/rack"


class TestNodeAffinity:
    def test_a_term_that_says_nothing_matches_no_node(self) -> None:
        plan = planned(pod(node_affinity=((),)))
        assert "matches no node" in why(plan)["default/p"]

    def test_a_term_that_says_nothing_leaves_the_others(self) -> None:
        assert shown(planned(pod(node_affinity=((), (NodeSelectorRequirement(labels.ARCH, "In", ("amd64",)),))))) == [
            "small x 1"
        ]

    @pytest.mark.parametrize(
        "positive", [NodeSelectorRequirement(RACK, "Exists"), NodeSelectorRequirement(RACK, "Gt", ("1",))]
    )
    def test_a_label_that_must_be_there_is_not_forgotten_beside_an_exclusion(
        self, positive: NodeSelectorRequirement
    ) -> None:
        demand = (positive, NodeSelectorRequirement(RACK, "NotIn", ("7",)))
        plan = planned(pod(node_affinity=(demand,)), nodes=(node("n1"),))
        assert f"it needs a node label: {RACK} " in why(plan)["default/p"]

    def test_a_number_too_large_for_kubernetes_is_named(self) -> None:
        plan = planned(pod(node_affinity=((NodeSelectorRequirement(RACK, "Gt", ("9" * 5000,)),),)))
        assert "at most 2^63-1" in why(plan)["default/p"]


class TestLeavingNodes:
    """Pods of a node that goes away need a new place unless something keeps them where they are."""

    def moved(self, annotation: str, hours: float) -> bool:
        pods = (
            pod(
                node_name="n1", annotations={labels.DO_NOT_DISRUPT: annotation}, owner_references=owned_by("ReplicaSet")
            ),
        )
        since = msgspec.structs.replace(pods[0], start_time=NOW - timedelta(hours=hours))
        return bool(planned(since, nodes=(node("n1", deletion_timestamp=NOW),)).new_nodes)

    @pytest.mark.parametrize(
        ("annotation", "hours", "moves"),
        [("true", 9, False), ("2h", 1, False), ("2h", 3, True), ("soon", 1, True)],
    )
    def test_do_not_disrupt_holds_for_as_long_as_it_says(self, annotation: str, hours: float, moves: bool) -> None:
        assert self.moved(annotation, hours) is moves

    def test_two_budgets_forbid_every_eviction(self) -> None:
        budgets = tuple(PodDisruptionBudget(ObjectMeta(name, "default"), selector=()) for name in ("a", "b"))
        assert not planned(
            pod(node_name="n1"), nodes=(node("n1", deletion_timestamp=NOW),), pod_disruption_budgets=budgets
        ).new_nodes


class TestDaemons:
    DEDICATED = Taint("dedicated", "NoSchedule", "batch")

    def live(self, **fields: Any) -> Pod:
        return pod(
            "agent-x",
            "1500m",
            namespace="kube-system",
            node_name="n9",
            owner_references=owned_by("DaemonSet", "agent"),
            **fields,
        )

    def test_what_admission_gave_the_running_pods_counts(self) -> None:
        tolerant = self.live(tolerations=(Toleration("dedicated", "Exists"),))
        asking = pod("p", "1", tolerations=(Toleration("dedicated", "Exists"),))
        plan = planned(asking, tolerant, pools=(pool(taints=(self.DEDICATED,)),), daemonsets=(daemonset(),))
        assert shown(plan) == ["medium x 1"]

    def test_one_that_asks_for_a_device_claim_runs_nowhere(self) -> None:
        dead = daemonset("dra", "3", unsupported_fields=("spec.resourceClaims",))
        assert shown(planned(pod(), daemonsets=(dead,))) == ["small x 1"]


class TestPools:
    def test_a_nodeclass_of_another_provider_is_not_ours(self) -> None:
        foreign = pool("foreign")
        foreign = msgspec.structs.replace(foreign, node_class_ref=NodeClassReference("x.io", "Other", "default"))
        plan = planned(pod(), pools=(foreign,))
        assert "NodePool foreign: its nodeClassRef is Other of x.io" in why(plan)["default/p"]


class TestVolumes:
    CLAIM = PersistentVolumeClaim(ObjectMeta("data", "default"), volume_name="pv", bind_completed=True, phase="Bound")
    NOWHERE = (
        (NodeSelectorRequirement(labels.ZONE, "In", ("z1",)), NodeSelectorRequirement(labels.ZONE, "In", ("z2",))),
    )

    def test_one_that_no_node_can_reach_is_named(self) -> None:
        storage = Storage(
            persistent_volume_claims=(self.CLAIM,),
            persistent_volumes=(PersistentVolume(ObjectMeta("pv"), self.NOWHERE),),
        )
        plan = planned(pod(volume_claim_names=("data",)), storage=storage)
        assert "PersistentVolume pv can be reached from no node" in why(plan)["default/p"]

    def test_a_class_without_a_possible_topology_is_named(self) -> None:
        claim = msgspec.structs.replace(self.CLAIM, volume_name="", storage_class_name="nowhere", bind_completed=False)
        classes = (StorageClass(ObjectMeta("nowhere"), "ebs.csi.aws.com", True, self.NOWHERE),)
        plan = planned(
            pod(volume_claim_names=("data",)),
            storage=Storage(persistent_volume_claims=(claim,), storage_classes=classes),
        )
        assert "StorageClass nowhere allows no node" in why(plan)["default/p"]
