"""MIN_VALUES_POLICY=BestEffort lowers minValues no further than types and pods make necessary."""

import pytest

from spotwright.model import labels
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings
from spotwright.scheduling.plan import Plan
from tests.unit.scheduling.builders import instance, planned, pod, pool

FAMILY = labels.INSTANCE_PREFIX + "family"
# A family has one size; a cpu costs the same in each.
TYPES = tuple(
    instance(f"f{cpu}-{number}.{cpu}", cpu, 2 * cpu, 0.1 * cpu + 0.001 * number, labels={FAMILY: f"f{cpu}"})
    for cpu in (2, 4, 8)
    for number in range(2)
)


def plan(*sizes: float, least: int, policy: str = "BestEffort", selector: dict[str, str] | None = None) -> Plan:
    waiting = [pod(f"p-{number}", cpu, node_selector=selector or {}) for number, cpu in enumerate(sizes)]
    wanted = NodeSelectorRequirement(FAMILY, "Exists", min_values=least)
    settings = Settings(min_values_policy=policy)
    return planned(*waiting, pools=(pool("default", wanted),), types=TYPES, settings=settings)


def kept(plan: Plan) -> set[int | None]:
    """What is left of minValues, of every new node."""
    return {item.min_values for node in plan.new_nodes for item in node.requirements if item.key == FAMILY}


@pytest.mark.parametrize(
    ("sizes", "least", "lowered"),
    [
        ((1.5,) * 6, 3, {3}),
        ((1.5,) * 6, 4, {3}),
        ((3.0,) * 3, 3, {2}),
        ((1.5, 3.0), 3, {2, 3}),
        ((7.0,), 3, {1}),
    ],
    ids=["not at all", "to what there is", "to what pods leave", "for the larger pod", "to one type"],
)
def test_it_is_lowered_as_little_as_possible(sizes: tuple[float, ...], least: int, lowered: set[int]) -> None:
    result = plan(*sizes, least=least)
    assert not result.unschedulable_pods
    assert kept(result) == lowered


def test_what_strict_can_place_is_placed_the_same() -> None:
    assert plan(*(1.5,) * 6, least=3).new_nodes == plan(*(1.5,) * 6, least=3, policy="Strict").new_nodes


def test_a_pod_that_no_node_can_take_lowers_nothing_and_is_told_its_own_reason() -> None:
    nowhere = plan(100.0, least=3)
    beside = plan(1.5, 1.5, 100.0, least=3)
    assert kept(beside) == {3}
    (unplaced,) = beside.unschedulable_pods
    assert unplaced.pod == "default/p-2"
    assert "minValues" not in str(unplaced) + str(nowhere.unschedulable_pods)
