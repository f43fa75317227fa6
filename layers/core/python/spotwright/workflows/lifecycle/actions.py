"""Writes that the steps of ``lifecycle`` share: conditions, events, taints, deletion, doorbells."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol

from spotwright.errors import ApiError, Conflict, OutOfTime
from spotwright.lifecycle import conditions
from spotwright.lifecycle.retry import is_past_last, tick_seconds
from spotwright.lifecycle.steps import ConditionChange, Deletion, transition_events
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.node import Node, NodeWithVolumes, instance_id
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_context, log_line
from spotwright.telemetry.rows import Event
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import READ_NODECLAIMS, Doorbell
from spotwright.workflows.ports.rows import epoch_ms

# From launch to the Node it takes 20 to 60 s; a node that has not come by then may have another name than expected.
JOINING_PERIOD: Final = timedelta(seconds=60)
# So long the status of NodePools waits for further claims that move (Karpenter counts every 5 s).
STATUS_SECONDS: Final = 3
# So often pods and nodes ring for an evaluation at most (Karpenter evaluates every 10 s), so long after they changed:
# the forwarder writes the cluster state every 10 s.
EVALUATION_SECONDS: Final = 5
SHOWN_SECONDS: Final = 11
# So long an evaluation waits for conditions of further NodeClaims. It reads NodeClaims itself.
CLAIMS_SECONDS: Final = 2


class HasName(Protocol):
    """Any object of the API server."""

    @property
    def name(self) -> str: ...


log: Final = logging.getLogger("spotwright.lifecycle")


def log_claim(claim: NodeClaim) -> AbstractContextManager[None]:
    """Lines inside carry the launch and the decision that the claim comes from."""
    annotations = claim.metadata.annotations
    return log_context(launch=annotations.get(labels.LAUNCH, ""), decision=annotations.get(labels.DECISION, ""))


def for_each[T: HasName](kind: str, objects: Iterable[T], step: Callable[[T], object], *, at_once: int = 1) -> None:
    """``step`` of each object, ``at_once`` side by side; one that fails does not keep the others, and the first failure
    is raised at the end. Where no time is left, none is begun any more: OutOfTime.
    """

    ends = list[OutOfTime]()

    def failure_of(obj: T) -> ApiError | None:
        if ends:
            return None
        try:
            step(obj)
        except OutOfTime as end:
            ends.append(end)
        except ApiError as failure:
            log_line(log, log_lines.STEP_FAILED, kind=kind, object=obj.name, code=failure.code, error=str(failure))
            return failure
        return None

    failures = in_parallel(failure_of, objects, at_once=at_once)
    for failure in (*ends, *failures):
        if failure is not None:
            raise failure


def ring_lifecycle(
    ports: LifecyclePorts,
    kind: str,
    keys: Iterable[str],
    *,
    delay_seconds: int = 0,
    epoch: int = 0,
    queue: str = "lifecycle",
) -> None:
    """Ring lifecycle's own doorbell, once for each key. ``queue``: lifecycle, or notices for what is urgent."""
    bells = [Doorbell(ports.cluster.name, kind, key, epoch) for key in keys]
    if bells:
        ports.doorbells.ring(queue, bells, delay_seconds=delay_seconds)


def ring_notices(ports: LifecyclePorts, instances: Iterable[str], *, delay_seconds: int = 0) -> None:
    """Ring for the notices of these instances."""
    ring_lifecycle(ports, "notice", instances, delay_seconds=delay_seconds, queue="notices")


def ring_next_tick(
    ports: LifecyclePorts,
    claim: str,
    number: int,
    *,
    within_seconds: float = float("inf"),
    earliest_seconds: int = 0,
) -> None:
    """Ring for the next tick of a claim: in ``earliest_seconds`` or later, otherwise at the latest in
    ``within_seconds``.

    The doorbell's epoch is the tick's number; after MAXIMUM_TICKS the sweep rings instead.
    """
    if not is_past_last(number):
        delay = min(tick_seconds(number), max(1, int(within_seconds) + 1 if within_seconds < 1000 else 1000))
        delay = max(delay, earliest_seconds)
        ring_lifecycle(ports, "claim", [claim], delay_seconds=delay, epoch=number)


