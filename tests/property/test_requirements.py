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


def _renamed(requirement: Requirement, key: str) -> Requirement:
    return Requirement(
        key, requirement.complement, requirement.values, requirement.gte, requirement.lte, requirement.min_values
    )


@given(requirements, requirements)
def test_intersection_is_commutative(requirement: Requirement, other_requirement: Requirement) -> None:
    assert requirement.intersection(other_requirement) == other_requirement.intersection(requirement)


@given(requirements, requirements, requirements)
def test_intersection_is_associative(requirement: Requirement, two: Requirement, three: Requirement) -> None:
    left, right = requirement.intersection(two).intersection(three), requirement.intersection(two.intersection(three))
    assert [left.has(value) for value in PROBES] == [right.has(value) for value in PROBES]
    assert left.intersects(left) == right.intersects(right)


@given(requirements)
def test_intersection_is_idempotent(requirement: Requirement) -> None:
    assert requirement.intersection(requirement) == requirement


@given(requirements)
def test_exists_takes_away_nothing_but_absence(requirement: Requirement) -> None:
    both = requirement.intersection(Requirement("key", True))
    assert [both.has(value) for value in PROBES] == [requirement.has(value) for value in PROBES]
    assert not both.allows_absence or not requirement.intersects(Requirement("key", True))


@given(requirements, requirements)
def test_absence_is_allowed_when_both_allow_it(requirement: Requirement, other_requirement: Requirement) -> None:
    if requirement.intersects(other_requirement):
        assert requirement.intersection(other_requirement).allows_absence == (
            requirement.allows_absence and other_requirement.allows_absence
        )


@given(requirements, requirements)
def test_an_intersection_allows_exactly_what_both_allow(
    requirement: Requirement, other_requirement: Requirement
) -> None:
    both = requirement.intersection(other_requirement)
    assert [both.has(value) for value in PROBES] == [
        requirement.has(value) and other_requirement.has(value) for value in PROBES
    ]


@given(requirements, requirements)
def test_a_shared_value_is_an_intersection(requirement: Requirement, other_requirement: Requirement) -> None:
    if any(requirement.has(value) and other_requirement.has(value) for value in PROBES):
        assert requirement.intersects(other_requirement)


@given(requirements)
def test_what_is_written_is_read_back(requirement: Requirement) -> None:
    assert from_expressions(requirement.node_selector_requirements()).get("key") == requirement


@given(demands, demands)
def test_intersecting_demands_is_symmetric(one: Requirements, other_requirements: Requirements) -> None:
    assert one.intersects(other_requirements) == other_requirements.intersects(one)
    assert one.intersection(other_requirements) == other_requirements.intersection(one)


@given(demands, demands)
def test_more_demands_never_allow_more(one: Requirements, other_requirements: Requirements) -> None:
    both = one.intersection(other_requirements)
    assert all(one.get(key).has(value) for key in ("x", "y") for value in PROBES if both.get(key).has(value))
