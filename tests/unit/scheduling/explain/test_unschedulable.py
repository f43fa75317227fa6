"""What is said of a pod without a place."""

import msgspec
import pytest

from spotwright.aws.images import families
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Requirement
from spotwright.scheduling.explain.label_values import explain_unknown_values
from tests.unit.scheduling.builders import (
    instance,
    node,
    planned,
    pod,
    pods,
    pool,
    why,
)

CAPACITY_TYPE = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))
BATCH = Taint("dedicated", "NoSchedule", "batch")


def sold_out(instance_type: InstanceType, code: str) -> InstanceType:
    """The type with all offerings unavailable since EC2 answered ``code``; "" = as it is."""
    refused = [
        msgspec.structs.replace(sold, available=False, unavailable_reason=code) for sold in instance_type.offerings
    ]
    return msgspec.structs.replace(instance_type, offerings=tuple(refused)) if code else instance_type


class TestReasons:
    @pytest.mark.parametrize(
        ("waiting", "words"),
        [
            (pod(cpu=500), "it asks for cpu 500, the most is 8 on large (4 instance types)"),
            (pod(cpu="500500m"), "it asks for cpu 500500m, the most is 8000m on large (4 instance types)"),
            (pod(memory="1Ti"), "it asks for memory 1024Gi, the most is 32Gi on fat"),
            (pod(memory="1000G"), "it asks for memory 953674Mi, the most is 32768Mi on fat"),
            (pod(cpu=8, memory="32Gi"), "none of 4 instance types has cpu 8, memory 32Gi together"),
            (pod(requests={"nvidia.com/gpu": 1}), "it asks for nvidia.com/gpu 1, none of 4 instance types has any"),
            (pod(node_selector={labels.ZONE: "z9"}), "topology.kubernetes.io/zone In [z9]"),
            (pod(node_selector={labels.ZONE: "z9"}), "there is no zone z9; known: z1, z2, z3"),
            (pod(node_selector={"zone": "z1"}), "did you mean topology.kubernetes.io/zone?"),
            (
                pod(node_selector={"team": "a"}),
                "it needs the node label team=a, which the pool does not set: add it to spec.template.metadata.labels",
            ),
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
        assert "asks for kubernetes.io/arch In [arm64], but the pool allows only amd64 (" in said
        few = [pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("small", "medium")))]
        said = why(planned(pod(cpu=7), pools=few))["default/p"]
        assert said.endswith(
            "; large would hold it, but for the pool's node.kubernetes.io/instance-type In [small, medium]"
            " (spec.template.spec.requirements[0])"
        )

    def test_every_pool_says_its_own(self) -> None:
        plan = planned(
            pod(cpu=1), pools=[pool("heavy", weight=9, limits={"cpu": "0"}), pool("tainted", taints=(BATCH,))]
        )
        assert (
            "NodePool heavy: limit cpu 0 is too small: the smallest instance type that fits (small) counts 2"
            in why(plan)["default/p"]
        )
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


