"""One step in the life of a NodeClaim: launched, registered, initialized, kept up to date, or on its way out.

Level-triggered: every step reads the claim and its node anew and writes what is missing. Karpenter's order within a
pass: launch, registration, initialization, liveness.
"""

import math
from datetime import datetime
from typing import Final

from spotwright.disruption.nodeclaim_drift import DRIFTED
from spotwright.errors import ApiError, Conflict, NotFound, OutOfTime, Throttled, Unavailable
from spotwright.lifecycle import liveness
from spotwright.lifecycle.registration import (
    is_registered_with_another,
    own_node,
    unregister,
)
from spotwright.lifecycle.retry import NODE_TICK_SECONDS, ONCE_MORE, is_past_last, next_tick
from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    delete_claim_and_say_why,
    log,
    log_claim,
    nodes_of,
    note_other_node,
    other_claims,
    request_disruption_soon,
    request_planning_of_static_pool,
    request_pool_status,
    ring_lifecycle,
    ring_next_tick,
)
from spotwright.workflows.lifecycle.commands import ring_commands
from spotwright.workflows.lifecycle.joining import nominations
from spotwright.workflows.lifecycle.joining.initialization import step_initialization
from spotwright.workflows.lifecycle.joining.initialized import step_initialized
from spotwright.workflows.lifecycle.joining.launching import step_launch
from spotwright.workflows.lifecycle.joining.registration import SeenNode, step_registration
from spotwright.workflows.lifecycle.joining.tagging import TAGGED
from spotwright.workflows.lifecycle.other_provisioners import is_left_alone
from spotwright.workflows.lifecycle.termination.finalizer import finalize
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination
from spotwright.workflows.planning.heartbeat import is_forwarder_alive
from spotwright.workflows.ports.bundles import LifecyclePorts

# A deleted claim without any of these is stepped for the first time.
_TERMINATION_CONDITIONS: Final = ("Drained", "InstanceTerminating")
# A step that met another change of the same object is taken again after so long.
CONFLICT_SECONDS: Final = 1


def step_nodeclaim(
    ports: LifecyclePorts,
    name: str,
    to_terminate: list[InstanceTermination],
    *,
    now: datetime,
    ticks: int = 0,
) -> None:
    """Take the claim ``name`` one step further. ``ticks``: number of the tick that rang, 0 = no tick did; ONCE_MORE.

    Ticks go on until the claim has no further step; after a concurrent change or an error the next tick tries again,
    and after a concurrent change the doorbell of a node, too. Where ticks have ended, an error that may pass is raised:
    the doorbell is rung once more, and then its message comes back. While a node is drained, the end of its last pod
    may ring before the drain is over, and ticks are far apart then: the claim is rung for once more.
    """
    claim = ports.cluster.nodeclaim(name)
    if claim is None:
        return
    is_tick = ticks not in (0, ONCE_MORE)
    progressed = _last_progress(claim) if is_tick else None
    age = float("inf") if progressed is None else (now - progressed).total_seconds()
    # A time of the future says nothing of now.
    if 0 <= age < NODE_TICK_SECONDS and is_forwarder_alive(ports.state, now=now):
        # The node rings for what comes next.
        ring_next_tick(ports, name, ticks + 1, earliest_seconds=math.ceil(NODE_TICK_SECONDS - age))
        return
    if is_tick and _is_settled(ports, claim):
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
    instance: Instance | None = None,
) -> None:
    """The same for a claim as it was read a moment ago. ``seen``: the node whose doorbell rang; ``instance``: as EC2
    has just shown it.
    """
    if not claim.is_managed or is_left_alone(ports, claim, now=now):
        return
    with log_claim(claim):
        _step(ports, claim, to_terminate, now, ticks, seen, instance)


