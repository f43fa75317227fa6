"""A decided node as a NodeClaim, and which instance becomes which claim.

Source: Karpenter v1.14 ``pkg/controllers/provisioning/scheduling/nodeclaimtemplate.go``; names are derived from the
decision in place of generateName, so that a repeated creation finds itself.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import ObjectMeta, OwnerReference, find_condition
from spotwright.model.requirements import from_expressions
from spotwright.scheduling.plan import NewNode

NODECLASS_GROUP: Final = "karpenter.k8s.aws"
NODECLASS_KIND: Final = "EC2NodeClass"


def to_nodeclaim(
    name: str, node: NewNode, pool: NodePool, *, decision_id: str, launch_id: str, annotations: Mapping[str, str]
) -> NodeClaim:
    """The NodeClaim to create, finalizer and all. ``annotations``: the pool's hash and its version."""
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels=dict(pool.labels)
            | dict(node.labels)
            | {labels.NODEPOOL: pool.name, labels.EC2NODECLASS: node.nodeclass},
            annotations=dict(pool.annotations)
            | dict(annotations)
            | _relaxed(node, pool)
            | _overlaid(node)
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
    """The pool as far as the claim is made of it: what was decided under an older template stays as it was.

    A label that was taken out of the template since is the one thing that is overlooked.
    """
    return msgspec.structs.replace(
        pool,
        labels={key: node.labels.get(key, value) for key, value in pool.labels.items()},
        taints=node.taints,
        startup_taints=node.startup_taints,
        node_class_ref=msgspec.structs.replace(pool.node_class_ref, name=node.nodeclass),
    )


def _relaxed(node: NewNode, pool: NodePool) -> dict[str, str]:
    """Whether fewer distinct values are kept than the pool asks for (BestEffort); {} = it asks for none."""
    wanted = [expression for expression in pool.requirements if expression.min_values]
    kept = {expression.key: expression.min_values or 0 for expression in node.requirements}
    relaxed = any(kept.get(expression.key, 0) < (expression.min_values or 0) for expression in wanted)
    return {labels.MIN_VALUES_RELAXED: "true" if relaxed else "false"} if wanted else {}


def _overlaid(node: NewNode) -> dict[str, str]:
    """What tells whoever looks at a claim that its price or capacity is not the cloud's."""
    marks = {
        labels.PRICE_OVERLAY_APPLIED: node.price_overlay_applied,
        labels.CAPACITY_OVERLAY_APPLIED: node.capacity_overlay_applied,
    }
    return {key: "true" for key, marked in marks.items() if marked}


def to_new_node(claim: NodeClaim, instance_types: Iterable[str]) -> NewNode:
    """What a claim without a decision asks for (made by hand, or whose launch row is lost).

    ``instance_types``: every name in the catalog of its class; the launch filters leave those that fit.
    """
    wanted = from_expressions(claim.requirements).get(labels.INSTANCE_TYPE)
    return NewNode(
        nodepool=claim.nodepool,
        nodeclass=claim.node_class_ref.name,
        pods=(),
        instance_types=tuple(name for name in instance_types if wanted.has(name)),
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


def is_awaiting_instance(claim: NodeClaim, uid: str) -> bool:
    """True when this claim, with this uid, still waits for an instance and is not on its way out."""
    return claim.metadata.uid == uid and claim.metadata.deletion_timestamp is None and not claim.provider_id


def assign_instances(
    claims: Collection[str], assigned: Mapping[str, str], instance_ids: Iterable[str]
) -> dict[str, str]:
    """``assigned`` (claim → instance) with further instances dealt out: ids sorted against names sorted.

    Instances beyond the names, and names beyond the instances, stay out.
    """
    free = sorted(set(claims) - set(assigned))
    fresh = sorted(set(instance_ids) - set(assigned.values()))
    return dict(assigned) | dict(zip(free, fresh, strict=False))


def attribute_reservations(result: FleetResult, reservations: Mapping[str, str]) -> FleetResult:
    """An answer of CreateFleet that says which capacity reservation its instances and errors are about.

    ``reservations``: ``<type>/<zone>`` → id, as the request asked; EC2 says the pool only, and calls it on-demand.
    """
    if not reservations:
        return result
    instances = tuple(with_reservation(instance, reservations) for instance in result.instances)
    return FleetResult(instances, tuple(with_reservation(error, reservations) for error in result.errors))


def with_reservation[T: (Instance, FleetError)](one: T, reservations: Mapping[str, str]) -> T:
    """It, in the reservation of its pool: a launch that targets one gives nothing else."""
    id = reservations.get(f"{one.instance_type}/{one.zone}", "")
    return msgspec.structs.replace(one, capacity_type=labels.RESERVED, reservation_id=id) if id else one


class NodeClassReadiness(msgspec.Struct, frozen=True):
    """Whether a class may be launched from. ``reason`` "" = yes; ``final``: waiting would not help this claim."""

    reason: str = ""
    message: str = ""
    final: bool = False


def nodeclass_readiness(nodeclass: EC2NodeClass | None, name: str) -> NodeClassReadiness:
    """Source: Karpenter's AWS provider: a class that is missing counts as no capacity, one that is not ready ends
    the claim, one that is not known yet is waited for."""
    if nodeclass is None or nodeclass.metadata.deletion_timestamp is not None:
        return NodeClassReadiness(
            "InsufficientCapacity", f"EC2NodeClass {name} does not exist or is being deleted", True
        )
    ready = find_condition(nodeclass.conditions, "Ready")
    if ready is None or ready.status == "Unknown" or ready.observed_generation < nodeclass.metadata.generation:
        return NodeClassReadiness("NodeClassReadinessUnknown", f"EC2NodeClass {name} has not been resolved yet")
    if ready.status != "True":
        return NodeClassReadiness("NodeClassNotReady", f"EC2NodeClass {name} is not ready: {ready.message}", True)
    return NodeClassReadiness()
