"""Registration: a Node with the claim's provider id has joined; it takes over what the claim says.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/lifecycle/registration.go``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.lifecycle.steps import (
    StepResult,
    false_condition,
    true_condition,
    unknown_condition,
)
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import OwnerReference
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.rows import Event

# The reason of Registered for a claim whose instance is another claim's.
MULTIPLE_NODECLAIMS: Final = "MultipleNodeClaimsFound"


class NodeUpdate(msgspec.Struct, frozen=True):
    """How registration changes the Node. ``metadata``: a merge patch; ``taints``: all taints it has afterwards."""

    node: Node
    metadata: dict[str, Any]
    taints: tuple[Taint, ...]


class Registration(msgspec.Struct, frozen=True):
    """``node_update`` None = the claim cannot be registered: there is no node yet, or not exactly one."""

    result: StepResult
    node_update: NodeUpdate | None = None


def lacks_partition(claim: NodeClaim) -> bool:
    """Whether the instance is in a partition of a placement group and EC2 has not said in which."""
    return claim.metadata.labels.get(labels.PLACEMENT_GROUP_PARTITION) == ""


def own_node(claim: NodeClaim, nodes: Iterable[Node]) -> Node | None:
    """Of the nodes with the claim's provider id the one with the name of its instance; None = there is none, as where
    nodes have other names.

    EKS admits the kubelet of an instance under its private DNS name, and lets it write no Node of another name
    (https://kubernetes.io/docs/reference/access-authn-authz/node/); what provider id its Node states is its own choice.
    """
    name = claim.metadata.annotations.get(labels.EXPECTED_NODE, "")
    return next((node for node in nodes if node.name == name and node.metadata.deletion_timestamp is None), None)


def is_registered_with_another(claim: NodeClaim, nodes: Iterable[Node]) -> bool:
    """Whether a Node stated the claim's provider id before the one of its instance joined."""
    own = own_node(claim, nodes)
    return own is not None and claim.is_condition_true("Registered") and claim.node_name != own.name


def unregister(claim: NodeClaim, node: Node) -> dict[str, Any]:
    """As a merge patch, what registration with the claim wrote on a Node that does not have its instance, taken back.

    Its pods stay, and so do its taints. What a kubelet or the cloud controller manager sets on any Node stays as it is:
    nobody knows what it was. Empty where nothing is to be taken back; where another NodeClaim owns the Node, too, what
    the two have in common is the other's. A Node that is being deleted keeps its finalizer until its pods are drained.
    """
    owners = node.metadata.owner_references
    others = [owner for owner in owners if owner.uid != claim.metadata.uid]
    if len(others) == len(owners) or node.metadata.deletion_timestamp is not None:
        return {}
    change: dict[str, Any] = {"ownerReferences": [_encoded(owner) for owner in others]}
    if any(owner.kind == "NodeClaim" for owner in others):
        return change
    given = claim.metadata.labels | {labels.REGISTERED: "true", labels.INITIALIZED: "true"}
    return change | {
        "labels": _without(node.metadata.labels, given, _OF_ANY_NODE),
        "annotations": _without(node.metadata.annotations, claim.metadata.annotations, _CLAIM_ONLY_ANNOTATIONS),
        "finalizers": [finalizer for finalizer in node.metadata.finalizers if finalizer != labels.FINALIZER],
    }


def _without(present: Mapping[str, str], given: Mapping[str, str], kept: Collection[str]) -> dict[str, None]:
    return {key: None for key, value in given.items() if present.get(key) == value and key not in kept}


def register(claim: NodeClaim, nodes: tuple[Node, ...], other_claims: Sequence[str] = ()) -> Registration:
    """``nodes``: the nodes with the claim's provider id; ``other_claims``: NodeClaims that are registered with it.

    Unlike in Karpenter, of several nodes the one with the name of the instance is registered. A node whose partition is
    not known is not registered, since pods may be spread over partitions.
    """
    if other_claims:
        message = f"its instance belongs to NodeClaim {', '.join(other_claims)} already"
        return Registration(StepResult((false_condition("Registered", MULTIPLE_NODECLAIMS, message),)))
    if not nodes:
        return Registration(
            StepResult((unknown_condition("Registered", "NodeNotFound", "Node not registered with cluster"),))
        )
    own = own_node(claim, nodes)
    if own is None and len(nodes) > 1:
        message = "Invariant violated, matched multiple nodes: " + ", ".join(sorted(node.name for node in nodes))
        return Registration(StepResult((false_condition("Registered", "MultipleNodesFound", message),)))
    if lacks_partition(claim):
        message = "EC2 does not show yet which partition of the placement group the instance is in"
        return Registration(StepResult((unknown_condition("Registered", "RegistrationHookPending", message),)))
    node = own or nodes[0]
    step_result = StepResult(
        (true_condition("Registered"),), _missing_taint(node), {"nodeName": node.name}, log_lines.REGISTERED_NODECLAIM
    )
    return Registration(step_result, NodeUpdate(node, _metadata_patch(claim, node), _synced_taints(claim, node)))


def _missing_taint(node: Node) -> tuple[Event, ...]:
    if node.is_registered or any(taint.key == labels.UNREGISTERED for taint in node.taints):
        return ()
    return (events.UNREGISTERED_TAINT_MISSING(),)


def _metadata_patch(claim: NodeClaim, node: Node) -> dict[str, Any]:
    change: dict[str, Any] = {
        "labels": claim.metadata.labels | {labels.REGISTERED: "true"},
        "annotations": {
            key: value for key, value in claim.metadata.annotations.items() if key not in _CLAIM_ONLY_ANNOTATIONS
        },
        "ownerReferences": [
            *(_encoded(owner) for owner in node.metadata.owner_references if owner.uid != claim.metadata.uid),
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "name": claim.name,
                "uid": claim.metadata.uid,
                "blockOwnerDeletion": True,
            },
        ],
    }
    if labels.FINALIZER not in node.metadata.finalizers:
        change["finalizers"] = [*node.metadata.finalizers, labels.FINALIZER]
    return change


def _encoded(owner: OwnerReference) -> dict[str, Any]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


_OF_ANY_NODE: Final = frozenset(
    {
        labels.ARCH, labels.OS, labels.HOSTNAME, labels.INSTANCE_TYPE, labels.REGION, labels.ZONE, labels.ZONE_ID,
        labels.WINDOWS_BUILD,
    }
)  # fmt: skip
_CLAIM_ONLY_ANNOTATIONS: Final = frozenset(
    {
        labels.INSTANCE_TAGGED,
        labels.CLUSTER_NAME_TAGGED,
        labels.TERMINATION_TIMESTAMP,
        labels.INSTANCE_NOT_FOUND,
        labels.PODS_SEEN,
        labels.SEEN_UNHEALTHY,
        labels.EXPECTED_NODE,
        labels.COMMANDS,
        labels.OTHER_NODES,
        labels.VOLUME_ATTACHMENTS,
        labels.LAST_APPLIED,
    }
)


def _synced_taints(claim: NodeClaim, node: Node) -> tuple[Taint, ...]:
    """The node's taints without the unregistered taint and, unless the label do-not-sync-taints is set, the claim's."""
    node_taints = [taint for taint in node.taints if taint.key != labels.UNREGISTERED]
    if node.metadata.labels.get(labels.DO_NOT_SYNC_TAINTS) == "true":
        return tuple(node_taints)
    present_taints = {(taint.key, taint.effect) for taint in node_taints}
    taints = (
        taint for taint in (*claim.taints, *claim.startup_taints) if (taint.key, taint.effect) not in present_taints
    )
    return (*node_taints, *dict.fromkeys(taints))
