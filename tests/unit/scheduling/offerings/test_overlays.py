"""NodeOverlays: what they change, for whom, and when they do not count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.offerings.overlays import CONFLICT, INVALID, OverlaidCatalog, apply_overlays
from tests.unit.scheduling.builders import GIB, TYPES, pod, pool, snapshot, why
from tests.unit.scheduling.builders import planned as plan_of

CATALOG = Catalog({"": TYPES})


def overlay(name: str, *requirements: NodeSelectorRequirement, **fields: Any) -> NodeOverlay:
    return NodeOverlay(ObjectMeta(name), requirements, **fields)


def type_is(*names: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", names)


SPOT = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,))


def prices(overlaid_catalog: OverlaidCatalog, name: str, *, pool_name: str = "default") -> set[float]:
    instance_type = next(
        instance_type
        for instance_type in overlaid_catalog.catalog.instance_types("default", pool_name)
        if instance_type.name == name
    )
    return {offering.price_picousd_per_hour / PICOUSD for offering in instance_type.offerings}


def verdicts(overlaid_catalog: OverlaidCatalog) -> dict[str, str]:
    return {overlay_status.name: overlay_status.reason for overlay_status in overlaid_catalog.statuses}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"price_adjustment": "-10%"}, {0.09, 0.036}),
        ({"price_adjustment": "+100%"}, {0.2, 0.08}),
        ({"price_adjustment": "-200%"}, {0.0}),
        ({"price_adjustment": "+5"}, {5.1, 5.04}),
        ({"price_adjustment": "-15"}, {0.0}),
        ({"price_adjustment": "+.5%"}, {0.1005, 0.0402}),
        ({"price": "80.0"}, {80.0}),
        ({}, {0.1, 0.04}),
    ],
)
def test_a_price_is_replaced_or_moved_and_never_below_nothing(change: dict[str, str], expected: set[float]) -> None:
    assert prices(apply_overlays(CATALOG, [overlay("o", type_is("small"), **change)], [pool()]), "small") == expected


def test_only_offerings_that_meet_every_requirement_change() -> None:
    overlaid_catalog = apply_overlays(CATALOG, [overlay("o", type_is("small"), SPOT, price="9")], [pool()])
    assert prices(overlaid_catalog, "small") == {0.1, 9.0}
    assert prices(overlaid_catalog, "medium") == {0.2, 0.08}


def test_a_label_that_nothing_states_is_not_met() -> None:
    overlaid_catalog = apply_overlays(
        CATALOG, [overlay("o", NodeSelectorRequirement("team", "In", ("a",)), price="9")], [pool()]
    )
    assert overlaid_catalog.catalog.by_nodepool == {}
    assert verdicts(overlaid_catalog) == {"o": ""}


def test_a_label_of_the_pool_decides_for_that_pool_alone() -> None:
    pools = [pool("ours", labels={"team": "a"}), pool("theirs")]
    overlaid_catalog = apply_overlays(
        CATALOG, [overlay("o", NodeSelectorRequirement("team", "In", ("a",)), price="9")], pools
    )
    assert prices(overlaid_catalog, "small", pool_name="ours") == {9.0}
    assert prices(overlaid_catalog, "small", pool_name="theirs") == {0.1, 0.04}


def test_an_overlay_may_name_the_pool() -> None:
    overlaid_catalog = apply_overlays(
        CATALOG,
        [overlay("o", NodeSelectorRequirement(labels.NODEPOOL, "NotIn", ("a",)), price="9")],
        [pool("a"), pool("b")],
    )
    assert sorted(overlaid_catalog.catalog.by_nodepool) == ["b"]


def test_pools_that_no_overlay_tells_apart_share_their_types() -> None:
    overlaid_catalog = apply_overlays(
        CATALOG, [overlay("o", SPOT, price="9")], [pool("a"), pool("b", labels={"x": "y"})]
    )
    assert overlaid_catalog.catalog.by_nodepool["a"] is overlaid_catalog.catalog.by_nodepool["b"]


def test_capacity_adds_what_pods_can_ask_for() -> None:
    device = overlay("o", type_is("medium"), capacity={"example.com/fuse": 3})
    plan = plan_of(pod(requests={"example.com/fuse": 2}), nodeoverlays=(device,))
    assert [new_node.instance_types for new_node in plan.new_nodes] == [("medium",)]
    assert plan.new_nodes[0].capacity_overlay_applied
    assert not plan.new_nodes[0].price_overlay_applied


def test_huge_pages_are_taken_from_memory() -> None:
    overlaid_catalog = apply_overlays(
        CATALOG, [overlay("o", type_is("small"), capacity={"hugepages-2Mi": GIB})], [pool()]
    )
    instance_type = next(
        entry for entry in overlaid_catalog.catalog.instance_types("", "default") if entry.name == "small"
    )
    assert instance_type.allocatable["memory"] == 3 * GIB
    assert instance_type.allocatable["hugepages-2Mi"] == GIB


def test_the_cheapest_after_overlays_is_chosen() -> None:
    dear = overlay("o", type_is("small", "medium", "fat"), price_adjustment="+900%")
    plan = plan_of(pod(), nodeoverlays=(dear,))
    assert plan.new_nodes[0].instance_types[0] == "large"
    assert plan.new_nodes[0].price_overlay_applied


def test_two_of_one_weight_conflict_and_the_first_by_name_does_nothing_anywhere() -> None:
    first = overlay("a", type_is("small", "medium"), weight=10, price="1")
    second = overlay("b", type_is("small"), weight=10, price="2")
    overlaid_catalog = apply_overlays(CATALOG, [first, second], [pool()])
    assert verdicts(overlaid_catalog) == {"a": CONFLICT, "b": ""}
    message = overlaid_catalog.statuses[0].message
    assert message.startswith("NodeOverlay b has the same weight 10 and also sets the price of small: give them")
    assert prices(overlaid_catalog, "small") == {2.0}
    assert prices(overlaid_catalog, "medium") == {0.2, 0.08}


def test_a_conflict_over_several_types_names_one_and_counts_the_others() -> None:
    overlays = [overlay(name, type_is("small", "medium", "fat"), weight=10, price=name[1:]) for name in ("a1", "b2")]
    message = apply_overlays(CATALOG, overlays, [pool()]).statuses[0].message
    assert message.startswith("NodeOverlay b2 has the same weight 10 and also sets the price of fat (+2 types): ")


def test_a_conflict_below_a_heavier_overlay_is_a_conflict() -> None:
    overlays = [
        overlay("a", type_is("small"), weight=10, price="1"),
        overlay("b", type_is("small"), weight=10, price="2"),
        overlay("z", type_is("small"), weight=20, price="3"),
    ]
    overlaid_catalog = apply_overlays(CATALOG, overlays, [pool()])
    assert verdicts(overlaid_catalog) == {"a": CONFLICT, "b": "", "z": ""}
    assert prices(overlaid_catalog, "small") == {3.0}


def test_price_and_another_overlays_capacity_do_not_conflict() -> None:
    overlays = [
        overlay("a", type_is("small"), weight=10, price="1"),
        overlay("b", type_is("small"), weight=10, capacity={"example.com/fuse": 1}),
    ]
    assert verdicts(apply_overlays(CATALOG, overlays, [pool()])) == {"a": "", "b": ""}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"price": "1", "price_adjustment": "+1"}, "exclude each other"),
        ({"price": "-1"}, "spec.price: '-1'"),
        ({"price": "1e400"}, "spec.price"),
        ({"price_adjustment": "10%"}, "spec.priceAdjustment: '10%'"),
        ({"price_adjustment": "+10%%"}, "spec.priceAdjustment"),
        ({"capacity": {"cpu": 1000}}, "spec.capacity: cpu"),
        ({"capacity": {"example.com/fuse": -1}}, "negative"),
        ({"requirements": (NodeSelectorRequirement("x", "Near", ("y",)),)}, "operator 'Near' is unknown"),
        ({"requirements": (SPOT, NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", ("on-demand",)))}, "contradict"),
    ],
)
def test_an_overlay_that_means_nothing_is_named_and_stops_no_other(fields: dict[str, Any], named: str) -> None:
    bad = NodeOverlay(ObjectMeta("bad"), **{"requirements": (type_is("small"),), **fields})
    overlaid_catalog = apply_overlays(CATALOG, [bad, overlay("good", type_is("small"), price="7")], [pool()])
    assert {overlay_status.name: overlay_status.reason for overlay_status in overlaid_catalog.statuses} == {
        "bad": INVALID,
        "good": "",
    }
    assert named in overlaid_catalog.statuses[0].message
    assert prices(overlaid_catalog, "small") == {7.0}


def test_a_plan_says_which_overlays_do_not_count() -> None:
    plan = plan_of(pod(), nodeoverlays=(overlay("o", price="cheap"),))
    assert [note for note in plan.notes if "NodeOverlay o is not applied (RuntimeValidation): spec.price" in note]
    assert not why(plan)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["small", "medium", "fat"]), st.sampled_from(["1", "2", "3"])),
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_in_which_overlays_are_listed_does_not_matter(given_: list[tuple[int, str, str]], rng: Any) -> None:
    overlays = [
        overlay(f"o{number}", type_is(name), weight=weight, price=price)
        for number, (weight, name, price) in enumerate(given_)
    ]
    shuffled = rng.sample(overlays, len(overlays))
    assert apply_overlays(CATALOG, overlays, [pool()]) == apply_overlays(CATALOG, shuffled, [pool()])


def test_without_overlays_the_catalog_is_the_same_object() -> None:
    without_overlays = snapshot(pod())
    assert apply_overlays(CATALOG, without_overlays.nodeoverlays, without_overlays.nodepools).catalog is CATALOG
