"""What is said of a pod without a place."""

import pytest

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import (
    node,
    planned,
    pod,
    pool,
    why,
)

BATCH = Taint("dedicated", "NoSchedule", "batch")


class TestReasons:
    @pytest.mark.parametrize(
        ("waiting", "words"),
        [
            (pod(cpu=500), "it asks for cpu 500, the most is 8 on large (4 instance types)"),
            (pod(memory="1Ti"), "it asks for memory 1024Gi, the most is 32Gi on fat"),
            (pod(cpu=8, memory="32Gi"), "none of 4 instance types has cpu 8, memory 32Gi together"),
            (pod(requests={"nvidia.com/gpu": 1}), "it asks for nvidia.com/gpu 1, none of 4 instance types has any"),
            (pod(node_selector={labels.ZONE: "z9"}), "topology.kubernetes.io/zone In [z9]"),
            (pod(node_selector={labels.ZONE: "z9"}), "they have z1, z2, z3"),
            (pod(node_selector={"zone": "z1"}), "did you mean topology.kubernetes.io/zone?"),
            (pod(node_selector={"team": "a"}), "label team has no known values there"),
            (
                pod(node_selector={"a": "1"}, node_affinity=((NodeSelectorRequirement("a", "In", ("2",)),),)),
                "contradict each other",
            ),
        ],
    )
    def test_the_nearest_miss_is_named_with_numbers(self, waiting: object, words: str) -> None:
        assert words in why(planned(waiting))["default/p"]  # type: ignore[arg-type]

    def test_what_the_pool_itself_keeps_away_is_named(self) -> None:
        amd = [pool("default", NodeSelectorRequirement(labels.ARCH, "In", ("amd64",)))]
        arm = pod(node_selector={labels.ARCH: "arm64"})
        said = why(planned(arm, pools=amd))["default/p"]
        assert "asks for kubernetes.io/arch In [arm64], but the pool allows only kubernetes.io/arch In [amd64]" in said
        few = [pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("small", "medium")))]
        said = why(planned(pod(cpu=7), pools=few))["default/p"]
        assert said.endswith(
            "; large would hold it, but for the pool's node.kubernetes.io/instance-type In [medium, small]"
        )

    def test_every_pool_says_its_own(self) -> None:
        plan = planned(
            pod(cpu=1), pools=[pool("heavy", weight=9, limits={"cpu": "0"}), pool("tainted", taints=(BATCH,))]
        )
        assert "NodePool heavy: its limit of cpu 0" in why(plan)["default/p"]
        assert "NodePool tainted: it does not tolerate taint dedicated=batch:NoSchedule" in why(plan)["default/p"]

    def test_without_a_pool_that_is_the_reason(self) -> None:
        assert why(planned(pod(), pools=[])) == {"default/p": "there is no NodePool"}

    def test_limits_are_not_blamed_where_there_are_none(self) -> None:
        web = (NodeSelectorRequirement("app", "In", ("web",)),)
        old = pod("old", labels={"app": "web"}, node_name="n1", phase="Running")
        waiting = pod(
            "p",
            "3",
            pod_affinity=(PodAffinityTerm(labels.ZONE, web, ("default",)),),
            pod_anti_affinity=(PodAffinityTerm(labels.ZONE, web, ("default",)),),
        )
        said = why(planned(old, waiting, nodes=(node("n1", 1),)))["default/p"]
        assert "satisfies all of: pod affinity" in said
        assert "limit" not in said
