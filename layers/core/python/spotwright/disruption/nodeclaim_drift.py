"""Whether a NodeClaim has drifted from its NodePool and its class.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/disruption/drift.go``, its order included. Karpenter looks for
instance types that are no longer offered every half hour; the catalog allows it every time.
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
# A missing instance type is drift only once the claim is older than this.
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
    """Why the claim has drifted, the first reason in the order of DriftReason; None = it has not.

    ``nodeclass``: the class that ``pool`` refers to. ``types``: its instance types by name, available or not; empty =
    not known. ``instance``: as EC2 describes it now, None = not known. ``feature_gates``: feature gates that are on.
    """
    if not claim.is_condition_true("Launched"):
        return None
    if pool is None or pool.read_error:
        return DriftUnknown(pool.read_error if pool else f"there is no NodePool {claim.nodepool}")
    if pool.metadata.deletion_timestamp is not None:
        return None
    drift = _template_drift(claim, pool) or _requirement_drift(claim, pool)
    if drift is not None:
        return drift
    if nodeclass is None or nodeclass.metadata.deletion_timestamp is not None:
        return None
    if nodeclass.read_error:
        return DriftUnknown(nodeclass.read_error)
    instance_type = types.get(claim.metadata.labels.get(labels.INSTANCE_TYPE, ""))
    drift = _instance_type_drift(claim, types, instance_type, now)
    return drift or instance_drift.instance_drift(
        claim, nodeclass, instance_type, instance, feature_gates=feature_gates
    )


def hash_migration(claim: NodeClaim, current: Mapping[str, str], version_key: str) -> Mapping[str, str]:
    """The annotations to set on a claim whose hash has another version; {} = its version is current.

    ``current``: hash and version of its NodePool or class; ``version_key``: the annotation of the version. A claim that
    has drifted already keeps its hash and stays drifted; whether another claim has drifted cannot be known.
    """
    if claim.metadata.annotations.get(version_key) == current[version_key]:
        return {}
    return current if find_condition(claim.conditions, DRIFTED) is None else {version_key: current[version_key]}


def _template_drift(claim: NodeClaim, pool: NodePool) -> Drift | None:
    keys = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    claim_annotations, pool_annotations = claim.metadata.annotations, pool.metadata.annotations
    return static_fields_drift(DriftReason.NODEPOOL, f"NodePool {pool.name}", claim_annotations, pool_annotations, keys)


def _requirement_drift(claim: NodeClaim, pool: NodePool) -> Drift | DriftUnknown | None:
    """A missing label that the pool requires is drift, like a label with a value that it does not allow."""
    try:
        wanted = from_expressions(pool.requirements)
    except RequirementError as error:
        return DriftUnknown(f"NodePool {pool.name}: {error}")
    claim_labels = claim.metadata.labels
    if labels.PLACEMENT_GROUP_PARTITION in wanted and claim_labels.get(labels.PLACEMENT_GROUP_PARTITION) == "":
        return DriftUnknown("EC2 does not show which partition the node is in")
    requirements = from_labels(claim_labels)
    for key in requirements.undefined_keys(wanted, ()):
        return Drift(DriftReason.REQUIREMENTS, f"labels: found no {key}, wanted {wanted.get(key)}")
    for requirement, wanted_requirement in requirements.conflicts(wanted):
        return Drift(DriftReason.REQUIREMENTS, f"labels: found {requirement}, wanted {wanted_requirement}")
    return None


def _instance_type_drift(
    claim: NodeClaim, types: Mapping[str, InstanceType], instance_type: InstanceType | None, now: datetime
) -> Drift | None:
    """Whether EC2 no longer offers the type in the claim's zone and capacity type; unavailable offerings count."""
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
