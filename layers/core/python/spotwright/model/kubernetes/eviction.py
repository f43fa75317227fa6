"""What may happen to a pod when its node goes: stay, be evicted, be moved elsewhere.

Source: Karpenter v1.14 ``pkg/utils/pod/scheduling.go`` and ``pkg/utils/disruption``, in our words.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from spotwright.model import labels
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.model.requirements import NodeSelectorRequirement

DISRUPTED_TAINT: Final = Taint(labels.DISRUPTED, TaintEffect.NO_SCHEDULE)
# A pod that outlives its own deletion time by this much is stuck; nobody waits for it.
STUCK_TERMINATING_AFTER: Final = timedelta(minutes=1)

POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_GO_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NANOSECONDS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip


def parse_go_duration(text: str) -> timedelta | None:
    """A positive Go duration (``90s``, ``1h30m``, ``1.5h``); None when it is malformed, zero or negative."""
    body = text.removeprefix("+")
    parts = _GO_DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        return None
    total = sum(Fraction(number if number[-1] != "." else number + "0") * _NANOSECONDS[unit] for number, unit in parts)
    return timedelta(microseconds=int(total / 1000)) if total > 0 else None


def is_do_not_disrupt_active(pod: Pod, now: datetime) -> bool:
    """True while the pod's annotation forbids to evict it: ``true``, or a duration counted from its start."""
    value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT, "")
    if value == "true":
        return True
    lasting = parse_go_duration(value)
    return lasting is not None and (pod.start_time is None or now < pod.start_time + lasting)


def tolerates_disruption(pod: Pod) -> bool:
    """True for a pod that wants to stay on a disrupted node to the end."""
    return any(toleration.tolerates(DISRUPTED_TAINT) for toleration in pod.tolerations)


def is_owned_by_daemonset(pod: Pod) -> bool:
    return pod.is_owned_by("DaemonSet")


def is_reschedulable(pod: Pod) -> bool:
    """Needs another place when its node goes. A terminating StatefulSet pod does: its successor has its name."""
    comes_back = pod.is_active or (pod.is_owned_by("StatefulSet") and not pod.is_terminal)
    return comes_back and not is_owned_by_daemonset(pod) and not pod.is_mirror


def is_evictable(pod: Pod, now: datetime) -> bool:
    return (
        pod.is_active and not tolerates_disruption(pod) and not pod.is_mirror and not is_do_not_disrupt_active(pod, now)
    )


def is_waiting_eviction(pod: Pod, now: datetime) -> bool:
    """True while a drain must wait for this pod; terminating ones count until they are stuck."""
    if pod.is_terminal or pod.is_mirror or tolerates_disruption(pod):
        return False
    return pod.metadata.deletion_timestamp is None or now <= pod.metadata.deletion_timestamp + STUCK_TERMINATING_AFTER


def eviction_cost(pod: Pod) -> Fraction:
    """Cost of evicting a pod, between -10 and 10: 1, more with a deletion cost or a priority."""
    try:
        deletion = int(pod.metadata.annotations.get(POD_DELETION_COST, "0"))
    except ValueError:
        deletion = 0
    return max(Fraction(-10), min(Fraction(10), 1 + Fraction(deletion, 2**27) + Fraction(pod.priority, 2**25)))


def select_budgets(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> tuple[PodDisruptionBudget, ...]:
    """The budgets that select this pod, by name."""
    mine = (
        budget
        for budget in budgets
        if budget.metadata.namespace == pod.metadata.namespace
        and budget.selector is not None
        and meets_expressions(budget.selector, pod.metadata.labels)
    )
    return tuple(sorted(mine, key=lambda budget: budget.metadata.name))


def meets_expressions(selectors: Iterable[NodeSelectorRequirement], values: Mapping[str, str]) -> bool:
    """True when labels meet every selector; an absent label meets only NotIn and DoesNotExist."""
    for selector in selectors:
        wanted = selector.requirement()
        value = values.get(selector.key)
        if not (wanted.allows_absence if value is None else wanted.has(value)):
            return False
    return True


def eviction_refusal(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> str:
    """Why the eviction API would refuse this pod now; "" when it would not."""
    mine = select_budgets(pod, budgets)
    if len(mine) > 1:
        return "eviction does not support multiple PDBs"
    if not mine or mine[0].disruptions_allowed > 0:
        return ""
    if mine[0].unhealthy_pod_eviction_policy == "AlwaysAllow" and not pod.is_ready:
        return ""
    return f"pdb prevents pod evictions (PodDisruptionBudget={mine[0].metadata.key})"
