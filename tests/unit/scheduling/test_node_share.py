"""No node is larger than a share of the plan; the cap says what it costs."""

from spotwright.model.snapshot import Settings
from tests.unit.scheduling.builders import LARGE, instance, planned, pod, pods, why

HUGE = instance("huge", 64, 128, 2.0)


SIXTEEN = instance("sixteen", 16, 32, 0.9)


def test_no_node_is_larger_than_its_share_of_the_plan() -> None:
    sixty_pods = pods(60, "p", 1, "1Gi")
    free = planned(*sixty_pods, types=(HUGE, SIXTEEN))
    held = planned(*sixty_pods, types=(HUGE, SIXTEEN), settings=Settings(largest_node_share=30))
    assert [new_node.instance_types[0] for new_node in free.new_nodes] == ["huge"]
    assert {name for new_node in held.new_nodes for name in new_node.instance_types} == {"sixteen"}
    assert max(len(new_node.pods) for new_node in held.new_nodes) <= 18
    assert any("at most 30 % of the plan on one node costs $1." in note for note in held.notes)
    assert not why(held)


def test_a_pod_that_needs_a_larger_node_gets_it_and_it_is_said() -> None:
    plan = planned(pod("big", 40), *pods(4, "p", 1), types=(HUGE, SIXTEEN), settings=Settings(largest_node_share=10))
    assert not why(plan)
    assert any("cannot be kept" in note for note in plan.notes)


def test_a_small_plan_is_not_cut_into_pieces() -> None:
    plan = planned(*pods(6, "p", 1), types=(LARGE,), settings=Settings(largest_node_share=10))
    assert len(plan.new_nodes) == 1
