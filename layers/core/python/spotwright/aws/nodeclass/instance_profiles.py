"""The instance profile of an EC2NodeClass that names a role, and which profiles under a cluster's path are unused.

A profile is used while its class names it, while a NodeClaim names it or names no profile, and for an hour after the
class changed to another profile: a running node whose profile is deleted loses its credentials. The caller reads each
unused profile and its class by name before it deletes the profile, since absence from a list is no evidence.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.ec2.fleet import InstanceProfile
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import (
    EC2NodeClass,
)
from spotwright.model.kubernetes.meta import parse_time

PROTECTION_PERIOD: Final = timedelta(hours=1)
# More unused profiles than this number, or this share of all profiles, look like a mistake of Spotwright's.
_MAX_UNUSED: Final = 3
_MAX_UNUSED_DIVISOR: Final = 10


class UnusedProfiles(msgspec.Struct, frozen=True):
    """``profiles`` to read again and delete; ``note``: why no profile is deleted though some look unused."""

    profiles: tuple[InstanceProfile, ...] = ()
    note: str = ""


def unused_profiles(
    profiles: Sequence[InstanceProfile], classes: Sequence[EC2NodeClass], claims: Sequence[NodeClaim], *, now: datetime
) -> UnusedProfiles:
    """The profiles under the cluster's path that look unused, by name."""
    unused = sorted(
        (profile for profile in profiles if is_unused(profile, classes, claims, now=now)),
        key=lambda profile: profile.name,
    )
    if len(unused) > max(_MAX_UNUSED, len(profiles) // _MAX_UNUSED_DIVISOR):
        return UnusedProfiles(note=f"{len(unused)} of {len(profiles)} instance profiles look unneeded: none is touched")
    return UnusedProfiles(tuple(unused))


def is_unused(
    profile: InstanceProfile, classes: Sequence[EC2NodeClass], claims: Sequence[NodeClaim], *, now: datetime
) -> bool:
    """Whether no class and no NodeClaim uses the profile."""
    if now - profile.create_date < PROTECTION_PERIOD:
        return False
    if any(
        nodeclass.resolved_instance_profile == profile.name or _is_recently_replaced(nodeclass, profile, now)
        for nodeclass in classes
    ):
        return False
    owner = next((nodeclass.name for nodeclass in classes if nodeclass.metadata.uid == _class_uid(profile)), "")
    # One that cannot be read may be of an EC2NodeClass.
    of_classes = (claim for claim in claims if claim.is_managed or claim.read_error)
    used_by_claims = [
        _profile_of_claim(claim) for claim in of_classes if not owner or claim.node_class_ref.name == owner
    ]
    return profile.name not in used_by_claims and "" not in used_by_claims


def _is_recently_replaced(nodeclass: EC2NodeClass, profile: InstanceProfile, now: datetime) -> bool:
    """Whether the profile's class has no other profile yet, or has had it for less than the protection period."""
    if nodeclass.metadata.uid != _class_uid(profile):
        return False
    since = parse_time(nodeclass.metadata.annotations.get(labels.INSTANCE_PROFILE_SINCE, ""))
    return not nodeclass.resolved_instance_profile or since is None or now - since < PROTECTION_PERIOD


def _class_uid(profile: InstanceProfile) -> str:
    return profile.path.rstrip("/").rpartition("/")[2]


def _profile_of_claim(claim: NodeClaim) -> str:
    """The profile of a claim's instance; "" = the claim does not name it, so it may be any."""
    return claim.metadata.annotations.get(labels.INSTANCE_PROFILE_NAME, "")


_PROFILE_HASH_DIGITS: Final = 20


class DesiredProfile(msgspec.Struct, frozen=True):
    """The instance profile of a class that names a role."""

    name: str
    path: str
    role: str
    tags: dict[str, str]


def profile_path(*, region: str, cluster: str, uid: str) -> str:
    return f"/karpenter/{region}/{cluster}/{uid}/"


def desired_profile(
    nodeclass: EC2NodeClass, *, region: str, cluster: str, node_roles: Sequence[str]
) -> DesiredProfile | Refusal:
    """The profile to ensure for ``spec.role``, which may have a path; each role has a profile of its own."""
    role = role_name(nodeclass.role)
    refusal = role_refusal(role, node_roles, "spec.role")
    if refusal:
        return refusal
    content = "\0".join((region, nodeclass.name, nodeclass.metadata.uid, role))
    digest = hashlib.sha256(content.encode()).hexdigest()[:_PROFILE_HASH_DIGITS]
    tags = dict(nodeclass.tags) | {
        labels.cluster_tag(cluster): "owned",
        labels.CLUSTER_NAME_TAG: cluster,
        labels.EC2NODECLASS: nodeclass.name,
        labels.REGION: region,
    }
    path = profile_path(region=region, cluster=cluster, uid=nodeclass.metadata.uid)
    return DesiredProfile(f"{cluster}_{digest}", path, role, tags)


def role_refusal(role: str, node_roles: Sequence[str], field: str) -> Refusal | None:
    """Why nodes may not have this role; None = they may. Spotwright can pass only roles that the deployment names."""
    allowed = sorted(role_name(node_role) for node_role in node_roles)
    if role in allowed:
        return None
    return Refusal(
        "RoleNotAllowed",
        f"{field}: {role} is not one of this cluster's nodeRoles ({', '.join(allowed) or 'none'});"
        " add it to the cluster in cdk.json and deploy",
    )


def role_name(role: str) -> str:
    """A role's name without path or ARN."""
    return role.rpartition("/")[2]
