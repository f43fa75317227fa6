"""Drift: why a NodeClaim is not what its NodePool and its EC2NodeClass would make now."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class DriftReason(StrEnum):
    """Reasons of the condition ``Drifted``, in the order of their checks: the first that holds counts."""

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
    """A claim has drifted. ``message``: the actual and the wanted value."""

    reason: DriftReason
    message: str


class DriftUnknown(msgspec.Struct, frozen=True):
    """Whether a claim has drifted is not known now: its condition stays as it is. ``why``: what is not known."""

    why: str


def static_fields_drift(
    reason: DriftReason,
    owner: str,
    nodeclaim_annotations: Mapping[str, str],
    owner_annotations: Mapping[str, str],
    keys: tuple[str, str],
) -> Drift | None:
    """Whether the hash of ``owner``, a NodePool or class, differs from the hash that a claim was created with.

    ``keys``: the annotations of the hash and of its version. Without both hashes in the same version there is no drift.
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
