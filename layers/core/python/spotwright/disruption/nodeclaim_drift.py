"""Whether a node is still what its NodePool and its class ask for.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/disruption/drift.go``, its order included. It looks for
types that are gone every half hour, since asking costs it calls; our catalog is there, so we look each time.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from spotwright.aws.nodeclass import instance_drift
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.drift import Drift, DriftReason, DriftUnknown, static_fields_drift
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.requirements import RequirementError, from_expressions, from_labels

DRIFTED: Final = "Drifted"
# What EC2 sells is no wish of the user's: a type counts as gone only once the claim is older than this.
MISSING_TYPE_GRACE: Final = timedelta(hours=1)


def nodeclaim_drift(
    claim: NodeClaim,
    pool: NodePool | None,
    nodeclass: EC2NodeClass | None,
    types: Mapping[str, InstanceType],
    instance: Instance | None,
    *,
    feature_gates: Collection[str],
    now: datetime,
) -> Drift | DriftUnknown | None:
    """Why the claim drifts, the first reason in the order of DriftReason; None = it does not.

    ``nodeclass``: the one that ``pool`` refers to. ``types``: of that class, by name, available or not; empty = not
    known. ``instance``: as EC2 describes it now, None = not known. ``feature_gates``: feature gates that are on.
    """
    if not claim.is_condition_true("Launched"):
        return None
    if pool is None or pool.read_error:
        return DriftUnknown(pool.read_error if pool else f"there is no NodePool {claim.nodepool}")
    if pool.metadata.deletion_timestamp is not None:
        return None
    wished = _template(claim, pool) or _requirements(claim, pool)
    if wished is not None:
        return wished
    if nodeclass is None or nodeclass.metadata.deletion_timestamp is not None:
        return None
    if nodeclass.read_error:
        return DriftUnknown(nodeclass.read_error)
    instance_type = types.get(claim.metadata.labels.get(labels.INSTANCE_TYPE, ""))
    drift = _type(claim, types, instance_type, now)
    return drift or instance_drift.instance_drift(
        claim, nodeclass, instance_type, instance, feature_gates=feature_gates
    )


def hash_migration(claim: NodeClaim, current: Mapping[str, str], version_key: str) -> Mapping[str, str]:
    """The annotations that a claim must get where its hash is of another version than ours; {} = it keeps its own.

    ``current``: hash and version of what made it; ``version_key``: the version's key. Only a claim that drifts already
    keeps its hash: of the others nobody can say that they do.
    """
    if claim.metadata.annotations.get(version_key) == current[version_key]:
        return {}
    return current if find_condition(claim.conditions, DRIFTED) is None else {version_key: current[version_key]}


def _template(claim: NodeClaim, pool: NodePool) -> Drift | None:
    keys = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    mine, own = claim.metadata.annotations, pool.metadata.annotations
    return static_fields_drift(DriftReason.NODEPOOL, f"NodePool {pool.name}", mine, own, keys)


def _requirements(claim: NodeClaim, pool: NodePool) -> Drift | DriftUnknown | None:
    """A label that must be there and is not drifts like one with a value that is not allowed."""
    try:
        wanted = from_expressions(pool.requirements)
    except RequirementError as error:
        return DriftUnknown(f"NodePool {pool.name}: {error}")
    known = claim.metadata.labels
    if labels.PLACEMENT_GROUP_PARTITION in wanted and known.get(labels.PLACEMENT_GROUP_PARTITION) == "":
        return DriftUnknown("EC2 has not said in which partition the node is")
    requirements = from_labels(known)
    for key in requirements.undefined_keys(wanted, ()):
        return Drift(DriftReason.REQUIREMENTS, f"labels: found no {key}, wanted {wanted.get(key)}")
    for requirement, theirs in requirements.conflicts(wanted):
        return Drift(DriftReason.REQUIREMENTS, f"labels: found {requirement}, wanted {theirs}")
    return None


def _type(
    claim: NodeClaim, types: Mapping[str, InstanceType], instance_type: InstanceType | None, now: datetime
) -> Drift | None:
    """Whether the type is not sold any more where and as it was bought. What is merely sold out is there."""
    created = claim.metadata.creation_timestamp
    if not types or created is None or now - created <= MISSING_TYPE_GRACE:
        return None
    name = claim.metadata.labels.get(labels.INSTANCE_TYPE, "")
    if instance_type is None:
        return Drift(DriftReason.INSTANCE_TYPE, f"{name} is not offered in any zone of the class")
    zone, bought = claim.metadata.labels.get(labels.ZONE), claim.metadata.labels.get(labels.CAPACITY_TYPE)
    # A node may have left its reservation, and its label may not say so yet.
    kinds = (labels.RESERVED, labels.ON_DEMAND) if bought == labels.RESERVED else (bought,)
    if any(
        (offering.zone, offering.capacity_type) in {(zone, kind) for kind in kinds}
        for offering in instance_type.offerings
    ):
        return None
    return Drift(DriftReason.INSTANCE_TYPE, f"{name} is not offered as {bought} in {zone}")
