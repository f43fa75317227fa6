"""One step in the life of a NodeClaim: launched, registered, initialized, kept up to date, or on its way out.

Level-triggered: every step reads the claim and its node anew and writes what is missing. Karpenter's order within a
pass: launch, registration, initialization, liveness.
"""

import math
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.instance_types import discovered_capacity
from spotwright.disruption.nodeclaim_drift import DRIFTED
from spotwright.errors import ApiError, Conflict, InvalidRequest, NotFound, OutOfTime
from spotwright.lifecycle import consistency, liveness
from spotwright.lifecycle.initialization import initialize
from spotwright.lifecycle.registration import (
    NodeUpdate,
    is_registered_with_another,
    lacks_partition,
    own_node,
    register,
    unregister,
)
from spotwright.lifecycle.retry import NODE_TICK_SECONDS, next_tick
from spotwright.lifecycle.steps import ConditionChange, Deletion, StepResult, false_condition, true_condition
from spotwright.model import labels
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition, format_time
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle import nominations, reservations
from spotwright.workflows.lifecycle.actions import (
    claims_by_name,
    delete_claim_and_say_why,
    has_disrupted_taint,
    joins_late,
    log,
    log_claim,
    nodes_of,
    note_other_node,
    other_claims,
    record_events,
    report_duplicate_claims,
    request_disruption,
    request_disruption_soon,
    request_planning,
    request_pool_status,
    ring_lifecycle,
    ring_next_tick,
    uncordon,
    update_conditions,
)
from spotwright.workflows.lifecycle.commands import ring_commands
from spotwright.workflows.lifecycle.launch.adoption import adopt_claim, launch_id
from spotwright.workflows.lifecycle.launch.assignment import write_assignments
from spotwright.workflows.lifecycle.launch.fleet import with_instances_of_request
from spotwright.workflows.lifecycle.launch.phases import advance
from spotwright.workflows.lifecycle.other_provisioners import is_left_alone
from spotwright.workflows.lifecycle.status import registration_health
from spotwright.workflows.lifecycle.tagging import TAGGED, tag_instance
from spotwright.workflows.lifecycle.termination.finalizer import finalize
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination
from spotwright.workflows.planning.heartbeat import is_forwarder_alive
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell

# A deleted claim without any of these is stepped for the first time.
_TERMINATION_CONDITIONS: Final = ("Drained", "InstanceTerminating")
TAINT_ATTEMPTS: Final = 3
# A step that met another change of the same object is taken again after so long.
CONFLICT_SECONDS: Final = 1
# So soon after a pod event the steps that follow on it ring for the end of the timer.
TIMER_BEGINS: Final = timedelta(seconds=15)
# A claim that becomes consolidatable this soon is rung for at that moment; later ones are found by the schedule.
SOON: Final = timedelta(seconds=120)


class SeenNode(msgspec.Struct, frozen=True):
    """A Node whose doorbell rang, and all claims with its provider id, as they were read a moment ago."""

    node: Node
    claims: tuple[NodeClaim, ...]


def step_nodeclaim(
    ports: LifecyclePorts,
    name: str,
    to_terminate: list[InstanceTermination],
    *,
    now: datetime,
    ticks: int = 0,
) -> None:
    """Take the claim ``name`` one step further. ``ticks``: number of the tick that rang, 0 = no tick did.

    Ticks go on until the claim has no further step; after a concurrent change or an error the next tick tries again,
    and after a concurrent change the doorbell of a node, too. While a node is drained, the end of its last pod may ring
    before the drain is over, and ticks are far apart then: the claim is rung for once more.
    """
    claim = ports.cluster.nodeclaim(name)
    if claim is None:
        return
    progressed = _last_progress(claim) if ticks else None
    age = float("inf") if progressed is None else (now - progressed).total_seconds()
    # A time of the future says nothing of now.
    if 0 <= age < NODE_TICK_SECONDS and is_forwarder_alive(ports.state, now=now):
        # The node rings for what comes next.
        ring_next_tick(ports, name, ticks + 1, earliest_seconds=math.ceil(NODE_TICK_SECONDS - age))
        return
    if ticks and _is_settled(ports, claim):
        return
    step_claim(ports, claim, to_terminate, now=now, ticks=ticks)


