"""A claim that is what its pool and class ask for, and all it is held against, to change one thing of."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from spotwright.disruption.nodeclaim_drift import nodeclaim_drift
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.drift import Drift, DriftUnknown
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    EC2NodeClass,
)
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONE = builders.ZONES[0]
GATES = ("ReservedCapacity",)
POOL_HASH = {labels.NODEPOOL_HASH: "1", labels.NODEPOOL_HASH_VERSION: "v3"}
CLASS_HASH = {labels.EC2NODECLASS_HASH: "2", labels.EC2NODECLASS_HASH_VERSION: "v6"}
LABELS = {
    labels.NODEPOOL: "default", labels.INSTANCE_TYPE: "m5.large", labels.ZONE: ZONE, labels.CAPACITY_TYPE: labels.SPOT,
    labels.ARCH: "amd64",
}  # fmt: skip
TYPES = {instance_type.name: instance_type for instance_type in builders.small_catalog().instance_types("")}


def claim(*, age: timedelta = timedelta(minutes=30), image: str = "ami-amd64", **changes: Any) -> NodeClaim:
    """A launched m5.large on spot. ``labels``, ``annotations``: on top; None takes one away. ``conditions``: others."""
    about = ObjectMeta(
        "claim",
        creation_timestamp=NOW - age,
        labels=merged(LABELS, changes.get("labels", {})),
        annotations=merged(POOL_HASH | CLASS_HASH, changes.get("annotations", {})),
    )
    return NodeClaim(
        about,
        builders.nodepool().node_class_ref,
        provider_id=f"aws:///{ZONE}/i-1",
        image_id=image,
        conditions=changes.get("conditions", (Condition("Launched", "True"),)),
    )


def merged(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """With the changes on top; None takes one away."""
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def pool(hashed: Mapping[str, str] = POOL_HASH, **fields: Any) -> NodePool:
    return builders.nodepool(metadata=ObjectMeta("default", annotations=dict(hashed)), **fields)


def nodeclass(hashed: Mapping[str, str] = CLASS_HASH, **fields: Any) -> EC2NodeClass:
    return builders.nodeclass(metadata=ObjectMeta("default", annotations=dict(hashed)), **fields)


def instance(**fields: Any) -> Instance:
    built = Instance("i-1", "m5.large", ZONE, "spot", "running", subnet_id="subnet-a", security_groups=("sg-1",))
    return msgspec.structs.replace(built, **fields)


def judged(
    nodeclaim: NodeClaim | None = None,
    *,
    of: NodePool | None = None,
    like: EC2NodeClass | None = None,
    types: Mapping[str, InstanceType] = TYPES,
    on: Instance | None = None,
    gates: tuple[str, ...] = GATES,
) -> Drift | DriftUnknown | None:
    running = on or instance()
    return nodeclaim_drift(
        nodeclaim or claim(), of or pool(), like or nodeclass(), types, running, feature_gates=gates, now=NOW
    )


def reason(drift: Drift | DriftUnknown | None) -> str:
    return drift.reason if isinstance(drift, Drift) else type(drift).__name__


def requiring(key: str, operator: str, *values: str) -> NodePool:
    return pool(requirements=(NodeSelectorRequirement(key, operator, values),))


def reserving(*ids: str) -> EC2NodeClass:
    return nodeclass(capacity_reservations=tuple(CapacityReservation(id, "m5.large", ZONE) for id in ids))
