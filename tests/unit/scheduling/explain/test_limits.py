"""What limits cost is said: few types for spot nodes, lowered minValues, and pods that limits and minValues leave."""

from spotwright.model import labels
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings
from tests.unit.scheduling.builders import ZONES, instance, planned, pod, pods, pool, why, zone_is

FAMILY = labels.INSTANCE_PREFIX + "family"
SPOT = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,))
# Six types of each size; a family has one size.
TYPES = tuple(
    instance(
        f"f{cpu}-{number}.{cpu}", cpu, 2 * cpu, 0.1 * cpu + 0.001 * number, spot=0.04 * cpu, labels={FAMILY: family}
    )
    for cpu in (2, 4, 8)
    for number in range(6)
    for family in (f"f{cpu}",)
)
BEST_EFFORT = Settings(min_values_policy="BestEffort")


def families(least: int) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(FAMILY, "Exists", min_values=least)


class TestSpotNodes:
    def test_nodes_with_few_types_because_of_a_limit_are_said_once(self) -> None:
        waiting = [pod(f"p-{zone}", 1.5, node_affinity=((zone_is(zone),),)) for zone in ZONES]
        plan = planned(*waiting, pools=(pool("default", SPOT, limits={"cpu": "6"}),), types=TYPES)
        assert plan.notes == (
            "NodePool default: limit cpu 6 leaves 3 new spot nodes 6 of 18 instance types to choose from; 15 or more"
            " make interruptions rarer",
        )

    def test_nothing_is_said_where_the_limit_leaves_enough(self) -> None:
        assert not planned(pod(cpu=1.5), pools=(pool("default", SPOT, limits={"cpu": "8"}),), types=TYPES).notes

    def test_nothing_is_said_where_few_types_fit_without_the_limit(self) -> None:
        assert not planned(pod(cpu=7), pools=(pool("default", SPOT, limits={"cpu": "8"}),), types=TYPES).notes

    def test_nothing_is_said_of_on_demand_nodes(self) -> None:
        on_demand = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))
        assert not planned(pod(cpu=1.5), pools=(pool("default", on_demand, limits={"cpu": "2"}),), types=TYPES).notes

    def test_all_limits_that_leave_few_types_are_named(self) -> None:
        limits = {"cpu": "2", "memory": "4Gi", "nodes": "5"}
        notes = planned(pod(cpu=1.5), pools=(pool("default", SPOT, limits=limits),), types=TYPES).notes
        assert "limits cpu 2 and memory 4Gi leave 1 new spot node 6 of 18" in notes[0]


class TestMinValues:
    def test_what_a_limit_lowers_is_said(self) -> None:
        plan = planned(
            pod(cpu=1.5), pools=(pool("default", families(3), limits={"cpu": "4"}),), types=TYPES, settings=BEST_EFFORT
        )
        assert (
            f"NodePool default: within limit cpu 4, minValues 3 of {FAMILY} is lowered to 2 for 1 new node, as"
            " MIN_VALUES_POLICY=BestEffort allows"
        ) in plan.notes

    def test_what_no_limit_lowers_is_not_said(self) -> None:
        limited = pool("default", families(3), limits={"cpu": "8"})
        assert not planned(pod(cpu=3), pools=(limited,), types=TYPES, settings=BEST_EFFORT).notes

    def test_a_pod_that_is_left_names_the_limit_and_what_minvalues_need(self) -> None:
        plan = planned(pod(cpu=1.5), pools=(pool("default", families(3), limits={"cpu": "6"}),), types=TYPES)
        assert why(plan)["default/p"] == (
            f"NodePool default: limit cpu 6 is too small: minValues asks for 3 different values of {FAMILY}; the"
            " smallest instance types that fit and have so many count up to 8, and a node counts the"
            " largest of its types"
        )
        (cause,) = plan.unschedulable_pods[0].causes
        assert cause.code == "MinValuesExceedLimit"
        assert cause.details == {
            "key": FAMILY, "minValues": "3", "resource": "cpu", "limit": "6", "left": "6", "smallestCounts": "8",
        }  # fmt: skip

    def test_what_other_new_nodes_use_is_said(self) -> None:
        waiting = [pod("a", 7), pod("b", 7)]
        plan = planned(*waiting, pools=(pool("default", families(1), limits={"cpu": "9"}),), types=TYPES)
        assert len(why(plan)) == 1
        said = planned(*pods(2, cpu=3.5), pools=(pool("default", families(2), limits={"cpu": "14"}),), types=TYPES)
        assert "of limit cpu 14, 1 new node of this plan leaves 6: minValues asks for 2" in "".join(why(said).values())

    def test_limits_that_only_together_are_too_small_are_said_so(self) -> None:
        types = (
            instance("lean", 2, 8, 0.1, labels={FAMILY: "lean"}),
            instance("fat", 2, 16, 0.1, labels={FAMILY: "fat"}),
            instance("wide", 8, 8, 0.1, labels={FAMILY: "wide"}),
        )
        limited = pool("default", families(2), limits={"cpu": "4", "memory": "9Gi"})
        plan = planned(pod(cpu=1), pools=(limited,), types=types)
        assert why(plan)["default/p"] == (
            "NodePool default: its limits together are too small: minValues asks for 2 different values of"
            f" {FAMILY}, and the instance types within them have 1"
        )
