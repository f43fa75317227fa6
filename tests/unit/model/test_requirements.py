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


def one(operator: str, *values: str, key: str = "key", min_values: int | None = None) -> Requirement:
    return NodeSelectorRequirement(key, operator, values, min_values).requirement()


def several(*selectors: NodeSelectorRequirement) -> Requirements:
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
    requirement = one(operator, *values)
    assert [value for value in allowed if not requirement.has(value)] == []
    assert [value for value in denied if requirement.has(value)] == []


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_a_negative_requirement_is_met_by_absence(operator: str) -> None:
    assert one(operator, *(["a"] if operator == "NotIn" else [])).allows_absence


@pytest.mark.parametrize("operator", ["In", "Exists", "Gt", "Lt", "Gte", "Lte"])
def test_a_positive_requirement_is_not_met_by_absence(operator: str) -> None:
    assert not one(operator, *([] if operator == "Exists" else ["3"])).allows_absence


@pytest.mark.parametrize(
    ("left", "right", "together"),
    [
        (one("In", "a", "b"), one("NotIn", "a"), one("In", "b")),
        (one("NotIn", "a"), one("NotIn", "b"), one("NotIn", "a", "b")),
        (one("Exists"), one("In", "a"), one("In", "a")),
        (one("DoesNotExist"), one("In", "a"), one("DoesNotExist")),
        (one("Gt", "9"), one("Lt", "1"), one("DoesNotExist")),
        (one("Gt", "1").intersection(one("Lt", "9")), one("In", "1", "5", "9"), one("In", "5")),
        (one("Gt", "1"), one("In", "A"), one("DoesNotExist")),
        (one("Gt", "3"), one("Gte", "4"), one("Gte", "4")),
        (one("Lt", "4"), one("Lte", "3"), one("Lte", "3")),
        (one("Gt", "3"), one("Gte", "7"), one("Gte", "7")),
    ],
)
def test_two_requirements_together(left: Requirement, right: Requirement, together: Requirement) -> None:
    assert left.intersection(right) == together
    assert right.intersection(left) == together


def test_the_larger_min_values_stays() -> None:
    assert one("Exists", min_values=2).intersection(one("Exists", min_values=3)).min_values == 3


def test_gt_and_gte_of_the_next_integer_are_one_requirement() -> None:
    assert one("Gt", "3") == one("Gte", "4")
    assert one("Lt", "4") == one("Lte", "3")


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
        pod = several(NodeSelectorRequirement("team", "In", ("a",)))
        assert not Requirements().is_compatible(pod)
        assert several(NodeSelectorRequirement("team", "Exists")).is_compatible(pod)

    def test_a_well_known_label_need_not(self) -> None:
        assert Requirements().is_compatible(several(NodeSelectorRequirement(labels.ZONE, "In", ("z1",))))

    @pytest.mark.parametrize(
        "selector", [NodeSelectorRequirement("team", "NotIn", ("a",)), NodeSelectorRequirement("team", "DoesNotExist")]
    )
    def test_a_negative_demand_is_met_by_a_label_nobody_declares(self, selector: NodeSelectorRequirement) -> None:
        assert Requirements().is_compatible(several(selector))

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
        assert several(node).is_compatible(several(pod)) is fits


def test_demands_that_contradict_each_other_are_no_demand_for_absence() -> None:
    assert conjunction((one("In", "a"), one("In", "b"))) is None
    assert conjunction((one("DoesNotExist"), one("NotIn", "b"))) is not None


def test_labels_that_are_certain() -> None:
    together = several(
        NodeSelectorRequirement("a", "In", ("1",)),
        NodeSelectorRequirement("b", "In", ("1", "2")),
        NodeSelectorRequirement("c", "Exists"),
    )
    assert together.labels() == {"a": "1"}


def test_a_long_list_is_cut_and_counted() -> None:
    assert str(one("In", *"gfedcba")) == "key In [a, b, c, d, e and 2 others]"


def test_bounds_and_exclusions_are_both_written() -> None:
    requirement = one("Gt", "3").intersection(one("Lt", "9")).intersection(one("NotIn", "5"))
    operators = [selector.operator for selector in requirement.node_selector_requirements()]
    assert operators == [Operator.GTE, Operator.LTE, Operator.NOT_IN]
    assert from_expressions(requirement.node_selector_requirements()).get("key") == requirement


def test_a_node_selector_is_a_set_of_requirements() -> None:
    assert from_labels({"failure-domain.beta.kubernetes.io/zone": "z1"}).get(labels.ZONE).sole_value == "z1"


@pytest.mark.parametrize("value", ["1_000", " 7", "+7", "７", "7.0"])
def test_only_plain_integers_are_within_bounds(value: str) -> None:
    assert not one("Gt", "0").has(value)


@pytest.mark.parametrize("positive", [one("Exists"), one("Gt", "1")])
def test_an_exclusion_beside_a_label_that_must_be_there_is_not_met_by_absence(positive: Requirement) -> None:
    both = positive.intersection(one("NotIn", "7"))
    assert not both.allows_absence
    assert from_expressions(both.node_selector_requirements()).get("key") == both
