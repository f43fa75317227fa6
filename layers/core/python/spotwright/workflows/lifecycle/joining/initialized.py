"""A NodeClaim that is initialized: its pods and tags, Consolidatable, and a taint that no command stands for."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from spotwright.lifecycle.steps import StepResult, false_condition, true_condition
from spotwright.model import labels
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import is_reschedulable
from spotwright.model.kubernetes.meta import find_condition, format_time
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle import reservations
from spotwright.workflows.lifecycle.actions import (
    delete_claim_and_say_why,
    has_disrupted_taint,
    log,
    request_disruption,
    request_disruption_soon,
    ring_lifecycle,
    uncordon,
    update_conditions,
)
from spotwright.workflows.lifecycle.joining import nominations
from spotwright.workflows.lifecycle.joining.results import with_consistency, write_result
from spotwright.workflows.lifecycle.joining.tagging import tag_instance
from spotwright.workflows.ports.bundles import LifecyclePorts

# So soon after a pod event the steps that follow on it ring for the end of the timer.
TIMER_BEGINS: Final = timedelta(seconds=15)
# A claim that becomes consolidatable this soon is rung for at that moment; later ones are found by the schedule.
SOON: Final = timedelta(seconds=120)


def step_initialized(ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    """Nominations, tags, pod events, Consolidatable; a taint without a command is removed. Seconds until the next step
    at the latest, None = there is none.
    """
    deletion = reservations.step_reservations(ports, claim, node)
    if deletion is not None:
        delete_claim_and_say_why(ports, claim, deletion, now=now)
        return None
    pods = ports.cluster.pods(node=node.name) if node is not None else ()
    binding = nominations.await_binding(ports, claim, node, pods, now)
    return step_pods(ports, claim, node, pods, binding, now)


def step_pods(
    ports: LifecyclePorts,
    claim: NodeClaim,
    node: Node | None,
    pods: Sequence[Pod],
    binding: float | None,
    now: datetime,
) -> float | None:
    """What the ``pods`` of the node of an initialized claim change. ``binding``: seconds until the next look at those
    that are to be bound, None = no pod is. Seconds until the next step at the latest, None = there is none.
    """
    annotations, tagging = tag_instance(ports, claim, claim.node_name, now)
    if node is not None:
        claim = write_result(ports, claim, with_consistency(claim, node, StepResult()), now)
        if has_disrupted_taint(node) and not _is_disrupted(ports, claim):
            uncordon(ports, node)
            if claim.is_condition_true("DisruptionReason"):
                cleared = [false_condition("DisruptionReason", "NotDisrupted")]
                claim = update_conditions(ports, claim, cleared, now=now)
        if consolidation_timer.has_other_pods(claim, pods):
            if consolidation_timer.begins_anew(claim, now):
                stamp = format_time(now)
                ports.cluster.patch_status(
                    "nodeclaims", claim.metadata.without_resource_version(), {"lastPodEventTime": stamp}
                )
            annotations = {**annotations, labels.PODS_SEEN: consolidation_timer.pods_digest(pods)}
        if claim.is_condition_true("Consolidatable") and not any(map(is_reschedulable, pods)):
            # Where consolidateAfter is 0s, no condition changes that would ask for it; and that the terminating pod of
            # a StatefulSet is gone is no pod event.
            request_disruption_soon(ports, now=now)
        _add_class_label(ports, claim, node)
    claim = _with_annotations(ports, claim, annotations)
    return soonest(tagging, binding, set_consolidatable(ports, claim, binding, now))


def tag(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> tuple[NodeClaim, float | None]:
    """The claim afterwards, and the seconds until the next attempt; None = there is none."""
    annotations, wait = tag_instance(ports, claim, claim.node_name, now)
    return _with_annotations(ports, claim, annotations), wait


def _with_annotations(ports: LifecyclePorts, claim: NodeClaim, annotations: Mapping[str, str]) -> NodeClaim:
    return ports.cluster.patch_nodeclaim(claim, {"annotations": annotations}) if annotations else claim


def soonest(*waits: float | None) -> float | None:
    """The shortest; None = nothing is waited for."""
    return min((wait for wait in waits if wait is not None), default=None)


def _is_disrupted(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether a command or a notice names the claim, or a decision that was not acted on yet may."""
    return (
        any(claim.name in row.candidates for row in ports.state.commands())
        or any(row.instance_id == instance_id(claim.provider_id) for row in ports.state.notices())
        or bool(ports.state.cluster().pending_decisions)
    )


def set_consolidatable(ports: LifecyclePorts, claim: NodeClaim, binding: float | None, now: datetime) -> float | None:
    """The condition, and the seconds until it becomes True. ``binding``: until the next look at pods that are to be
    bound, None = no pod is: the step after their binding decides.
    """
    if binding is not None:
        return None
    pool = ports.cluster.nodepool(claim.nodepool)
    at = consolidation_timer.consolidatable_at(claim, pool)
    if at is not None and at <= now:
        if not claim.is_condition_true("Consolidatable"):
            log_line(log, log_lines.MARKING_CONSOLIDATABLE, nodeclaim=claim.name)
            update_conditions(ports, claim, [true_condition("Consolidatable")], now=now)
            request_disruption(ports)
        return None
    if claim.is_condition_true("Consolidatable"):
        update_conditions(ports, claim, [false_condition("Consolidatable", "NotConsolidatable")], now=now)
    if at is not None and at - now <= SOON and _began_recently(claim, now):
        # Not a tick: ticks have ended, and this rings at that moment, for the steps that follow on a pod event.
        ring_lifecycle(ports, "claim", [claim.name], delay_seconds=math.ceil((at - now).total_seconds()))
    return None


def _began_recently(claim: NodeClaim, now: datetime) -> bool:
    """Whether the timer began a moment ago, so that nobody has rung for its end, or its node was initialized so lately
    that pods were waited for until now; one that began without a pod event may have to wait for pods first. Every step
    ringing for it would be as many steps at its end.
    """
    began, initialized = claim.last_pod_event_time, find_condition(claim.conditions, "Initialized")
    since = initialized.last_transition_time if initialized is not None else None
    return (
        began is None
        or abs(now - began) < TIMER_BEGINS
        or (since is not None and abs(now - since) < nominations.BINDING_TIMEOUT + TIMER_BEGINS)
    )


def _add_class_label(ports: LifecyclePorts, claim: NodeClaim, node: Node) -> None:
    """The node gets the label of its class, which an old version of Karpenter did not give it.

    Source: Karpenter v1.14 ``pkg/controllers/node/hydration``.
    """
    if labels.EC2NODECLASS not in node.metadata.labels:
        label = {labels.EC2NODECLASS: claim.node_class_ref.name}
        ports.cluster.patch_metadata("nodes", node.metadata, {"labels": label})
