"""Initialization: the registered Node is ready for ordinary pods.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/lifecycle/initialization.go``. A NodeClaim stays Initialized, and
has no time limit to become so.
"""

from spotwright.lifecycle.steps import ConditionChange, StepResult, true_condition, unknown_condition
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, is_ephemeral
from spotwright.telemetry import log_lines


def initialize(claim: NodeClaim, node: Node | None) -> StepResult:
    """``node``: the claim's registered node, None = there is none."""
    blocked = _blocking_condition(claim, node)
    if blocked is not None:
        return StepResult((blocked,))
    return StepResult((true_condition("Initialized"),), log=log_lines.INITIALIZED_NODECLAIM)


def _blocking_condition(claim: NodeClaim, node: Node | None) -> ConditionChange | None:
    if node is None:
        return unknown_condition("Initialized", "NodeNotFound", "Node not registered with cluster")
    if not node.is_ready:
        return unknown_condition("Initialized", "NodeNotReady", "Node status is NotReady")
    startup_taints = {(taint.key, taint.effect) for taint in claim.startup_taints}
    for taint in node.taints:
        if (taint.key, taint.effect) in startup_taints:
            return unknown_condition("Initialized", "StartupTaintsExist", f"StartupTaint {taint} still exists")
    for taint in node.taints:
        if is_ephemeral(taint):
            return unknown_condition(
                "Initialized", "KnownEphemeralTaintsExist", f"KnownEphemeralTaint {taint} still exists"
            )
    for name, size in sorted(claim.requests.items()):
        if size > 0 and not node.allocatable.get(name):
            return unknown_condition(
                "Initialized", "ResourceNotRegistered", f'Resource "{name}" was requested but not registered'
            )
    return None