def _is_settled(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether ticks of the claim end without another look at its node: its pods have come, and its instance has its
    tags.
    """
    if claim.metadata.deletion_timestamp is not None or not claim.is_condition_true("Initialized"):
        return False
    annotations = claim.metadata.annotations
    written = labels.PODS_SEEN in annotations and TAGGED.items() <= annotations.items()
    return written and nominations.have_ended(ports, claim)


def _last_progress(claim: NodeClaim) -> datetime | None:
    """When a claim with a node that is not ready yet got on; None = it is not there, or further."""
    is_live = claim.metadata.deletion_timestamp is None
    if not is_live or not claim.is_condition_true("Registered") or claim.is_condition_true("Initialized"):
        return None
    return max(filter(None, (found.last_transition_time for found in claim.conditions)), default=None)


def step_claim(
    ports: LifecyclePorts,
    claim: NodeClaim,
    to_terminate: list[InstanceTermination],
    *,
    now: datetime,
    ticks: int = 0,
    seen: SeenNode | None = None,
) -> None:
    """The same for a claim as it was read a moment ago. ``seen``: the node whose doorbell rang."""
    if not claim.is_managed or is_left_alone(ports, claim, now=now):
        return
    with log_claim(claim):
        _step(ports, claim, to_terminate, now, ticks, seen)


def _step(
    ports: LifecyclePorts,
    claim: NodeClaim,
    to_terminate: list[InstanceTermination],
    now: datetime,
    ticks: int,
    seen: SeenNode | None,
) -> None:
    name, earliest = claim.name, 0
    node = seen.node if seen is not None else None
    starts = claim.metadata.deletion_timestamp is not None and not any(
        find_condition(claim.conditions, type) for type in _TERMINATION_CONDITIONS
    )
    tick = next_tick(ticks, deleting=claim.metadata.deletion_timestamp is not None, starts=starts)
    try:
        wait = (
            finalize(ports, claim, now, to_terminate, seen=node)
            if claim.metadata.deletion_timestamp
            else _step_live(ports, claim, seen, now)
        )
        earliest = _earliest_tick(ports, claim, wait, now) if (ticks or starts) and wait is not None else 0
    except (Conflict, NotFound) as lost:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="nodeclaim", object=name, conflict=str(lost))
        wait = CONFLICT_SECONDS
        # What changed need not ring: a heartbeat of the kubelet, or another step of the claim.
        if isinstance(lost, Conflict) and claim.metadata.deletion_timestamp is None and node is not None:
            ring_lifecycle(ports, "node", [node.name], delay_seconds=CONFLICT_SECONDS)
        elif isinstance(lost, Conflict) and claim.metadata.deletion_timestamp is not None and node is None and not tick:
            # EC2 says once that the instance has ended.
            ring_lifecycle(ports, "claim", [name], delay_seconds=CONFLICT_SECONDS)
    except ApiError as failure:
        if isinstance(failure, OutOfTime) and not tick:
            # No tick follows: its doorbell is rung again.
            raise
        log_line(log, log_lines.STEP_FAILED, kind="nodeclaim", object=name, code=failure.code, error=str(failure))
        wait = float("inf")
    if wait is not None and tick:
        ring_next_tick(ports, name, tick, within_seconds=wait, earliest_seconds=earliest)
    elif wait is not None and _rings_once_more(claim, node, wait, to_terminate):
        # Just after it: a pod whose time is now is deleted when that has passed.
        ring_lifecycle(ports, "claim", [name], delay_seconds=max(0, math.floor(wait)) + 1)
    if starts:
        request_pool_status(ports, now=now)
        ring_commands(ports, claim)
    # The limits of a static pool may allow a replacement only when the node is gone.
    if claim.metadata.deletion_timestamp and (starts or wait is None) and _is_static(ports, claim):
        request_planning(ports)


def _rings_once_more(
    claim: NodeClaim, node: Node | None, wait: float, to_terminate: Collection[InstanceTermination]
) -> bool:
    """Whether a drain that goes on in ``wait`` seconds is rung for, because a node rang: nothing else may until the
    next tick. That an instance terminates is told by EC2.
    """
    if node is None or claim.metadata.deletion_timestamp is None or wait >= NODE_TICK_SECONDS:
        return False
    return not to_terminate and find_condition(claim.conditions, "InstanceTerminating") is None


def _earliest_tick(ports: LifecyclePorts, claim: NodeClaim, wait: float, now: datetime) -> int:
    """In how many seconds the next tick of a claim is early enough, 0 = as soon as others. ``wait``: seconds until its
    next step at the latest.

    While a hundred nodes boot or drain, ticks every few seconds would take the room of the doorbells for those that
    joined, or whose pods have stopped. A claim that is initialized has nothing to do before its time.
    """
    if wait < float("inf"):
        is_done = claim.metadata.deletion_timestamp is None and claim.is_condition_true("Initialized")
        return math.floor(wait) if is_done else 0
    awaits_node = claim.is_condition_true("Launched") and not claim.is_condition_true("Initialized")
    if claim.metadata.deletion_timestamp is None and not awaits_node:
        return 0
    return NODE_TICK_SECONDS if is_forwarder_alive(ports.state, now=now) else 0


def _is_static(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether the claim belongs to a static pool."""
    if STATIC_CAPACITY not in ports.settings.feature_gates:
        return False
    nodepool = ports.cluster.nodepool(claim.nodepool)
    return nodepool is not None and nodepool.replicas is not None


def _step_live(ports: LifecyclePorts, claim: NodeClaim, seen: SeenNode | None, now: datetime) -> float | None:
    """Seconds until the next step at the latest; None when there is none. ``seen``: the node whose doorbell rang."""
    if labels.FINALIZER not in claim.metadata.finalizers:
        finalizers = [*claim.metadata.finalizers, labels.FINALIZER]
        claim = ports.cluster.patch_nodeclaim(claim, {"finalizers": finalizers})
    expiration = liveness.expiration(claim, now)
    if expiration is not None:
        log_line(log, log_lines.DELETING_EXPIRED_NODECLAIM, nodeclaim=claim.name, details=expiration.message)
        delete_claim_and_say_why(ports, claim, expiration, now=now)
        return None
    if not claim.is_condition_true("Launched"):
        return _step_launch(ports, claim, now)
    claim = _with_missing_labels(ports, claim)
    nodes = nodes_of(ports, claim, now=now, seen=seen.node if seen is not None else None)
    deleted = _deleted_node(ports, claim, nodes)
    if deleted and not other_claims(ports, claim):
        log_line(log, log_lines.DELETING_NODECLAIM_OF_NODE, nodeclaim=claim.name, node=deleted)
        deletion = Deletion("node_deleted", f"Node {deleted} was deleted")
        delete_claim_and_say_why(ports, claim, deletion, now=now)
        return None
    if is_registered_with_another(claim, nodes):
        return _step_registration(ports, note_other_node(ports, claim, claim.node_name), nodes, seen, now)
    if not claim.is_condition_true("Registered"):
        return _step_registration(ports, claim, nodes, seen, now)
    node = next((node for node in nodes if node.name == claim.node_name), nodes[0] if nodes else None)
    if not claim.is_condition_true("Initialized"):
        wait = _step_initialization(ports, claim, node, now)
    else:
        if seen is not None and claim.is_condition_true(DRIFTED):
            request_disruption_soon(ports, now=now)
        wait = _step_initialized(ports, claim, node, now)
    _unregister_others(ports, claim, nodes)
    return wait


def _unregister_others(ports: LifecyclePorts, claim: NodeClaim, nodes: tuple[Node, ...]) -> None:
    """Take back what registration wrote on Nodes that only stated the provider id, once the instance's own has it."""
    own = own_node(claim, nodes)
    for node in nodes if own is not None else ():
        if node is not own and (change := unregister(claim, node)):
            ports.cluster.set_taints(node, node.taints, metadata=change)


def _deleted_node(ports: LifecyclePorts, claim: NodeClaim, nodes: tuple[Node, ...]) -> str:
    """The name of the claim's own Node if it is being deleted, or is gone: the one that it is registered with, or else
    the only one there is. "" = it stays.

    Any other may have stated the provider id without having the instance. Unlike in Karpenter, a registered claim whose
    Node is gone goes, too: no kubelet makes its Node anew, and plans would count on it until it expires.
    """
    own = [node for node in nodes if node.name == claim.node_name] if claim.node_name else nodes
    if len(own) == 1 and own[0].metadata.deletion_timestamp is not None:
        return own[0].name
    is_gone = claim.node_name and not nodes and ports.cluster.node(claim.node_name) is None
    # Its kubelet may have registered anew, under a name that the claim does not know.
    if is_gone and not any(node.provider_id == claim.provider_id for node in ports.cluster.nodes()):
        return claim.node_name
    return ""


def _with_missing_labels(ports: LifecyclePorts, claim: NodeClaim) -> NodeClaim:
    """The claim with the label of its instance, which one that Karpenter launched does not have, and with that of its
    class, which one of an old version of Karpenter does not have.
    """
    instance = instance_id(claim.provider_id)
    missing = {labels.INSTANCE_ID: instance} if instance else {}
    if labels.EC2NODECLASS not in claim.metadata.labels:
        missing[labels.EC2NODECLASS] = claim.node_class_ref.name
    if missing.items() <= claim.metadata.labels.items():
        return claim
    return ports.cluster.patch_nodeclaim(claim, {"labels": missing})


def _add_class_label(ports: LifecyclePorts, claim: NodeClaim, node: Node) -> None:
    """The same for the claim's node. Source: Karpenter v1.14 ``pkg/controllers/node/hydration``."""
    if labels.EC2NODECLASS not in node.metadata.labels:
        label = {labels.EC2NODECLASS: claim.node_class_ref.name}
        ports.cluster.patch_metadata("nodes", node.metadata, {"labels": label})


def _give_up(ports: LifecyclePorts, claim: NodeClaim, timeout: Deletion, now: datetime) -> None:
    """Delete a claim that was not launched, or not registered, in time: a failure of its NodePool, unless EC2 was never
    asked for its instance, as where more nodes wait than may be started.
    """
    if claim.is_condition_true("Launched") or _was_requested(ports, claim):
        registration_health.record_failure(ports, claim, now=now)
    log_line(log, log_lines.TERMINATING_DUE_TO_TIMEOUT, nodeclaim=claim.name, details=timeout.message)
    delete_claim_and_say_why(ports, claim, timeout, now=now)


def _step_launch(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> float | None:
    """A claim without a launch is adopted by one; its launch goes on, unless its time is over."""
    timeout = liveness.timeout(claim, now)
    if timeout is not None and not _is_launched_late(ports, claim, now):
        _give_up(ports, claim, timeout, now)
        return None
    if timeout is None and (launch := adopt_claim(ports, claim, now=now)):
        advance(ports, launch, now=now)
    return float("inf")


def _was_requested(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether EC2 was asked for the claim's instance, or may have been."""
    launch = ports.state.launch(launch_id(claim))
    return launch is None or bool(launch.request) or launch.attempt > 0


def _is_launched_late(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> bool:
    """Whether the claim receives now the instance that its launch has for it: while the API server did not answer, it
    could not be written, and while DynamoDB did not, it could not be noted whose it is. Raises ApiError while it still
    cannot be, or while another worker writes it; the launch's own next try is not waited for. What the API server
    refuses to take for good is given up.
    """
    launch = ports.state.launch(launch_id(claim))
    if launch is not None and claim.name not in launch.instances:
        launch = with_instances_of_request(ports, launch)
    if launch is None or claim.name not in launch.instances:
        return False
    own = msgspec.structs.replace(launch, instances={claim.name: launch.instances[claim.name]})
    try:
        write_assignments(ports, own, now)
    except InvalidRequest as refusal:
        log_line(log, log_lines.STEP_FAILED, kind="launch", object=launch.id, code=refusal.code, error=str(refusal))
    current = ports.cluster.nodeclaim(claim.name)
    return current is not None and current.is_condition_true("Launched")


def _step_registration(
    ports: LifecyclePorts, claim: NodeClaim, nodes: tuple[Node, ...], seen: SeenNode | None, now: datetime
) -> float | None:
    if nodes and lacks_partition(claim):
        claim = _add_partition(ports, claim)
    others = _registered_claims(ports, claim, seen) if nodes or joins_late(claim, now) else ()
    if others:
        report_duplicate_claims(ports, nodes or nodes_of(ports, others[0]), (claim, *others), now=now)
    registration = register(claim, nodes, [other.name for other in others])
    if registration.node_update is None:
        claim = _write(ports, claim, registration.result, now)
        # A node that joined is registered, however late it is looked at.
        timeout = liveness.timeout(claim, now)
        if timeout is None:
            return float("inf")
        _give_up(ports, claim, timeout, now)
        return None
    node = _adopt_node(ports, nominations.with_held_taint(ports, claim, registration.node_update, now))
    registration_health.record_registration(ports, claim, now=now)
    result, initialization = registration.result, initialize(claim, node)
    # Some taint of the control plane may be left on a node that is initialized all the same.
    is_starting = initialization.log is None and (node is None or not node.is_open)
    if is_starting:
        changes = (*result.condition_changes, *initialization.condition_changes)
        result = msgspec.structs.replace(result, condition_changes=changes)
    claim = _write(ports, claim, result, now)
    record_events(ports, "nodes", registration.node_update.node.metadata, registration.result.events, now=now)
    if claim.metadata.deletion_timestamp:
        return 1.0
    return float("inf") if is_starting else _step_initialization(ports, claim, node, now)


def _registered_claims(ports: LifecyclePorts, claim: NodeClaim, seen: SeenNode | None) -> tuple[NodeClaim, ...]:
    """Further claims that have the claim's instance and are registered, by name."""
    if seen is not None and {other.name for other in seen.claims} <= {claim.name}:
        return ()
    # The list may show another claim as it was before it was registered, or before it was deleted.
    others = claims_by_name(ports, [other.name for other in other_claims(ports, claim, cached=True)])
    return tuple(
        others[name]
        for name in sorted(others)
        if others[name].is_condition_true("Registered") and others[name].metadata.deletion_timestamp is None
    )


def _add_partition(ports: LifecyclePorts, claim: NodeClaim) -> NodeClaim:
    """The claim with the partition of its placement group, as soon as EC2 shows it; written on it as well."""
    instance = ports.ec2.instance(instance_id(claim.provider_id))
    if instance is None or not instance.partition_number:
        return claim
    partition = {labels.PLACEMENT_GROUP_PARTITION: str(instance.partition_number)}
    return ports.cluster.patch_nodeclaim(claim, {"labels": partition})


def _adopt_node(ports: LifecyclePorts, adoption: NodeUpdate) -> Node | None:
    """The node afterwards; None = it is gone. Labels and taints are written together, so that pods come only to a node
    with all its labels.

    A kubelet that joins writes its Node often: what it changed in between is read, and the taints are set on that.
    """
    current: Node | None = adoption.node
    for attempt in range(1, TAINT_ATTEMPTS + 1):
        if current is None:
            return None
        try:
            return ports.cluster.set_taints(current, _adopted_taints(adoption, current), metadata=adoption.metadata)
        except Conflict:
            if attempt == TAINT_ATTEMPTS:
                raise
        current = ports.cluster.node(adoption.node.name)
        if current is not None and _finalizers_and_owners(current) != _finalizers_and_owners(adoption.node):
            raise Conflict(f"nodes {current.name} has other finalizers or owners by now", code="Conflict")
    return None


def _finalizers_and_owners(node: Node) -> object:
    """What adoption replaces as a whole."""
    return node.metadata.finalizers, node.metadata.owner_references


def _adopted_taints(adoption: NodeUpdate, current: Node) -> tuple[Taint, ...]:
    """Taints that others took off or set since the node was read stay as they are now: a Ready node that gets
    not-ready:NoExecute back would lose its pods.
    """
    before, after = adoption.node.taints, adoption.taints
    kept = tuple(taint for taint in current.taints if taint in after or taint not in before)
    # The API server takes no two of one key and effect.
    present = {(taint.key, taint.effect) for taint in kept}
    new = (taint for taint in after if taint not in before and (taint.key, taint.effect) not in present)
    return (*kept, *new)


def _step_initialization(ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    node, nomination = nominations.release_node(ports, claim, node, now)
    step_result = initialize(claim, node)
    if step_result.log is not None and node is not None:
        if node.metadata.labels.get(labels.INITIALIZED) != "true":
            ports.cluster.patch_metadata("nodes", node.metadata, {"labels": {labels.INITIALIZED: "true"}})
        step_result = _with_consistency(claim, node, step_result)
    claim = _write(ports, claim, step_result, now)
    if step_result.log is None:
        # A node that becomes ready soon is tagged when its pods have come, which do not wait for that.
        if _is_late(claim, now):
            _tag(ports, claim, now)
        return float("inf")
    ring_commands(ports, claim)
    if node is not None and discovered_capacity.has_less_memory(node, claim):
        # Plans rely on the catalog, which is to learn the real memory.
        ports.doorbells.ring("catalog", [Doorbell(ports.cluster.name, "nodeclasses")])
    binding = nominations.await_binding(ports, claim, node, None, now, nomination)
    if binding is not None:
        return binding
    claim, tagging = _tag(ports, claim, now)
    return _soonest(tagging, _consolidatable(ports, claim, binding, now))


def _is_late(claim: NodeClaim, now: datetime) -> bool:
    """Whether the claim has been registered for longer than its node should take to become ready."""
    registered = find_condition(claim.conditions, "Registered")
    since = registered.last_transition_time if registered is not None else None
    return since is not None and abs((now - since).total_seconds()) >= NODE_TICK_SECONDS


def _tag(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> tuple[NodeClaim, float | None]:
    """The claim afterwards, and the seconds until the next attempt; None = there is none."""
    annotations, wait = tag_instance(ports, claim, claim.node_name, now)
    return _with_annotations(ports, claim, annotations), wait


def _with_annotations(ports: LifecyclePorts, claim: NodeClaim, annotations: Mapping[str, str]) -> NodeClaim:
    return ports.cluster.patch_nodeclaim(claim, {"annotations": annotations}) if annotations else claim


def _step_initialized(ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    """An initialized claim: nominations, tags, pod events, Consolidatable; a taint without a command is removed."""
    deletion = reservations.step_reservations(ports, claim, node)
    if deletion is not None:
        delete_claim_and_say_why(ports, claim, deletion, now=now)
        return None
    pods = ports.cluster.pods(node=node.name) if node is not None else ()
    binding = nominations.await_binding(ports, claim, node, pods, now)
    annotations, tagging = tag_instance(ports, claim, claim.node_name, now)
    if node is not None:
        claim = _write(ports, claim, _with_consistency(claim, node, StepResult()), now)
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
        _add_class_label(ports, claim, node)
    claim = _with_annotations(ports, claim, annotations)
    return _soonest(tagging, binding, _consolidatable(ports, claim, binding, now))


def _with_consistency(claim: NodeClaim, node: Node, step_result: StepResult) -> StepResult:
    """Together with whether the node is as large as the claim says."""
    found = consistency.inconsistencies(claim, node)
    return msgspec.structs.replace(
        step_result,
        condition_changes=(*step_result.condition_changes, consistency.consistency_condition(found)),
        events=(*step_result.events, *(events.FAILED_CONSISTENCY_CHECK(details=details) for details in found)),
    )


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _is_disrupted(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether a command or a notice names the claim, or a decision that was not acted on yet may."""
    return (
        any(claim.name in row.candidates for row in ports.state.commands())
        or any(row.instance_id == instance_id(claim.provider_id) for row in ports.state.notices())
        or bool(ports.state.cluster().pending_decisions)
    )


def _consolidatable(ports: LifecyclePorts, claim: NodeClaim, binding: float | None, now: datetime) -> float | None:
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


def _write(ports: LifecyclePorts, claim: NodeClaim, step_result: StepResult, now: datetime) -> NodeClaim:
    """The claim afterwards."""
    changes: list[ConditionChange] = [
        condition_change for condition_change in step_result.condition_changes if not _same(claim, condition_change)
    ]
    after = update_conditions(ports, claim, changes, now=now, status=step_result.status)
    record_events(ports, "nodeclaims", claim.metadata, step_result.events, now=now)
    if step_result.log is not None:
        node = step_result.status.get("nodeName") or claim.node_name
        launched = find_condition(claim.conditions, "Launched")
        since = (launched.last_transition_time if launched else None) or now
        log_line(
            log, step_result.log,
            nodeclaim=claim.name, provider_id=claim.provider_id, node=node, seconds=(now - since).total_seconds(),
        )  # fmt: skip
    return after


def _same(claim: NodeClaim, change: ConditionChange) -> bool:
    before = find_condition(claim.conditions, change.type)
    return before is not None and (before.status, before.reason, before.message) == (
        change.status, change.reason, change.message,
    )  # fmt: skip
