"""Whether a pod is evicted, rescheduled or left alone when its node is disrupted, and what that costs.

Source: Karpenter v1.14 ``pkg/utils/pod/scheduling.go`` and ``pkg/utils/disruption``.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from spotwright.model import labels
from spotwright.model.kubernetes.meta import LONGEST_DURATION_SECONDS
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.model.requirements import NodeSelectorRequirement, RequirementError

DISRUPTED_TAINT: Final = Taint(labels.DISRUPTED, TaintEffect.NO_SCHEDULE)
_USUAL_COST: Final = Fraction(1)
# A pod that exists this long after its deletion time is stuck; no drain waits for it.
STUCK_TERMINATING_AFTER: Final = timedelta(minutes=1)


_GO_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NANOSECONDS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip


def parse_go_duration(text: str) -> timedelta | None:
    """A positive Go duration (``90s``, ``1h30m``, ``1.5h``), LONGEST_DURATION_SECONDS at most; None when it is
    malformed, zero or negative."""
    body = text.removeprefix("+")
    parts = _GO_DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        return None
    total = sum(Decimal(number) * _NANOSECONDS[unit] for number, unit in parts)
    longest = LONGEST_DURATION_SECONDS * _NANOSECONDS["s"]
    return timedelta(microseconds=int(min(total, longest) / 1000)) if total > 0 else None


def is_do_not_disrupt_active(pod: Pod, now: datetime) -> bool:
    """Whether the annotation do-not-disrupt protects the pod: ``true``, or a duration from the pod's start."""
    value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT, "")
    if value == "true":
        return True
    if pod.start_time is None:
        return parse_go_duration(value) is not None
    until = do_not_disrupt_until(pod)
    return until is not None and now < until


def do_not_disrupt_until(pod: Pod) -> datetime | None:
    """When the annotation do-not-disrupt of a pod that has started ends, or has ended; None = it is no duration."""
    lasting = parse_go_duration(pod.metadata.annotations.get(labels.DO_NOT_DISRUPT, ""))
    return pod.start_time + lasting if lasting is not None and pod.start_time is not None else None


def invalid_do_not_disrupt(pod: Pod) -> str:
    """The value of the pod's annotation do-not-disrupt where it is invalid; "" = it is valid, absent or ``false``."""
    value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT, "")
    return "" if value in ("true", "false") or parse_go_duration(value) is not None else value


def tolerates_disruption(pod: Pod) -> bool:
    """Whether the pod tolerates the taint ``karpenter.sh/disrupted`` and stays until its node is gone."""
    return any(toleration.tolerates(DISRUPTED_TAINT) for toleration in pod.tolerations)


def is_owned_by_daemonset(pod: Pod) -> bool:
    return pod.is_owned_by("DaemonSet")


def is_reschedulable(pod: Pod) -> bool:
    """Whether the pod needs another node. A terminating StatefulSet pod does, since a pod of its name follows."""
    comes_back = pod.is_active or (pod.is_owned_by("StatefulSet") and not pod.is_terminal)
    return comes_back and not is_owned_by_daemonset(pod) and not pod.is_mirror


def is_evictable(pod: Pod, now: datetime) -> bool:
    return (
        pod.is_active and not tolerates_disruption(pod) and not pod.is_mirror and not is_do_not_disrupt_active(pod, now)
    )


def is_waiting_eviction(pod: Pod, now: datetime) -> bool:
    """Whether a drain must wait for this pod; a terminating pod counts until it is stuck."""
    if pod.is_terminal or pod.is_mirror or tolerates_disruption(pod):
        return False
    return pod.metadata.deletion_timestamp is None or now <= pod.metadata.deletion_timestamp + STUCK_TERMINATING_AFTER


def eviction_cost(pod: Pod) -> Fraction:
    """Cost of evicting a pod, between -10 and 10: 1, more with a deletion cost or a priority."""
    if not pod.priority and labels.POD_DELETION_COST not in pod.metadata.annotations:
        return _USUAL_COST
    try:
        deletion = int(pod.metadata.annotations.get(labels.POD_DELETION_COST, "0"))
    except ValueError:
        deletion = 0
    return max(Fraction(-10), min(Fraction(10), 1 + Fraction(deletion, 2**27) + Fraction(pod.priority, 2**25)))


def select_budgets(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> tuple[PodDisruptionBudget, ...]:
    """The budgets that select this pod, by name. One whose selector cannot be read allows no eviction in its namespace,
    as one that cannot be decoded: a cluster state may be of a forwarder that knows more operators, or fewer checks."""
    selecting = (
        counted
        for budget in budgets
        if budget.metadata.namespace == pod.metadata.namespace and (counted := _if_selecting(budget, pod)) is not None
    )
    return tuple(sorted(selecting, key=lambda budget: budget.metadata.name))


def _if_selecting(budget: PodDisruptionBudget, pod: Pod) -> PodDisruptionBudget | None:
    """The budget as it counts for a pod of its namespace; None = it does not select the pod."""
    try:
        selects = budget.selector is not None and meets_expressions(budget.selector, pod.metadata.labels)
    except RequirementError as error:
        return PodDisruptionBudget(budget.metadata, (), read_error=str(error))
    return budget if selects else None


def meets_expressions(selectors: Iterable[NodeSelectorRequirement], values: Mapping[str, str]) -> bool:
    """Whether labels meet every expression; an absent label meets only NotIn and DoesNotExist.

    Raises RequirementError, also where another expression is not met.
    """
    requirements = [(values.get(selector.key), selector.requirement()) for selector in selectors]
    return all(
        requirement.allows_absence if value is None else requirement.has(value) for value, requirement in requirements
    )


def eviction_refusal(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> str:
    """Why the eviction API would refuse to evict this pod now; "" = it would not."""
    selecting = select_budgets(pod, budgets)
    if len(selecting) > 1:
        return "eviction does not support multiple PDBs"
    if not selecting or selecting[0].disruptions_allowed > 0:
        return ""
    if selecting[0].unhealthy_pod_eviction_policy == "AlwaysAllow" and not pod.is_ready:
        return ""
    return f"pdb prevents pod evictions (PodDisruptionBudget={selecting[0].metadata.key})"
