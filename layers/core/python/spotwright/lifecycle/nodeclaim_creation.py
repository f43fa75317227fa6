"""A planned node as a NodeClaim, and a NodeClaim without a plan as a node to launch.

Source: Karpenter v1.14 ``pkg/controllers/provisioning/scheduling/nodeclaimtemplate.go``. Names are derived from the
decision instead of generateName, so that a repeated creation finds the NodeClaim.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import ObjectMeta, OwnerReference
from spotwright.model.requirements import NodeSelectorRequirement, from_expressions
from spotwright.scheduling.plan import NewNode

NODECLASS_GROUP: Final = "karpenter.k8s.aws"
NODECLASS_KIND: Final = "EC2NodeClass"


def to_nodeclaim(
    name: str, node: NewNode, pool: NodePool, *, decision_id: str, launch_id: str, annotations: Mapping[str, str]
) -> NodeClaim:
    """The NodeClaim to create, with its finalizer. ``annotations``: the pool's hash and its version."""
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels=dict(pool.labels)
            | dict(node.labels)
            | {labels.NODEPOOL: pool.name, labels.EC2NODECLASS: node.nodeclass},
            annotations=dict(pool.annotations)
            | dict(annotations)
            | _min_values_annotation(node, pool)
            | _overlay_annotations(node)
            | {labels.DECISION: decision_id, labels.LAUNCH: launch_id},
            finalizers=(labels.FINALIZER,),
            owner_references=(OwnerReference("NodePool", pool.name, pool.metadata.uid, "karpenter.sh/v1"),),
        ),
        node_class_ref=NodeClassReference(NODECLASS_GROUP, NODECLASS_KIND, node.nodeclass),
        requirements=node.requirements,
        requests=dict(node.requests),
        taints=node.taints,
        startup_taints=node.startup_taints,
        expire_after_seconds=pool.expire_after_seconds,
        termination_grace_period_seconds=pool.termination_grace_period_seconds,
    )


def decided_nodepool(node: NewNode, pool: NodePool) -> NodePool:
    """The pool with the template that the decision used, where the pool changed after the decision.

    A label that was removed from the template since then is one that nothing else gives the node. (One that was given
    by a requirement which was removed counts as such, too: then the node drifts, as its requirements do.)
    """
    others = {expression.key for expression in pool.requirements} | labels.WELL_KNOWN | {labels.EC2NODECLASS}
    removed = {key: value for key, value in node.labels.items() if key not in pool.labels and key not in others}
    return msgspec.structs.replace(
        pool,
        labels={key: node.labels.get(key, value) for key, value in pool.labels.items()} | removed,
        taints=node.taints,
        startup_taints=node.startup_taints,
        node_class_ref=msgspec.structs.replace(pool.node_class_ref, name=node.nodeclass),
    )


def _min_values_annotation(node: NewNode, pool: NodePool) -> dict[str, str]:
    """Whether minValues was relaxed below what the pool states (BestEffort); {} = the pool states no minValues."""
    pool_minimums = [expression for expression in pool.requirements if expression.min_values]
    node_minimums = {expression.key: expression.min_values or 0 for expression in node.requirements}
    is_relaxed = any(
        node_minimums.get(expression.key, 0) < (expression.min_values or 0) for expression in pool_minimums
    )
    return {labels.MIN_VALUES_RELAXED: "true" if is_relaxed else "false"} if pool_minimums else {}


def _overlay_annotations(node: NewNode) -> dict[str, str]:
    """Whether a NodeOverlay changed the price or the capacity of the node."""
    overlays = {
        labels.PRICE_OVERLAY_APPLIED: node.price_overlay_applied,
        labels.CAPACITY_OVERLAY_APPLIED: node.capacity_overlay_applied,
    }
    return {key: "true" for key, is_applied in overlays.items() if is_applied}


def allowed_types(requirements: Iterable[NodeSelectorRequirement], instance_types: Iterable[str]) -> tuple[str, ...]:
    """Those of ``instance_types`` that the requirement of their label allows, in their order."""
    requirement = from_expressions(requirements).get(labels.INSTANCE_TYPE)
    return tuple(name for name in instance_types if requirement.has(name))


def to_new_node(claim: NodeClaim, instance_types: Iterable[str]) -> NewNode:
    """The node to launch for a NodeClaim that a user created, or whose launch row is lost.

    ``instance_types``: all names in the catalog of its class; the launch filters leave out those that do not fit.
    """
    return NewNode(
        nodepool=claim.nodepool,
        nodeclass=claim.node_class_ref.name,
        pods=(),
        instance_types=allowed_types(claim.requirements, instance_types),
        requirements=claim.requirements,
        labels=dict(claim.metadata.labels),
        taints=claim.taints,
        startup_taints=claim.startup_taints,
        requests=dict(claim.requests),
        price_picousd_per_hour=0,
        capacity_type="",
        zones=(),
        reason=f"NodeClaim {claim.name} had no launch",
        price_overlay_applied=claim.metadata.annotations.get(labels.PRICE_OVERLAY_APPLIED) == "true",
        capacity_overlay_applied=claim.metadata.annotations.get(labels.CAPACITY_OVERLAY_APPLIED) == "true",
    )
