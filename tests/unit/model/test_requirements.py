"""The requirement algebra: which values each operator allows, and what two demands allow together."""

import pytest

from spotwright.model import labels
from spotwright.model.requirements import (
    NodeSelectorRequirement,
    Operator,
    Requirement,
    RequirementError,
    Requirements,
    conjunction,
    from_expressions,
    from_labels,
)


def make_requirement(operator: str, *values: str, key: str = "key", min_values: int | None = None) -> Requirement:
    return NodeSelectorRequirement(key, operator, values, min_values).requirement()


def make_requirements(*selectors: NodeSelectorRequirement) -> Requirements:
    return from_expressions(selectors)


@pytest.mark.parametrize(
    ("operator", "values", "allowed", "denied"),
    [
        ("In", ("a", "b"), ("a", "b"), ("c", "")),
        ("NotIn", ("a", "b"), ("c", "7"), ("a", "b")),
        ("Exists", (), ("a", "", "9"), ()),
        ("DoesNotExist", (), (), ("a", "")),
        ("Gt", ("3",), ("4", "100"), ("3", "2", "a")),
        ("Lt", ("3",), ("2", "0"), ("3", "4", "a")),
        ("Gte", ("3",), ("3", "4"), ("2", "a")),
        ("Lte", ("3",), ("3", "0"), ("4", "a")),
    ],
)
def test_every_operator_allows_what_kubernetes_says(
    operator: str, values: tuple[str, ...], allowed: tuple[str, ...], denied: tuple[str, ...]
) -> None:
    requirement = make_requirement(operator, *values)
    assert [value for value in allowed if not requirement.has(value)] == []
    assert [value for value in denied if requirement.has(value)] == []


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_a_negative_requirement_is_met_by_absence(operator: str) -> None:
    assert make_requirement(operator, *(["a"] if operator == "NotIn" else [])).allows_absence


@pytest.mark.parametrize("operator", ["In", "Exists", "Gt", "Lt", "Gte", "Lte"])
def test_a_positive_requirement_is_not_met_by_absence(operator: str) -> None:
    assert not make_requirement(operator, *([] if operator == "Exists" else ["3"])).allows_absence


@pytest.mark.parametrize(
    ("left", "right", "together"),
    [
        (make_requirement("In", "a", "b"), make_requirement("NotIn", "a"), make_requirement("In", "b")),
        (make_requirement("NotIn", "a"), make_requirement("NotIn", "b"), make_requirement("NotIn", "a", "b")),
        (make_requirement("Exists"), make_requirement("In", "a"), make_requirement("In", "a")),
        (make_requirement("DoesNotExist"), make_requirement("In", "a"), make_requirement("DoesNotExist")),
        (make_requirement("Gt", "9"), make_requirement("Lt", "1"), make_requirement("DoesNotExist")),
        (
            make_requirement("Gt", "1").intersection(make_requirement("Lt", "9")),
            make_requirement("In", "1", "5", "9"),
            make_requirement("In", "5"),
        ),
        (make_requirement("Gt", "1"), make_requirement("In", "A"), make_requirement("DoesNotExist")),
        (make_requirement("Gt", "3"), make_requirement("Gte", "4"), make_requirement("Gte", "4")),
        (make_requirement("Lt", "4"), make_requirement("Lte", "3"), make_requirement("Lte", "3")),
        (make_requirement("Gt", "3"), make_requirement("Gte", "7"), make_requirement("Gte", "7")),
    ],
)
def test_two_requirements_together(left: Requirement, right: Requirement, together: Requirement) -> None:
    assert left.intersection(right) == together
    assert right.intersection(left) == together


def test_the_larger_min_values_stays() -> None:
    assert (
        make_requirement("Exists", min_values=2).intersection(make_requirement("Exists", min_values=3)).min_values == 3
    )


def test_gt_and_gte_of_the_next_integer_are_one_requirement() -> None:
    assert make_requirement("Gt", "3") == make_requirement("Gte", "4")
    assert make_requirement("Lt", "4") == make_requirement("Lte", "3")


@pytest.mark.parametrize(
    "selector",
    [
        NodeSelectorRequirement("key", "In"),
        NodeSelectorRequirement("key", "Gt", ("a",)),
        NodeSelectorRequirement("key", "Gt", ("1", "2")),
        NodeSelectorRequirement("key", "Lt", ("-1",)),
        NodeSelectorRequirement("key", "Lte", ()),
        NodeSelectorRequirement("key", "Near", ("a",)),
    ],
)
def test_a_requirement_that_means_nothing_names_its_key(selector: NodeSelectorRequirement) -> None:
    with pytest.raises(RequirementError, match="key"):
        selector.requirement()