class TestSentences:
    def test_a_misspelt_instance_type_is_answered_with_the_nearest(self) -> None:
        said = why(planned(pod(node_selector={labels.INSTANCE_TYPE: "mediun"})))["default/p"]
        assert said.endswith("there is no instance type mediun; did you mean medium?")
        misspelt = pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("mediun",)))
        said = why(planned(pod(), pools=[misspelt]))["default/p"]
        assert said == (
            "NodePool default: spec.template.spec.requirements[0]: there is no instance type mediun;"
            " did you mean medium?"
        )

    def test_an_architecture_that_no_type_here_has_is_not_called_a_mistake(self) -> None:
        assert why(planned(pod(node_selector={labels.ARCH: "arm64"})))["default/p"] == (
            "NodePool default: it asks for kubernetes.io/arch In [arm64],"
            " but the offerings of the 4 instance types left have only amd64"
        )

    def test_a_build_of_windows_is_known_where_no_type_here_has_it(self) -> None:
        builds = frozenset(families.WINDOWS_BUILDS.values())
        for build in builds:
            asked = Requirement(labels.WINDOWS_BUILD, False, frozenset((build,)))
            assert explain_unknown_values(asked, {"10.0.17763"}) == ""
        asked = Requirement(labels.WINDOWS_BUILD, False, frozenset(("11",)))
        assert explain_unknown_values(asked, builds) == "there is no build of Windows 11; known: " + ", ".join(
            sorted(builds)
        )

    @pytest.mark.parametrize(
        ("contradicting", "words"),
        [
            (
                pool("default", CAPACITY_TYPE, labels={labels.CAPACITY_TYPE: "spot"}),
                "label karpenter.sh/capacity-type=spot (spec.template.metadata.labels), but"
                " spec.template.spec.requirements[0] allows only on-demand",
            ),
            (
                pool("default", CAPACITY_TYPE, NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", ("spot",))),
                "spec.template.spec.requirements[0] (karpenter.sh/capacity-type In [on-demand]) and"
                " spec.template.spec.requirements[1] (karpenter.sh/capacity-type In [spot]) have no value in common",
            ),
        ],
    )
    def test_a_contradiction_names_both_sides(self, contradicting: NodePool, words: str) -> None:
        assert words in why(planned(pod(), pools=[contradicting]))["default/p"]

    def test_a_limit_says_what_uses_it_and_what_is_missing(self) -> None:
        few = pool(limits={"cpu": "8"})
        said = set(why(planned(*pods(12, cpu=1), pools=[few])).values())
        assert said == {"NodePool default: limit cpu 8 is used up by 1 new node of this plan; 4 pods need 4 more"}

    def test_a_limit_is_in_its_own_unit_and_what_is_compared_with_it_in_one(self) -> None:
        few = pool(limits={"cpu": "8"})
        said = set(why(planned(*pods(12, cpu="1100m"), pools=[few])).values())
        assert said == {"NodePool default: limit cpu 8 is used up by 1 new node of this plan; 5 pods need 5500m more"}

    @pytest.mark.parametrize(("limit", "shown"), [("3Gi", "3Gi"), ("100M", "95Mi"), ("100", "100")])
    def test_a_limit_of_bytes_is_in_its_own_unit(self, limit: str, shown: str) -> None:
        said = set(why(planned(*pods(3, memory="2900Mi"), pools=[pool(limits={"memory": limit})])).values())
        assert said == {
            f"NodePool default: limit memory {shown} is too small: the smallest instance type that fits (small) counts"
            " 4096Mi; 3 pods need 8700Mi more"
        }

    def test_what_existing_nodes_use_of_a_limit_is_told_apart(self) -> None:
        plan = planned(pod(cpu=3), nodes=(node("n1", 2),), pools=[pool(limits={"cpu": "4"})])
        assert (
            "of limit cpu 4, nodes that exist or are in flight leave 2: the smallest instance type that fits"
            in (why(plan)["default/p"])
        )

    def test_of_many_pools_the_nearest_is_told_and_the_others_are_summed_up(self) -> None:
        pools = [pool(f"pool-{number}", labels={"team": f"t{number}"}) for number in range(9)]
        (unplaced,) = planned(pod(cpu=500, node_selector={"team": "t4"}), pools=pools).unschedulable_pods
        assert unplaced.reasons == (
            "NodePool pool-4: it asks for cpu 500, the most is 8 on large (4 instance types)",
            "8 other NodePools (pool-0, pool-1, pool-2, pool-3, pool-5 and 3 others) allow other values of team",
        )
        near, others = unplaced.causes
        assert (near.code, near.nodepools, near.details) == ("TooLarge", ("pool-4",), {"resource": "cpu"})
        assert (others.code, len(others.nodepools)) == ("RequirementNotMet", 8)
        assert others.details == {"key": "team", "asked": "team In [t4]"}

    def test_every_reason_has_its_cause(self) -> None:
        plan = planned(pod(cpu=500), pod("taint"), nodes=(node("n1", 0),), pools=[pool("tainted", taints=(BATCH,))])
        for unplaced in plan.unschedulable_pods:
            assert [cause.code for cause in unplaced.causes] == ["TaintNotTolerated", "NoRoomOnExistingNodes"]
            assert len(unplaced.reasons) == len(unplaced.causes)

    def test_the_type_that_would_hold_a_pod_is_a_current_one_and_the_cheapest(self) -> None:
        def typed(name: str, cpu: int, price: float, generation: int) -> InstanceType:
            stated = {f"{labels.INSTANCE_PREFIX}category": "c", f"{labels.INSTANCE_PREFIX}generation": str(generation)}
            return instance(name, cpu, 16, price, labels=stated)

        types = [
            typed("c3.big", 8, 0.1, 3),
            typed("c7.big", 8, 0.4, 7),
            typed("c8.big", 8, 0.3, 8),
            typed("c8.s", 2, 0.1, 8),
        ]
        only = pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("c8.s",)))
        assert "; c8.big would hold it" in why(planned(pod(cpu=6), pools=[only], types=types))["default/p"]

    def test_types_that_ec2_refuses_now_are_told_of_before_what_the_pool_keeps_away(self) -> None:
        """With a quota of vCPUs used up small types alone are left."""
        types = [instance("small", 2, 16, 0.1), instance("large", 8, 16, 0.4), instance("other", 8, 16, 0.3)]
        only = pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("small", "large")))
        refused = [sold_out(types[0], ""), sold_out(types[1], "VcpuLimitExceeded"), types[2]]
        said = why(planned(pod(cpu=6), pools=[only], types=refused))["default/p"]
        assert said.endswith(
            "it asks for cpu 6, the most is 2 on small (1 instance type); 1 instance type that would hold it is not to"
            " be had now; EC2 said lately: VcpuLimitExceeded (3); the account's quota of on-demand vCPUs is used up:"
            " spotwright preflight names it"
        )
        unlucky = [types[0], sold_out(types[1], "InsufficientInstanceCapacity"), types[2]]
        said = why(planned(pod(cpu=6), pools=[only], types=unlucky))["default/p"]
        assert said.endswith("; EC2 said lately: InsufficientInstanceCapacity (3)")
        zonal = pod(cpu=6, node_selector={labels.ZONE: "z1"})
        assert why(planned(zonal, pools=[only], types=unlucky))["default/p"].endswith(
            "InsufficientInstanceCapacity (1)"
        )

    def test_never_only_one_value_is_left_out(self) -> None:
        six = pool("default", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", tuple("abcdef")))
        assert (
            "1 others" not in why(planned(pod(node_selector={labels.INSTANCE_TYPE: "small"}), pools=[six]))["default/p"]
        )
