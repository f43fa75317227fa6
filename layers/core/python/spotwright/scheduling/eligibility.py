"""Which pods ask for a node: pending ones that kube-scheduler gave up on, and those whose node is going away.

Source: Karpenter v1.14 ``pkg/utils/pod/scheduling.go`` and ``pkg/controllers/provisioning/provisioner.go``.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.company import selects
from spotwright.model.eviction import do_not_disrupt
from spotwright.model.pod import Pod, PodDisruptionBudget
from spotwright.model.requirements import Operator, RequirementError, Selector
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.plan import Refused

_KEY: Final = re.compile(r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE: Final = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_CLOSED_VALUES: Final = {
    labels.CAPACITY_TYPE: frozenset((labels.ON_DEMAND, labels.SPOT, labels.RESERVED)),
    labels.INSTANCE_PREFIX + "tenancy": frozenset(("default", "dedicated")),
}


class Intake(msgspec.Struct, frozen=True):
    """``candidates``: pods to find a place for. ``ignored``: pods without a node that are not ours to place."""

    candidates: tuple[Pod, ...]
    ignored: tuple[Refused, ...]


def sort_out(snapshot: Snapshot, leaving: frozenset[str], disks: Disks) -> Intake:
    """Split the pods that have no lasting place. ``leaving``: names of nodes on their way out."""
    candidates, ignored = [], []
    for pod in snapshot.pods:
        if pod.node_name:
            if pod.node_name in leaving and _moves(pod, snapshot):
                candidates.append(pod)
            continue
        if pod.phase in ("Succeeded", "Failed") or pod.mirror:
            continue
        if why := why_not(pod) or (disks.fault(pod) if pod.volume_claims else ""):
            ignored.append(Refused(pod.key, (why,)))
        else:
            candidates.append(pod)
    return Intake(tuple(candidates), tuple(ignored))


def why_not(pod: Pod) -> str:
    """Why a pod without a node is not ours to place; "" when it is."""
    if pod.metadata.owners and pod.owned_by("DaemonSet"):
        return "it is owned by a DaemonSet: nodes are sized for DaemonSets, never made for them"
    if pod.nominated_node:
        return f"kube-scheduler is making room for it on node {pod.nominated_node} (status.nominatedNodeName)"
    if not pod.unschedulable:
        return "kube-scheduler has not called it Unschedulable (it is gated, or has not been tried yet)"
    if pod.problem:
        return f"it cannot be read: {pod.problem}"
    return next(faults(pod), "") if pod.node_selector or pod.node_affinity else ""


def faults(pod: Pod) -> Iterator[str]:
    """What a nodeSelector or required node affinity asks for that cannot be asked for."""
    for key, value in pod.node_selector.items():
        yield from _selector_faults(Selector(key, Operator.IN, (value,)), "nodeSelector")
    for term in pod.node_affinity:
        for selector in term:
            yield from _selector_faults(selector, "node affinity")


def _selector_faults(selector: Selector, where: str) -> Iterator[str]:
    key = labels.normalize(selector.key)
    if key == labels.NODEPOOL and selector.operator == Operator.DOES_NOT_EXIST:
        yield f"its {where} says {labels.NODEPOOL} DoesNotExist: it wants no node of a NodePool"
        return
    try:
        selector.requirement()
    except RequirementError as error:
        yield f"its {where} is invalid: {error}"
        return
    if not _KEY.match(key):
        yield f"its {where} is invalid: {selector.key!r} is not a label key"
    elif labels.is_restricted(key) and key != labels.EC2NODECLASS:
        yield f"its {where} may not ask for label {key}: that label is set by the provisioner alone"
    elif wrong := [value for value in selector.values if not _VALUE.match(value)]:
        yield f"its {where} is invalid: {wrong[0]!r} is not a value of a label ({key})"
    elif selector.operator == Operator.IN and not _CLOSED_VALUES.get(key, frozenset(selector.values)).intersection(
        selector.values
    ):
        known = ", ".join(sorted(_CLOSED_VALUES[key]))
        yield f"its {where} is invalid: {key} has none of the values {known}"


def _moves(pod: Pod, snapshot: Snapshot) -> bool:
    """True for a pod of a leaving node that will need a new place."""
    if pod.terminal or pod.mirror or pod.owned_by("DaemonSet"):
        return False
    if pod.metadata.deleting is not None and not pod.owned_by("StatefulSet"):
        return False
    if do_not_disrupt(pod, snapshot.now):
        return False
    budgets = [one for one in snapshot.budgets if _guards(one, pod)]
    return len(budgets) <= 1 and not any(_never_allows(one, pod) for one in budgets)


def _guards(budget: PodDisruptionBudget, pod: Pod) -> bool:
    if budget.selector is None or budget.metadata.namespace != pod.metadata.namespace:
        return False
    return selects(budget.selector, pod.metadata.labels)


def _never_allows(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """A budget that forbids every eviction, whatever the pods' number."""
    if budget.unhealthy_pod_eviction_policy == "AlwaysAllow" and not pod.ready:
        return False
    return str(budget.max_unavailable) in ("0", "0%") or str(budget.min_available) == "100%"


def is_follower(pod: Pod, settings: Settings) -> bool:
    """True for a pod that never causes the first node: annotated, or a known companion in kube-system."""
    if pod.metadata.annotations.get(labels.FOLLOW) == "true":
        return True
    if pod.metadata.namespace != "kube-system":
        return False
    return _holds_any(pod.metadata.labels, settings.follower_selectors)


def _holds_any(values: dict[str, str], pairs: Iterable[str]) -> bool:
    return any(values.get(key) == value for key, _, value in (pair.partition("=") for pair in pairs))
