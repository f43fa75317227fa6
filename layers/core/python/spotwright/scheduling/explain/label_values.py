"""Values of labels that no instance type has, and those that were probably meant."""

import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.requirements import Operator, Requirement
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate

# What people call the values of a label.
_NOUNS: Final = {
    labels.INSTANCE_TYPE: "instance type",
    labels.ZONE: "zone",
    labels.CAPACITY_TYPE: "capacity type",
    labels.ARCH: "architecture",
    labels.OS: "operating system",
    labels.WINDOWS_BUILD: "build of Windows",
    f"{labels.INSTANCE_PREFIX}family": "instance family",
    f"{labels.INSTANCE_PREFIX}category": "instance category",
    f"{labels.INSTANCE_PREFIX}size": "instance size",
}
# Values that exist whatever types are known.
_STANDARD_VALUES: Final = {
    labels.ARCH: frozenset(("amd64", "arm64")),
    labels.OS: frozenset(("linux", "windows")),
    labels.WINDOWS_BUILD: frozenset(("10.0.17763", "10.0.20348", "10.0.26100")),
    labels.CAPACITY_TYPE: frozenset((labels.ON_DEMAND, labels.SPOT, labels.RESERVED)),
}
# Labels of so few values that all of them are worth listing.
_FEW_VALUES: Final = frozenset((labels.ZONE, *_STANDARD_VALUES))
_SIMILAR: Final = 0.75
_MOST_NAMED: Final = 3


def known_values(key: str, types: Iterable[InstanceType]) -> frozenset[str]:
    """The values of a label that these types, or their offerings, have."""
    if key == labels.ZONE:
        return frozenset(offering.zone for instance_type in types for offering in instance_type.offerings)
    if key == labels.CAPACITY_TYPE:
        return frozenset(offering.capacity_type for instance_type in types for offering in instance_type.offerings)
    stated = (instance_type.requirements.by_key.get(key) for instance_type in types)
    return frozenset(value for label in stated if label is not None and not label.complement for value in label.values)


def explain_unknown_values(requirement: Requirement, known: Collection[str]) -> str:
    """``there is no instance type m5.lareg; did you mean m5.large?``; "" unless all values that it allows are unknown.

    ``known``: the values that the types there are have. Of zones and the like all of them are listed.
    """
    unknown, key = sorted(requirement.values), requirement.key
    existing = _STANDARD_VALUES.get(key, frozenset()).union(known)
    if requirement.complement or not unknown or not known or not existing.isdisjoint(unknown):
        return ""
    listed = ", ".join(unknown[:_MOST_NAMED]) + (f" or {len(unknown) - _MOST_NAMED} more" if len(unknown) > 3 else "")
    text = f"there is no {_NOUNS.get(key, f'{key} with the value')} {listed}"
    similar = nearest(unknown[0], existing) if key != labels.ZONE else ""
    if similar:
        return f"{text}; did you mean {similar}?"
    return f"{text}; known: {', '.join(sorted(existing))}" if key in _FEW_VALUES else text


def note_unknown_values(templates: Iterable[NodeClaimTemplate]) -> Iterator[str]:
    """A sentence for each of the NodePools' requirements that lists values no instance type has beside others.

    Not of zones: where a class has no subnet, a zone is not wrong.
    """
    for template in sorted(templates, key=lambda template: template.nodepool.name):
        for number, item in enumerate(template.nodepool.requirements):
            if item.operator == Operator.IN and len(item.values) > 1 and item.key != labels.ZONE:
                known = known_values(labels.normalize(item.key), template.instance_types)
                unknown = frozenset(item.values) - known - _STANDARD_VALUES.get(item.key, frozenset())
                sentence = explain_unknown_values(Requirement(labels.normalize(item.key), False, unknown), known)
                if sentence and len(unknown) < len(item.values):
                    yield f"NodePool {template.nodepool.name}: spec.template.spec.requirements[{number}]: {sentence}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like this one; "" if none is much like it."""
    ordered = sorted(known)
    matches = difflib.get_close_matches(word.lower(), ordered, n=1, cutoff=_SIMILAR)
    return matches[0] if matches else ""