def _step(
    ports: LifecyclePorts,
    claim: NodeClaim,
    to_terminate: list[InstanceTermination],
    now: datetime,
    ticks: int,
    seen: SeenNode | None,
    instance: Instance | None,
) -> None:
    name, earliest = claim.name, 0
    node = seen.node if seen is not None else None
    starts = claim.metadata.deletion_timestamp is not None and not any(
        find_condition(claim.conditions, type) for type in _TERMINATION_CONDITIONS
    )
    tick = next_tick(ticks, deleting=claim.metadata.deletion_timestamp is not None, starts=starts)
    try:
        wait = (
            finalize(ports, claim, now, to_terminate, seen=node, shown=instance)
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
        elif isinstance(lost, Conflict) and node is None and not tick:
            # The forwarder says once that a user has created a claim, and EC2 that its instance has ended. A live claim
            # is tried once more: polls look at one whose conflict stays.
            number = 0 if claim.metadata.deletion_timestamp is not None else ONCE_MORE
            ring_lifecycle(ports, "claim", [name], delay_seconds=CONFLICT_SECONDS, epoch=number)
    except ApiError as failure:
        is_last = not tick or is_past_last(tick)
        if is_last and (isinstance(failure, OutOfTime) or _waits_for_doorbell(claim, failure)):
            # No tick follows: its doorbell is rung again, or its message comes back.
            raise
        log_line(log, log_lines.STEP_FAILED, kind="nodeclaim", object=name, code=failure.code, error=str(failure))
        wait = float("inf")
    if wait is not None and tick:
        ring_next_tick(ports, name, tick, within_seconds=wait, earliest_seconds=earliest)
    elif wait is not None and _rings_once_more(claim, node, wait):
        # Just after it: a pod whose time is now is deleted when that has passed.
        ring_lifecycle(ports, "claim", [name], delay_seconds=max(0, math.floor(wait)) + 1)
    if starts:
        request_pool_status(ports, now=now)
        ring_commands(ports, claim)
    if claim.metadata.deletion_timestamp and (starts or wait is None):
        request_planning_of_static_pool(ports, claim)


def _waits_for_doorbell(claim: NodeClaim, failure: ApiError) -> bool:
    """Whether nobody else looks at the claim soon after a call that may succeed next time: ticks of one that is
    initialized have ended. What the API refuses it refuses again.
    """
    has_ended = claim.metadata.deletion_timestamp is None and claim.is_condition_true("Initialized")
    return has_ended and isinstance(failure, Throttled | Unavailable)


def _rings_once_more(claim: NodeClaim, node: Node | None, wait: float) -> bool:
    """Whether a drain that goes on in ``wait`` seconds is rung for, because a node rang: nothing else may until the
    next tick. That an instance terminates is told by EC2.
    """
    if node is None or claim.metadata.deletion_timestamp is None or wait >= NODE_TICK_SECONDS:
        return False
    return find_condition(claim.conditions, "InstanceTerminating") is None


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
        return step_launch(ports, claim, now)
    claim = _with_missing_labels(ports, claim)
    nodes = nodes_of(ports, claim, now=now, seen=seen.node if seen is not None else None)
    deleted = _deleted_node(ports, claim, nodes)
    if deleted and not other_claims(ports, claim):
        log_line(log, log_lines.DELETING_NODECLAIM_OF_NODE, nodeclaim=claim.name, node=deleted)
        deletion = Deletion("node_deleted", f"Node {deleted} was deleted")
        delete_claim_and_say_why(ports, claim, deletion, now=now)
        return None
    if is_registered_with_another(claim, nodes):
        return step_registration(ports, note_other_node(ports, claim, claim.node_name), nodes, seen, now)
    if not claim.is_condition_true("Registered"):
        return step_registration(ports, claim, nodes, seen, now)
    node = next((node for node in nodes if node.name == claim.node_name), nodes[0] if nodes else None)
    if not claim.is_condition_true("Initialized"):
        wait = step_initialization(ports, claim, node, now)
    else:
        if seen is not None and claim.is_condition_true(DRIFTED):
            request_disruption_soon(ports, now=now)
        wait = step_initialized(ports, claim, node, now)
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
