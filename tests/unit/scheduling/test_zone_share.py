"""Bounds on shares: of a plan on one node, of a pool in one zone; each says what it costs."""

import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD, Offering
from spotwright.model.snapshot import Settings
from spotwright.scheduling.plan import Plan
from tests.unit.scheduling.builders import LARGE, SMALL, instance, node, planned, pod, pods, why, zone_is

HUGE = instance("huge", 64, 128, 2.0)
SIXTEEN = instance("sixteen", 16, 32, 0.9)


def shares(made: Plan) -> dict[str, int]:
    """Nodes by zone; "" for those whose zone is open."""
    found: dict[str, int] = {}
    for one in made.new_nodes:
        zone = one.zones[0] if len(one.zones) == 1 else ""
        found[zone] = found.get(zone, 0) + 1
    return found


def test_no_node_is_larger_than_its_share_of_the_plan() -> None:
    several = pods(60, "p", 1, "1Gi")
    free = planned(*several, types=(HUGE, SIXTEEN))
    held = planned(*several, types=(HUGE, SIXTEEN), settings=Settings(largest_node_share=30))
    assert [one.instance_types[0] for one in free.new_nodes] == ["huge"]
    assert {name for one in held.new_nodes for name in one.instance_types} == {"sixteen"}
    assert max(len(one.pods) for one in held.new_nodes) <= 18
    assert any("at most 30 % of the plan on one node costs $1." in note for note in held.notes)
    assert not why(held)


def test_a_pod_that_needs_a_larger_node_gets_it_and_it_is_said() -> None:
    made = planned(pod("big", 40), *pods(4, "p", 1), types=(HUGE, SIXTEEN), settings=Settings(largest_node_share=10))
    assert not why(made)
    assert any("cannot be kept" in note for note in made.notes)


def test_a_small_plan_is_not_cut_into_pieces() -> None:
    made = planned(*pods(6, "p", 1), types=(LARGE,), settings=Settings(largest_node_share=10))
    assert len(made.new_nodes) == 1


def test_open_zones_are_dealt_out_under_the_cap() -> None:
    made = planned(*pods(6, "p", 1.5), types=(SMALL,), settings=Settings(largest_zone_share=50))
    assert max(shares(made).values()) <= 3
    assert "" not in shares(made)
    assert any("at most 50 % of its cpu in one zone costs nothing" in note for note in made.notes)
    for one in made.new_nodes:
        (stated,) = [each for each in one.requirements if each.key == labels.ZONE]
        assert stated.values == one.zones


def test_the_cap_says_what_it_costs() -> None:
    cheap_in_one = tuple(
        Offering(zone, labels.ON_DEMAND, round(price * PICOUSD)) for zone, price in (("z1", 0.1), ("z2", 0.15))
    )
    uneven = instance("uneven", 2, 4, 0.1)
    uneven = type(uneven)(uneven.name, uneven.requirements, uneven.capacity, uneven.allocatable, cheap_in_one)
    made = planned(*pods(4, "p", 1.5), types=(uneven,), settings=Settings(largest_zone_share=50))
    assert shares(made) == {"z1": 2, "z2": 2}
    assert made.price_picousd_per_hour == round(0.5 * PICOUSD)
    assert any("costs $0.1000 an hour more than the $0.4000 without it" in note for note in made.notes)


def test_nodes_there_are_count() -> None:
    full = [pod(f"full-{name}", 2, node_name=name, phase="Running") for name in ("a", "b")]
    capped = Settings(largest_zone_share=50)
    made = planned(*full, *pods(2, "p", 1.5), types=(SMALL,), nodes=(node("a", 2), node("b", 2)), settings=capped)
    assert shares(made) == {"z2": 1, "z3": 1}


@pytest.mark.parametrize("share", [10, 50])
def test_pods_that_need_their_zone_keep_it_and_it_is_said(share: int) -> None:
    tied = pods(3, "p", 1.5, node_affinity=((zone_is("z2"),),))
    made = planned(*tied, types=(SMALL,), settings=Settings(largest_zone_share=share))
    assert shares(made) == {"z2": 3}
    assert any("cannot be kept" in note for note in made.notes)


def test_without_the_setting_zones_stay_open() -> None:
    assert set(shares(planned(*pods(3, "p", 1.5), types=(SMALL,)))) == {""}
