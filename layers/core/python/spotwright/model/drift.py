"""What makes a NodeClaim drift: it is no longer what its NodePool and its class ask for."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class DriftReason(StrEnum):
    """Reasons of the condition ``Drifted``, in the order in which they are looked for: the first one found counts."""

    NODE_POOL = "NodePoolDrifted"
    REQUIREMENTS = "RequirementsDrifted"
    INSTANCE_TYPE = "InstanceTypeNotFound"
    NODE_CLASS = "NodeClassDrift"
    AMI = "AMIDrift"
    SECURITY_GROUP = "SecurityGroupDrift"
    SUBNET = "SubnetDrift"
    CAPACITY_RESERVATION = "CapacityReservationDrift"
    PLACEMENT_GROUP = "PlacementGroupDrift"


class Drift(msgspec.Struct, frozen=True):
    """A claim drifts. ``message``: what was found and what is wanted."""

    reason: DriftReason
    message: str


class Undecided(msgspec.Struct, frozen=True):
    """It cannot be told now whether a claim drifts: what was said of it before stays. ``why``: what is not known."""

    why: str


def restated(
    reason: DriftReason, maker: str, found: Mapping[str, str], wanted: Mapping[str, str], keys: tuple[str, str]
) -> Drift | None:
    """Whether ``maker`` has another hash now than when it made a claim.

    ``found``: annotations of the claim; ``wanted``: of its maker; ``keys``: of the hash and of its version. Hashes of
    different versions say nothing, and neither does one that is missing.
    """
    if any(key not in annotations for key in keys for annotations in (found, wanted)):
        return None
    key, version = keys
    if found[version] != wanted[version] or found[key] == wanted[key]:
        return None
    return Drift(reason, f"{maker} was changed: found hash {found[key]}, wanted {wanted[key]}")
