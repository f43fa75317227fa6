"""An eviction of a pod, with what PodDisruptionBudgets refuse known to all nodes that drain."""

from datetime import datetime

import msgspec

from spotwright.errors import ApiError, Conflict
from spotwright.lifecycle import refused_evictions
from spotwright.lifecycle.refused_evictions import RefusedEvictions, find_refusal
from spotwright.model.kubernetes.pod import Pod
from spotwright.workflows.ports.bundles import LifecyclePorts


def known_refusals(ports: LifecyclePorts) -> dict[str, RefusedEvictions]:
    """What is refused now, by key. While the state table does not answer, each node asks for itself."""
    try:
        return {refused.key: refused for refused in ports.state.refused_evictions()}
    except ApiError:
        return {}


def evict_pod(ports: LifecyclePorts, pod: Pod, known: dict[str, RefusedEvictions], *, now: datetime) -> bool:
    """Whether the pod was evicted; False: that is refused, or would be.

    Of the pods that a refusing budget selects, on all nodes, a single one is asked for at a time. ``known``: refusals
    by key, as they were read a moment ago; it is kept up to date.
    """
    refused = find_refusal(pod, known.values())
    if refused is not None:
        if not refused.is_due(now):
            return False
        asking = _save(ports, refused_evictions.ask_again(refused, now))
        if asking is None:
            # Another node asks.
            return False
        known[refused.key] = refused = asking
    is_evicted = ports.cluster.evict(pod)
    if is_evicted and refused is not None:
        _end_refusal(ports, refused, known)
    if not is_evicted and refused is None:
        _note_refusal(ports, pod, known, now)
    if not is_evicted and refused is not None and refused.are_budgets_old(now):
        _read_budgets_again(ports, pod, refused, known, now)
    return is_evicted


def _note_refusal(ports: LifecyclePorts, pod: Pod, known: dict[str, RefusedEvictions], now: datetime) -> None:
    """Tell the other nodes, unless one of them did meanwhile. A note that is lost costs a request."""
    known |= known_refusals(ports)
    if find_refusal(pod, known.values()) is None:
        refused = refused_evictions.refuse(pod, ports.cluster.pod_disruption_budgets(), now)
        if refused is not None:
            _save_over(ports, refused, known)


def _read_budgets_again(
    ports: LifecyclePorts, pod: Pod, refused: RefusedEvictions, known: dict[str, RefusedEvictions], now: datetime
) -> None:
    """Pods that the budgets selected, and do not select any more, would wait for one that is refused each time."""
    current = refused_evictions.refuse(pod, ports.cluster.pod_disruption_budgets(), now)
    if current is not None and current.key == refused.key:
        _save_over(ports, refused_evictions.with_budgets_of(refused, current), known)
        return
    _end_refusal(ports, refused, known)
    if current is not None:
        _save_over(ports, current, known)


def _end_refusal(ports: LifecyclePorts, refused: RefusedEvictions, known: dict[str, RefusedEvictions]) -> None:
    known[refused.key] = _save(ports, refused_evictions.end_refusal(refused)) or refused


def _save_over(ports: LifecyclePorts, refused: RefusedEvictions, known: dict[str, RefusedEvictions]) -> None:
    """Save it in place of the row that is known, if one is."""
    before = known.get(refused.key)
    refused = msgspec.structs.replace(refused, version=before.version if before else 0)
    known[refused.key] = _save(ports, refused) or refused


def _save(ports: LifecyclePorts, refused: RefusedEvictions) -> RefusedEvictions | None:
    """As it is stored now; None when another was first. Where the state table does not answer it is not stored."""
    try:
        ports.state.save_refused_evictions(refused)
    except Conflict:
        return None
    except ApiError:
        return refused
    return msgspec.structs.replace(refused, version=refused.version + 1)
