"""Initialization of a NodeClaim: its Node is Ready, with all that the claim promises."""

from datetime import datetime

from spotwright.aws.instance_types import discovered_capacity
from spotwright.lifecycle.initialization import initialize
from spotwright.lifecycle.retry import NODE_TICK_SECONDS
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.workflows.lifecycle.commands import ring_commands
from spotwright.workflows.lifecycle.joining import nominations
from spotwright.workflows.lifecycle.joining.initialized import (
    set_consolidatable,
    soonest,
    step_pods,
    tag,
)
from spotwright.workflows.lifecycle.joining.results import with_consistency, write_result
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell


def step_initialization(ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    """The claim is initialized if its node is; seconds until the next step at the latest, None = there is none."""
    node, nomination = nominations.release_node(ports, claim, node, now)
    step_result = initialize(claim, node)
    if step_result.log is not None and node is not None:
        if node.metadata.labels.get(labels.INITIALIZED) != "true":
            ports.cluster.patch_metadata("nodes", node.metadata, {"labels": {labels.INITIALIZED: "true"}})
        step_result = with_consistency(claim, node, step_result)
    claim = write_result(ports, claim, step_result, now)
    if step_result.log is None:
        # A node that becomes ready soon is tagged when its pods have come, which do not wait for that.
        if _is_late(claim, now):
            tag(ports, claim, now)
        return float("inf")
    ring_commands(ports, claim)
    if node is not None and discovered_capacity.has_less_memory(node, claim):
        # Plans rely on the catalog, which is to learn the real memory.
        ports.doorbells.ring("catalog", [Doorbell(ports.cluster.name, "nodeclasses")])
    # Pods may have come to a node that has been open for a while, and do not ring again.
    pods = ports.cluster.pods(node=claim.node_name) if nomination is None else None
    binding = nominations.await_binding(ports, claim, node, pods, now, nomination)
    if binding is not None:
        return binding
    if pods is not None:
        return step_pods(ports, claim, node, pods, binding, now)
    claim, tagging = tag(ports, claim, now)
    return soonest(tagging, set_consolidatable(ports, claim, binding, now))


def _is_late(claim: NodeClaim, now: datetime) -> bool:
    """Whether the claim has been registered for longer than its node should take to become ready."""
    registered = find_condition(claim.conditions, "Registered")
    since = registered.last_transition_time if registered is not None else None
    return since is not None and abs((now - since).total_seconds()) >= NODE_TICK_SECONDS
