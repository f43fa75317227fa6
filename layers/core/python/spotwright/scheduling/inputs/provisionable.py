"""Which pods need a node: pending pods that kube-scheduler called Unschedulable, and pods of nodes on their way out.

Source: Karpenter v1.14 ``pkg/utils/pod/scheduling.go`` and ``pkg/controllers/provisioning/provisioner.go``.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.eviction import is_do_not_disrupt_active
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.pod_constraints import selects
from spotwright.model.quoting import quote
from spotwright.model.requirements import NodeSelectorRequirement, Operator, RequirementError
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.inputs.storage_index import StorageIndex
from spotwright.scheduling.inputs.volume_errors import volume_error
from spotwright.scheduling.plan import Cause, UnplacedPod

_LABEL_KEY: Final = re.compile(
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE: Final = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_KNOWN_VALUES: Final = {
    labels.CAPACITY_TYPE: frozenset((labels.ON_DEMAND, labels.SPOT, labels.RESERVED)),
    labels.INSTANCE_PREFIX + "tenancy": frozenset(("default", "dedicated")),
}

# How alike a label that may not be asked for and a well-known label are where that was probably meant.
_SIMILAR: Final = 0.9

# Causes of ignored pods that have no place until somebody changes something.
UNREADABLE: Final = "Unreadable"
INVALID_REQUIREMENT: Final = "InvalidRequirement"
VOLUME_NOT_USABLE: Final = "VolumeNotUsable"
PLACELESS_CAUSES: Final = frozenset((UNREADABLE, INVALID_REQUIREMENT, VOLUME_NOT_USABLE))


class PodSelection(msgspec.Struct, frozen=True):
    """``provisionable_pods``: pods to find a place for. ``ignored_pods``: pods without a node that are not ours to
    place.
    """

    provisionable_pods: tuple[Pod, ...]
    ignored_pods: tuple[UnplacedPod, ...]


def select_pods(snapshot: Snapshot, deleting_nodes: frozenset[str], storage: StorageIndex) -> PodSelection:
    """Split the pods that have no lasting place. ``deleting_nodes``: names of nodes on their way out."""
    provisionable, ignored = [], []
    for pod in snapshot.pods:
        if pod.node_name:
            if pod.node_name in deleting_nodes and _needs_new_node(pod, snapshot):
                provisionable.append(pod)
            continue
        if pod.phase in ("Succeeded", "Failed") or pod.is_mirror:
            continue
        if why := ignore_reason(pod):
            ignored.append(UnplacedPod(pod.key, (why,), (_ignore_cause(pod),)))
        elif why := volume_error(pod, storage) if pod.volume_claim_names else "":
            ignored.append(UnplacedPod(pod.key, (why,), (Cause(VOLUME_NOT_USABLE),)))
        else:
            provisionable.append(pod)
    return PodSelection(tuple(provisionable), tuple(ignored))


def ignore_reason(pod: Pod) -> str:
    """Why a pod without a node is not ours to place; "" when it is."""
    if pod.metadata.owner_references and pod.is_owned_by("DaemonSet"):
        return "it is owned by a DaemonSet: nodes are sized for DaemonSets, never made for them"
    if pod.nominated_node_name:
        return f"kube-scheduler is making room for it on node {pod.nominated_node_name} (status.nominatedNodeName)"
    if not pod.unschedulable:
        return "kube-scheduler has not called it Unschedulable (it is gated, or has not been tried yet)"
    if pod.read_error:
        return f"it cannot be read: {pod.read_error}"
    return next(requirement_errors(pod), "") if pod.node_selector or pod.node_affinity else ""


def _ignore_cause(pod: Pod) -> Cause:
    """The cause that goes with ``ignore_reason``."""
    if pod.is_owned_by("DaemonSet"):
        return Cause("OwnedByDaemonSet")
    if pod.nominated_node_name:
        return Cause("NominatedElsewhere", details={"node": pod.nominated_node_name})
    if not pod.unschedulable:
        return Cause("NotUnschedulable")
    return Cause(UNREADABLE if pod.read_error else INVALID_REQUIREMENT)


def requirement_errors(pod: Pod) -> Iterator[str]:
    """What is wrong with the nodeSelector or the required node affinity of a pod."""
    for key, value in pod.node_selector.items():
        yield from _expression_errors(NodeSelectorRequirement(key, Operator.IN, (value,)), "nodeSelector")
    for term in pod.node_affinity:
        for expression in term:
            yield from _expression_errors(expression, "node affinity")


def _expression_errors(expression: NodeSelectorRequirement, where: str) -> Iterator[str]:
    key = labels.normalize(expression.key)
    if key == labels.NODEPOOL and expression.operator == Operator.DOES_NOT_EXIST:
        yield f"its {where} says {labels.NODEPOOL} DoesNotExist: it wants no node of a NodePool"
        return
    try:
        expression.requirement()
    except RequirementError as error:
        yield f"its {where} is invalid: {error}"
        return
    known_values = _KNOWN_VALUES.get(key, frozenset(expression.values))
    if not _LABEL_KEY.match(key):
        yield f"its {where} is invalid: {quote(expression.key)} is not a label key"
    elif labels.is_restricted(key) and key != labels.EC2NODECLASS:
        similar = difflib.get_close_matches(key, sorted(labels.WELL_KNOWN), n=1, cutoff=_SIMILAR)
        hint = f"; did you mean {similar[0].rpartition('/')[2]}?" if similar else ""
        yield f"its {where} may not ask for label {key}: that label is set by the provisioner alone{hint}"
    elif invalid := [value for value in expression.values if not _LABEL_VALUE.match(value)]:
        yield f"its {where} is invalid: {quote(invalid[0])} is not a value of a label ({key})"
    elif expression.operator == Operator.IN and not known_values.intersection(expression.values):
        yield f"its {where} is invalid: {key} has none of the values {', '.join(sorted(known_values))}"


def _needs_new_node(pod: Pod, snapshot: Snapshot) -> bool:
    """True for a pod of a node on its way out that will need another node."""
    if pod.is_terminal or pod.is_mirror or pod.is_owned_by("DaemonSet"):
        return False
    if pod.metadata.deletion_timestamp is not None and not pod.is_owned_by("StatefulSet"):
        return False
    if is_do_not_disrupt_active(pod, snapshot.now):
        return False
    budgets = [budget for budget in snapshot.pod_disruption_budgets if _selects_pod(budget, pod)]
    return len(budgets) <= 1 and not any(_forbids_eviction(budget, pod) for budget in budgets)


def _selects_pod(budget: PodDisruptionBudget, pod: Pod) -> bool:
    if budget.selector is None or budget.metadata.namespace != pod.metadata.namespace:
        return False
    return selects(budget.selector, pod.metadata.labels)


def _forbids_eviction(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """True for a budget that forbids every eviction, however many pods there are."""
    if budget.unhealthy_pod_eviction_policy == "AlwaysAllow" and not pod.is_ready:
        return False
    return str(budget.max_unavailable) in ("0", "0%") or str(budget.min_available) == "100%"


def is_follower(pod: Pod, settings: Settings) -> bool:
    """True for a pod that never causes the first node: annotated, or selected by FOLLOWER_SELECTORS in kube-system."""
    return pod.metadata.annotations.get(labels.FOLLOW) == "true" or bool(matching_follower_selector(pod, settings))


def matching_follower_selector(pod: Pod, settings: Settings) -> str:
    """The first of FOLLOWER_SELECTORS that selects a pod of kube-system, as ``key=value``; "" if none does."""
    if pod.metadata.namespace != "kube-system":
        return ""
    return next((pair for pair in settings.follower_selectors if _has_label(pod.metadata.labels, pair)), "")


def _has_label(values: dict[str, str], pair: str) -> bool:
    key, _, value = pair.partition("=")
    return values.get(key) == value
