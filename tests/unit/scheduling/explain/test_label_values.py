"""Values of NodePools that no instance type has, beside others."""

from spotwright.model import labels
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import instance, planned, pod, pool


def notes(key: str, *values: str) -> tuple[str, ...]:
    return planned(pod(), pools=(pool("default", NodeSelectorRequirement(key, "In", values)),)).notes


def test_a_value_that_no_type_has_is_a_note_with_the_nearest() -> None:
    assert notes(labels.INSTANCE_TYPE, "small", "mediun") == (
        "NodePool default: spec.template.spec.requirements[0]: there is no instance type mediun; did you mean medium?",
    )


def test_values_that_exist_are_no_note() -> None:
    assert not notes(labels.INSTANCE_TYPE, "small", "medium")


def test_standard_values_that_no_type_here_has_are_no_note() -> None:
    assert not notes(labels.ARCH, "amd64", "arm64")


def test_zones_without_subnets_are_no_note() -> None:
    assert not notes(labels.ZONE, "z1", "z9")


def test_bounds_are_told_as_they_were_written() -> None:
    key = labels.INSTANCE_PREFIX + "generation"
    old = instance("old", 2, 4, 0.10, labels={key: "5"})
    for operator, number in (("Gt", "20"), ("Gte", "21")):
        item = NodeSelectorRequirement(key, operator, (number,))
        (note,) = planned(pod(), pools=(pool("default", item),), types=(old,)).notes
        assert f"none has {item.key} {operator} [{number}]" in note
