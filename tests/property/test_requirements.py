"""Laws of the requirement algebra."""

from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirement, Requirements, from_expressions

VALUES = ("a", "b", "c", "1", "2", "5", "9")
PROBES = (*VALUES, "", "0", "3", "10", "zz")

listed = st.lists(st.sampled_from(VALUES), min_size=1, max_size=4, unique=True)
bounds = st.sampled_from(("0", "1", "2", "5", "9"))
selectors = st.one_of(
    st.builds(
        NodeSelectorRequirement, st.just("key"), st.sampled_from((Operator.IN, Operator.NOT_IN)), listed.map(tuple)
    ),
    st.builds(NodeSelectorRequirement, st.just("key"), st.sampled_from((Operator.EXISTS, Operator.DOES_NOT_EXIST))),
    st.builds(
        NodeSelectorRequirement,
        st.just("key"),
        st.sampled_from((Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)),
        bounds.map(lambda bound: (bound,)),
    ),
)
requirements = st.builds(
    lambda several: from_expressions(several).get("key"), st.lists(selectors, min_size=1, max_size=3)
)
demands = st.builds(
    lambda one, other: Requirements({"x": _renamed(one, "x"), "y": _renamed(other, "y")}), requirements, requirements
)


def _renamed(one: Requirement, key: str) -> Requirement:
    return Requirement(key, one.complement, one.values, one.gte, one.lte, one.min_values)


@given(requirements, requirements)
def test_intersection_is_commutative(one: Requirement, other: Requirement) -> None:
    assert one.intersection(other) == other.intersection(one)


@given(requirements, requirements, requirements)
def test_intersection_is_associative(one: Requirement, two: Requirement, three: Requirement) -> None:
    left, right = one.intersection(two).intersection(three), one.intersection(two.intersection(three))
    assert [left.has(value) for value in PROBES] == [right.has(value) for value in PROBES]
    assert left.intersects(left) == right.intersects(right)


@given(requirements)
def test_intersection_is_idempotent(one: Requirement) -> None:
    assert one.intersection(one) == one


@given(requirements)
def test_exists_takes_away_nothing_but_absence(one: Requirement) -> None:
    both = one.intersection(Requirement("key", True))
    assert [both.has(value) for value in PROBES] == [one.has(value) for value in PROBES]
    assert not both.allows_absence or not one.intersects(Requirement("key", True))


@given(requirements, requirements)
def test_absence_is_allowed_when_both_allow_it(one: Requirement, other: Requirement) -> None:
    if one.intersects(other):
        assert one.intersection(other).allows_absence == (one.allows_absence and other.allows_absence)


@given(requirements, requirements)
def test_an_intersection_allows_exactly_what_both_allow(one: Requirement, other: Requirement) -> None:
    both = one.intersection(other)
    assert [both.has(value) for value in PROBES] == [one.has(value) and other.has(value) for value in PROBES]


@given(requirements, requirements)
def test_a_shared_value_is_an_intersection(one: Requirement, other: Requirement) -> None:
    if any(one.has(value) and other.has(value) for value in PROBES):
        assert one.intersects(other)


@given(requirements)
def test_what_is_written_is_read_back(one: Requirement) -> None:
    assert from_expressions(one.node_selector_requirements()).get("key") == one


@given(demands, demands)
def test_intersecting_demands_is_symmetric(one: Requirements, other: Requirements) -> None:
    assert one.intersects(other) == other.intersects(one)
    assert one.intersection(other) == other.intersection(one)


@given(demands, demands)
def test_more_demands_never_allow_more(one: Requirements, other: Requirements) -> None:
    both = one.intersection(other)
    assert all(one.get(key).has(value) for key in ("x", "y") for value in PROBES if both.get(key).has(value))