def request_planning(ports: LifecyclePorts, *, delay_seconds: int = 0) -> None:
    """Pods may have lost the node that was planned for them."""
    ports.doorbells.ring("provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=delay_seconds)


def request_planning_of_static_pool(ports: LifecyclePorts, claim: NodeClaim) -> None:
    """The same for a claim that goes, if it belongs to a static pool: its limits may allow a replacement only when the
    node is gone.
    """
    if STATIC_CAPACITY not in ports.settings.feature_gates:
        return
    nodepool = ports.cluster.nodepool(claim.nodepool)
    if nodepool is not None and nodepool.replicas is not None:
        request_planning(ports)


def request_disruption(ports: LifecyclePorts) -> None:
    """A node became empty, or a disruption budget allows one more: the schedule need not be waited for."""
    ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def request_disruption_soon(ports: LifecyclePorts, *, now: datetime) -> None:
    """What keeps a node may be gone: evaluate when the cluster state surely shows it.

    Once for all nodes of some seconds. Where the state table does not answer, the schedule rings within a minute.
    """
    _request_evaluation(ports, "evaluations", "", EVALUATION_SECONDS, SHOWN_SECONDS, now)


def request_disruption_of_claims(ports: LifecyclePorts, *, now: datetime) -> None:
    """NodeClaims have drifted, or count for no budget any more: evaluate with NodeClaims as they are, as above."""
    # Every NodeClaim whose condition is written before the evaluation begins is seen by it.
    _request_evaluation(ports, "claim evaluations", READ_NODECLAIMS, CLAIMS_SECONDS, CLAIMS_SECONDS, now)


def _request_evaluation(
    ports: LifecyclePorts, throttle: str, key: str, at_most_every_seconds: int, delay_seconds: int, now: datetime
) -> None:
    bell = Doorbell(ports.cluster.name, "evaluate", key)
    ring = partial(ports.doorbells.ring, "disrupt", [bell], delay_seconds=delay_seconds)
    _ring_once(ports, throttle, at_most_every_seconds, ring, now)


def request_pool_status(ports: LifecyclePorts, *, now: datetime, seconds: int = STATUS_SECONDS) -> None:
    """Bring the status of the NodePools up to date in so many seconds: once for all claims that move until then.

    Where the state table does not answer, or the doorbell is lost, the next poll finds that the counts differ.
    """
    ring = partial(ring_lifecycle, ports, "nodepools", [""], delay_seconds=seconds)
    _ring_once(ports, "nodepools", seconds, ring, now)


def _ring_once(ports: LifecyclePorts, throttle: str, seconds: int, ring: Callable[[], None], now: datetime) -> None:
    """Ring, unless somebody did so in the last ``seconds``. A schedule does what a doorbell that fails asks for."""
    moment = epoch_ms(now)
    try:
        if not ports.state.throttle(throttle, now=moment, until=moment + seconds * 1000):
            ring()
    except ApiError as failure:
        log_line(log, log_lines.DOORBELL_LEFT_OUT, doorbell=throttle, code=failure.code, error=str(failure))


def update_conditions(
    ports: LifecyclePorts,
    claim: NodeClaim,
    changes: Iterable[ConditionChange],
    *,
    now: datetime,
    status: Mapping[str, Any] = MappingProxyType({}),
) -> NodeClaim:
    """Write the conditions of a claim that changed, the root included, and an event for each transition; the claim
    afterwards. ``status``: further fields, written with them.

    Conflict when another invocation took the claim a step on since it was read: what was seen then says nothing now,
    and each of these transitions is written, logged and counted once.
    """
    written = _to_write(claim, changes, now)
    if not written and not status:
        return claim
    statuses = {condition.type: condition.status for condition in claim.conditions}
    seen = {type: statuses.get(type, "") for type in conditions.NODECLAIM_CONDITIONS}
    after = ports.cluster.write_nodeclaim_status(claim, written, status=status, seen=seen)
    record_events(ports, "nodeclaims", claim.metadata, transition_events(claim.conditions, written), now=now)
    if any(change.type in conditions.NODECLAIM_CONDITIONS and change.status == "True" for change in written):
        request_pool_status(ports, now=now)
    return after


def record_transitions(
    ports: LifecyclePorts, claim: NodeClaim, changes: Iterable[ConditionChange], *, now: datetime
) -> None:
    """The same events of a claim that is gone before its conditions would be written."""
    written = _to_write(claim, changes, now)
    record_events(ports, "nodeclaims", claim.metadata, transition_events(claim.conditions, written), now=now)


def _to_write(claim: NodeClaim, changes: Iterable[ConditionChange], now: datetime) -> tuple[Condition, ...]:
    return conditions.conditions_to_write(
        claim.metadata, claim.conditions, changes, dependents=conditions.NODECLAIM_CONDITIONS, now=now
    )


def record_events(
    ports: LifecyclePorts, kind: str, about: ObjectMeta, events: Iterable[Event], *, now: datetime
) -> None:
    """Of what is done."""
    for event in events:
        ports.events.record_event(kind, about, event, now=now)


def report_duplicate_claims(
    ports: LifecyclePorts, nodes: Iterable[Node], claims: Collection[NodeClaim], *, now: datetime
) -> None:
    """Tell claims that have one instance, and its Nodes."""
    event = events.DUPLICATE_NODECLAIMS(names=", ".join(sorted(claim.name for claim in claims)))
    for kind, objects in (("nodes", nodes), ("nodeclaims", claims)):
        for obj in objects:
            ports.cluster.record_event(kind, obj.metadata, event, now=now)


def delete_claim(ports: LifecyclePorts, claim: NodeClaim, cause: Deletion, *, as_read: bool = False) -> None:
    """Delete a claim by its uid, and ring for its termination. ``as_read``: Conflict when it has changed since."""
    if claim.metadata.deletion_timestamp is None:
        ports.cluster.delete("nodeclaims", claim.metadata, as_read=as_read)
        with log_claim(claim):
            log_line(
                log, log_lines.DELETING_NODECLAIM,
                nodeclaim=claim.name, nodepool=claim.nodepool, reason=cause.reason, details=cause.message,
            )  # fmt: skip
    ring_next_tick(ports, claim.name, 1, within_seconds=0)


def delete_claim_and_say_why(ports: LifecyclePorts, claim: NodeClaim, cause: Deletion, *, now: datetime) -> None:
    """Delete a claim for which no disruption, notice or refusal of EC2 has an event of its own."""
    if claim.metadata.deletion_timestamp is None:
        event = events.DELETING_NODECLAIM(details=cause.message)
        ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    delete_claim(ports, claim, cause)


def cordon(
    ports: LifecyclePorts, node: NodeWithVolumes, *, metadata: Mapping[str, Any] = MappingProxyType({})
) -> NodeWithVolumes:
    """The node with the disrupted taint, so that it takes no further pods; ``metadata`` is merged in the same write."""
    is_tainted = DISRUPTED_TAINT in node.taints
    if is_tainted and not metadata:
        return node
    taints = node.taints if is_tainted else (*node.taints, DISRUPTED_TAINT)
    cordoned = ports.cluster.set_taints(node, taints, metadata=metadata)
    if DISRUPTED_TAINT not in cordoned.taints:
        raise Conflict(f"nodes {node.name} has lost the taint {DISRUPTED_TAINT} meanwhile", code="Conflict")
    if not is_tainted:
        log_line(log, log_lines.TAINTED_NODE, node=node.name, taint=str(DISRUPTED_TAINT))
    return cordoned


def uncordon(ports: LifecyclePorts, node: Node) -> None:
    taints = tuple(taint for taint in node.taints if taint != DISRUPTED_TAINT)
    if taints != node.taints:
        ports.cluster.set_taints(node, taints)


def nodes_of(
    ports: LifecyclePorts, claim: NodeClaim, *, now: datetime | None = None, seen: NodeWithVolumes | None = None
) -> tuple[NodeWithVolumes, ...]:
    """Nodes with the claim's provider id, by name; no list of all nodes is read for it.

    A node that has not registered is expected under the private DNS name of its instance. Where it has another name,
    it is found by its own doorbell (``seen``), or from JOINING_PERIOD after the launch among the nodes that join. The
    names of further Nodes are on the claim since their own doorbells. Another claim's Node that states the provider id
    is none of a registered claim's.
    """
    if not claim.provider_id:
        return ()
    name = expected_node(claim)
    # What rang was read a moment ago.
    names = {name, *other_nodes(claim)} - {"", seen.name if seen is not None else ""}
    nodes = [node for node in (seen, *map(ports.cluster.node_with_volumes, sorted(names))) if node is not None]
    if not claim.node_name and not nodes and joins_late(claim, now):
        joining = [node.name for node in ports.cluster.joining_nodes() if node.provider_id == claim.provider_id]
        nodes += [node for node in map(ports.cluster.node_with_volumes, joining) if node is not None]
    of_claim = {
        node.name: node for node in nodes if node.provider_id == claim.provider_id and not is_anothers(claim, node)
    }
    return tuple(of_claim[name] for name in sorted(of_claim))


def joins_late(claim: NodeClaim, now: datetime | None) -> bool:
    """Whether the claim's Node would be there by now under the name that is expected, or none is."""
    launched = find_condition(claim.conditions, "Launched")
    since = launched.last_transition_time if launched is not None else None
    return not expected_node(claim) or since is None or (now is not None and now - since >= JOINING_PERIOD)


def expected_node(claim: NodeClaim) -> str:
    """The name of the claim's Node, or that under which it is expected; "" = none is."""
    return claim.node_name or claim.metadata.annotations.get(labels.EXPECTED_NODE, "")


def other_nodes(claim: NodeClaim) -> frozenset[str]:
    """Names of further Nodes that had the claim's provider id when their doorbells rang."""
    return frozenset(filter(None, claim.metadata.annotations.get(labels.OTHER_NODES, "").split(",")))


def note_other_node(ports: LifecyclePorts, claim: NodeClaim, name: str) -> NodeClaim:
    """The claim, which names a further Node of its instance from then on."""
    names = other_nodes(claim)
    if name in names:
        return claim
    change = {"annotations": {labels.OTHER_NODES: ",".join(sorted(names | {name}))}}
    return ports.cluster.patch_nodeclaim(claim, change)


def is_anothers(claim: NodeClaim, node: Node) -> bool:
    """Whether the claim is registered with another Node than this one, which a claim of another name owns."""
    owners = {owner.name for owner in node.metadata.owner_references if owner.kind == "NodeClaim"}
    return claim.node_name not in ("", node.name) and bool(owners) and claim.name not in owners


def claims_of_instance(ports: LifecyclePorts, instance: str, *, cached: bool = False) -> tuple[NodeClaim, ...]:
    """Claims that have the instance, or to which it is being written, by their label. ``cached``: a claim may be
    missing for a moment, or in an older state.
    """
    return claims_of_instances(ports, (instance,), cached=cached)


def claims_of_instances(
    ports: LifecyclePorts, instances: Collection[str], *, cached: bool = False
) -> tuple[NodeClaim, ...]:
    """The same for many instances, in few requests."""
    labeled = ports.cluster.nodeclaims_of_instances(instances, cached=cached)
    return tuple(claim for claim in labeled if instance_id(claim.provider_id) in ("", _labeled_instance(claim)))


def claims_by_name(ports: LifecyclePorts, names: Iterable[str]) -> dict[str, NodeClaim]:
    """Those of these claims that exist, each read by its name."""
    return {claim.name: claim for claim in in_parallel(ports.cluster.nodeclaim, names) if claim is not None}


def assigned_instances(
    ports: LifecyclePorts, instances: Iterable[Instance], claims: Iterable[NodeClaim]
) -> frozenset[str]:
    """The ids of those of ``instances`` that a claim has: one of ``claims``, or one that is selected by the instance.

    ``claims``: those of the launch of the instances.
    """
    held = {instance_id(claim.provider_id) for claim in claims}
    others = [instance.id for instance in instances if instance.id not in held]
    selected = claims_of_instances(ports, others)
    return frozenset(held - {""} | {_labeled_instance(claim) for claim in selected})


def _labeled_instance(claim: NodeClaim) -> str:
    return claim.metadata.labels.get(labels.INSTANCE_ID, "")


def other_claims(ports: LifecyclePorts, claim: NodeClaim) -> tuple[NodeClaim, ...]:
    """Further claims that have the claim's instance and are not being deleted, by name; there are none, usually.

    Which there are is asked of the API server's cache: while many claims go, a list that must be the newest takes long,
    and each of their steps would wait for one. A claim that got the instance a moment ago may be missing.
    """
    listed = claims_of_instance(ports, instance_id(claim.provider_id), cached=True)
    others = claims_by_name(ports, sorted({other.name for other in listed} - {claim.name}))
    return tuple(
        other
        for other in others.values()
        if other.provider_id == claim.provider_id and other.metadata.deletion_timestamp is None
    )


def has_disrupted_taint(node: Node) -> bool:
    return any(taint.key == labels.DISRUPTED for taint in node.taints)
