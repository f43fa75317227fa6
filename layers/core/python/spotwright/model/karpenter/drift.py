"""What makes a NodeClaim drift: it is no longer what its NodePool and its class ask for."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class DriftReason(StrEnum):
    """Reasons of the condition ``Drifted``, in the order in which they are looked for: the first one found counts."""

    NODEPOOL = "NodePoolDrifted"
    REQUIREMENTS = "RequirementsDrifted"
    INSTANCE_TYPE = "InstanceTypeNotFound"
    NODECLASS = "NodeClassDrift"
    AMI = "AMIDrift"
    SECURITY_GROUP = "SecurityGroupDrift"
    SUBNET = "SubnetDrift"
    CAPACITY_RESERVATION = "CapacityReservationDrift"
    PLACEMENT_GROUP = "PlacementGroupDrift"


class Drift(msgspec.Struct, frozen=True):
    """A claim drifts. ``message``: what was found and what is wanted."""

    reason: DriftReason
    message: str


class DriftUnknown(msgspec.Struct, frozen=True):
    """It cannot be told now whether a claim drifts: what was said of it before stays. ``why``: what is not known."""

    why: str


def static_fields_drift(
    reason: DriftReason,
    owner: str,
    nodeclaim_annotations: Mapping[str, str],
    owner_annotations: Mapping[str, str],
    keys: tuple[str, str],
) -> Drift | None:
    """Whether ``owner`` has another hash now than when it made a claim.

    ``nodeclaim_annotations``: annotations of the claim; ``owner_annotations``: of its maker; ``keys``: of the hash and
    of its version. Hashes of different versions say nothing, and neither does one that is missing.
    """
    if any(key not in annotations for key in keys for annotations in (nodeclaim_annotations, owner_annotations)):
        return None
    key, version = keys
    if (
        nodeclaim_annotations[version] != owner_annotations[version]
        or nodeclaim_annotations[key] == owner_annotations[key]
    ):
        return None
    return Drift(
        reason, f"{owner} was changed: found hash {nodeclaim_annotations[key]}, wanted {owner_annotations[key]}"
    )
