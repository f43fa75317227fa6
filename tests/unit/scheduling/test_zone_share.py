"""No zone holds more than a share of a NodePool; the cap says what it costs."""

import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType, Offering
from spotwright.model.snapshot import Settings
from spotwright.scheduling.plan import Plan
from tests.unit.scheduling.builders import SMALL, instance, node, planned, pod, pods, zone_is


def shares(plan: Plan) -> dict[str, int]:
    """Nodes by zone; "" for those whose zone is open."""
    counts: dict[str, int] = {}
    for new_node in plan.new_nodes:
        zone = new_node.zones[0] if len(new_node.zones) == 1 else ""
        counts[zone] = counts.get(zone, 0) + 1
    return counts


def test_open_zones_are_dealt_out_under_the_cap() -> None:
    plan = planned(*pods(6, "p", 1.5), types=(SMALL,), settings=Settings(largest_zone_share=50))
    assert max(shares(plan).values()) <= 3
    assert "" not in shares(plan)
    assert any("at most 50 % of its cpu in one zone costs nothing" in note for note in plan.notes)
    for new_node in plan.new_nodes:
        (stated,) = [expression for expression in new_node.requirements if expression.key == labels.ZONE]
        assert stated.values == new_node.zones


def test_the_cap_says_what_it_costs() -> None:
    cheap_in_one = tuple(
        Offering(zone, labels.ON_DEMAND, round(price * PICOUSD)) for zone, price in (("z1", 0.1), ("z2", 0.15))
    )
    uneven = instance("uneven", 2, 4, 0.1)
    uneven = type(uneven)(uneven.name, uneven.requirements, uneven.capacity, uneven.allocatable, cheap_in_one)
    plan = planned(*pods(4, "p", 1.5), types=(uneven,), settings=Settings(largest_zone_share=50))
    assert shares(plan) == {"z1": 2, "z2": 2}
    assert plan.price_picousd_per_hour == round(0.5 * PICOUSD)
    assert any("costs $0.1000 an hour more than the $0.4000 without it" in note for note in plan.notes)


def test_nodes_there_are_count() -> None:
    full = [pod(f"full-{name}", 2, node_name=name, phase="Running") for name in ("a", "b")]
    capped = Settings(largest_zone_share=50)
    plan = planned(*full, *pods(2, "p", 1.5), types=(SMALL,), nodes=(node("a", 2), node("b", 2)), settings=capped)
    assert shares(plan) == {"z2": 1, "z3": 1}


@pytest.mark.parametrize("share", [10, 50])
def test_pods_that_need_their_zone_keep_it_and_it_is_said(share: int) -> None:
    tied = pods(3, "p", 1.5, node_affinity=((zone_is("z2"),),))
    plan = planned(*tied, types=(SMALL,), settings=Settings(largest_zone_share=share))
    assert shares(plan) == {"z2": 3}
    assert any("cannot be kept" in note for note in plan.notes)


def test_without_the_setting_zones_stay_open() -> None:
    assert set(shares(planned(*pods(3, "p", 1.5), types=(SMALL,)))) == {""}


def test_a_node_says_what_is_true_of_the_type_that_its_zone_has() -> None:
    def sold_in(name: str, memory: int, price: float, zone: str) -> InstanceType:
        return instance(name, 2, memory, price, zones=(zone,))

    types = (sold_in("cheap", 4, 0.1, "z1"), sold_in("dear", 8, 0.2, "z2"))
    plan = planned(*pods(2, "p", 1.5, "2Gi"), types=types, settings=Settings(largest_zone_share=50))
    by_zone = {new_node.zones[0]: new_node for new_node in plan.new_nodes}
    assert by_zone["z2"].instance_types == ("dear",)
    assert by_zone["z2"].reason == "dear on-demand at $0.2000/h is the only type with room for its pods in z2"
    assert by_zone["z2"].alternatives == ()
    assert {entry.resource: entry.available for entry in by_zone["z2"].usage} == {"cpu": 2000, "memory": 8 * 2**30}
