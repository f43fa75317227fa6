"""A reason why a NodePool makes no node for a pod, and the reasons of all NodePools in few sentences."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import msgspec

from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.explain.empty_nodepools import list_some
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.plan import Cause

# From so many NodePools on, only the one that comes closest is told in full.
_MANY_NODEPOOLS: Final = 3


class Nearness(IntEnum):
    """How far a pod gets with a NodePool: a reason of a later step is a nearer miss."""

    CLOSED = 0
    NEVER_FITS = 1
    TOO_LARGE = 2
    SOME_FIT = 3


class PoolOfGroup(msgspec.Struct, frozen=True):
    """A NodePool of a weight group. ``number``: its place among the group's templates; ``new_nodes``: of the plan."""

    group: WeightGroup
    number: int
    new_nodes: int = 0

    @property
    def index(self) -> OfferingIndex:
        return self.group.offering_index

    @property
    def template(self) -> NodeClaimTemplate:
        return self.index.templates[self.number]


class PoolReason(msgspec.Struct, frozen=True):
    """``text``: a sentence about the NodePool, without its name. ``code`` and ``details``: see plan.Cause.

    ``about``: the label key, taint or resource that decides. ``mismatches``: how many labels and taints stand against
    the pod.
    """

    code: str
    text: str
    nearness: Nearness
    about: str = ""
    details: dict[str, str] = {}
    mismatches: int = 0


# What several NodePools have in common, after "8 other NodePools (a, b, c)".
_SUMMARIES: Final = {
    "RequirementNotMet": "allow other values of {about}",
    "NoSuchValue": "have no {about} that the pod asks for",
    "NotAvailable": "have nothing to buy with the {about} that the pod asks for",
    "LabelNotSet": "do not set the label {about}",
    "TaintNotTolerated": "have the taint {about}, which the pod does not tolerate",
    "TooLarge": "have no instance type with enough {about}",
    "LimitReached": "have reached their limit of {about}",
    "MinValuesExceedLimit": "cannot keep their minValues within their limit of {about}",
    "NodePoolClosed": "make no nodes",
    "NodePoolEmpty": "make no nodes",
}


def summarize_reasons(by_nodepool: Sequence[tuple[str, PoolReason]]) -> list[tuple[str, Cause]]:
    """A sentence for each NodePool, nearest miss first; of many, for each way to miss a pod after the nearest.

    ``by_nodepool``: NodePools by name, with their reasons, in the order in which the planner tries them.
    """
    nearest_first = sorted(by_nodepool, key=lambda pair: (-pair[1].nearness, pair[1].mismatches))
    if len(nearest_first) < _MANY_NODEPOOLS:
        return [_sentence(name, reason) for name, reason in nearest_first]
    groups: dict[tuple[str, str], list[tuple[str, PoolReason]]] = {}
    for name, reason in nearest_first[1:]:
        key = (reason.code, reason.about) if reason.code in _SUMMARIES else (reason.code, name)
        groups.setdefault(key, []).append((name, reason))
    first = _sentence(*nearest_first[0])
    return [first, *(_sentence(*group[0]) if len(group) == 1 else _common(group) for group in groups.values())]


def _sentence(name: str, reason: PoolReason) -> tuple[str, Cause]:
    return f"NodePool {name}: {reason.text}", Cause(reason.code, (name,), reason.details)


def _common(group: Sequence[tuple[str, PoolReason]]) -> tuple[str, Cause]:
    """What NodePools have in common that miss a pod in the same way."""
    names, reason = [name for name, _ in group], group[0][1]
    shared = {key: value for key, value in reason.details.items() if all(r.details.get(key) == value for _, r in group)}
    what = _SUMMARIES[reason.code].format(about=reason.about)
    return f"{len(names)} other NodePools ({list_some(names)}) {what}", Cause(reason.code, tuple(names), shared)