def test_a_deprecated_key_is_read_as_its_successor() -> None:
    assert NodeSelectorRequirement("beta.kubernetes.io/arch", "In", ("arm64",)).requirement().key == labels.ARCH


class TestCompatible:
    """Whether a node with the left requirements can host a pod with the right ones."""

    def test_a_custom_label_must_be_declared(self) -> None:
        pod = make_requirements(NodeSelectorRequirement("team", "In", ("a",)))
        assert not Requirements().is_compatible(pod)
        assert make_requirements(NodeSelectorRequirement("team", "Exists")).is_compatible(pod)

    def test_a_well_known_label_need_not(self) -> None:
        assert Requirements().is_compatible(make_requirements(NodeSelectorRequirement(labels.ZONE, "In", ("z1",))))

    @pytest.mark.parametrize(
        "selector", [NodeSelectorRequirement("team", "NotIn", ("a",)), NodeSelectorRequirement("team", "DoesNotExist")]
    )
    def test_a_negative_demand_is_met_by_a_label_nobody_declares(self, selector: NodeSelectorRequirement) -> None:
        assert Requirements().is_compatible(make_requirements(selector))

    @pytest.mark.parametrize(
        ("node", "pod", "fits"),
        [
            (NodeSelectorRequirement("foo", "NotIn", ("a",)), NodeSelectorRequirement("foo", "DoesNotExist"), True),
            (NodeSelectorRequirement("foo", "DoesNotExist"), NodeSelectorRequirement("foo", "NotIn", ("a",)), True),
            (NodeSelectorRequirement("foo", "Exists"), NodeSelectorRequirement("foo", "DoesNotExist"), False),
            (NodeSelectorRequirement("foo", "In", ("a",)), NodeSelectorRequirement("foo", "In", ("b",)), False),
        ],
    )
    def test_two_negatives_meet_and_a_positive_does_not_meet_absence(
        self, node: NodeSelectorRequirement, pod: NodeSelectorRequirement, fits: bool
    ) -> None:
        assert make_requirements(node).is_compatible(make_requirements(pod)) is fits


def test_demands_that_contradict_each_other_are_no_demand_for_absence() -> None:
    assert conjunction((make_requirement("In", "a"), make_requirement("In", "b"))) is None
    assert conjunction((make_requirement("DoesNotExist"), make_requirement("NotIn", "b"))) is not None


def test_labels_that_are_certain() -> None:
    together = make_requirements(
        NodeSelectorRequirement("a", "In", ("1",)),
        NodeSelectorRequirement("b", "In", ("1", "2")),
        NodeSelectorRequirement("c", "Exists"),
    )
    assert together.labels() == {"a": "1"}


def test_a_long_list_is_cut_and_counted() -> None:
    assert str(make_requirement("In", *"gfedcba")) == "key In [a, b, c, d, e and 2 others]"


def test_bounds_are_shown_as_most_people_write_them() -> None:
    assert str(make_requirement("Gt", "20")) == "key Gt [20]"
    assert str(make_requirement("Lte", "32")) == "key Lt [33]"
    assert str(make_requirement("Gte", "0")) == "key Gte [0]"


def test_bounds_and_exclusions_are_both_written() -> None:
    requirement = (
        make_requirement("Gt", "3")
        .intersection(make_requirement("Lt", "9"))
        .intersection(make_requirement("NotIn", "5"))
    )
    operators = [selector.operator for selector in requirement.node_selector_requirements()]
    assert operators == [Operator.GTE, Operator.LTE, Operator.NOT_IN]
    assert from_expressions(requirement.node_selector_requirements()).get("key") == requirement


def test_a_node_selector_is_a_set_of_requirements() -> None:
    assert from_labels({"failure-domain.beta.kubernetes.io/zone": "z1"}).get(labels.ZONE).sole_value == "z1"


@pytest.mark.parametrize("value", ["1_000", " 7", "+7", "７", "7.0"])
def test_only_plain_integers_are_within_bounds(value: str) -> None:
    assert not make_requirement("Gt", "0").has(value)


@pytest.mark.parametrize("positive", [make_requirement("Exists"), make_requirement("Gt", "1")])
def test_an_exclusion_beside_a_label_that_must_be_there_is_not_met_by_absence(positive: Requirement) -> None:
    both = positive.intersection(make_requirement("NotIn", "7"))
    assert not both.allows_absence
    assert from_expressions(both.node_selector_requirements()).get("key") == both
