"""Which instance profiles under a cluster's path nobody needs any more.

A profile is kept while its class uses it, while a NodeClaim names it (or says nothing), and for an hour after the class
turned to another: taking the role from a profile takes a running node's credentials. Each candidate is then read on
its own, with its class, before it goes: a list proves nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import InstanceProfile
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass

PROTECTION_PERIOD: Final = timedelta(hours=1)
# More than this at once is more likely our mistake than theirs: the larger of a number and a share of what is there.
_MOST: Final = 3
_SHARE: Final = 10


class UnusedProfiles(msgspec.Struct, frozen=True):
    """``profiles`` to read again and delete; ``note`` says why nothing is touched though some look unneeded."""

    profiles: tuple[InstanceProfile, ...] = ()
    note: str = ""


def unused_profiles(
    profiles: Sequence[InstanceProfile], classes: Sequence[EC2NodeClass], claims: Sequence[NodeClaim], *, now: datetime
) -> UnusedProfiles:
    """The profiles under the cluster's path that look unneeded, by name."""
    instance_profiles = sorted(
        (profile for profile in profiles if is_unused(profile, classes, claims, now=now)),
        key=lambda instance_profile: instance_profile.name,
    )
    if len(instance_profiles) > max(_MOST, len(profiles) // _SHARE):
        return UnusedProfiles(
            note=f"{len(instance_profiles)} of {len(profiles)} instance profiles look unneeded: none is touched"
        )
    return UnusedProfiles(tuple(instance_profiles))


def is_unused(
    profile: InstanceProfile, classes: Sequence[EC2NodeClass], claims: Sequence[NodeClaim], *, now: datetime
) -> bool:
    """By what is known of classes and claims now."""
    if now - profile.create_date < PROTECTION_PERIOD:
        return False
    if any(
        nodeclass.resolved_instance_profile == profile.name or _turned_lately(nodeclass, profile, now)
        for nodeclass in classes
    ):
        return False
    owner = next((nodeclass.name for nodeclass in classes if nodeclass.metadata.uid == _class_uid(profile)), "")
    named = [_named(claim) for claim in claims if not owner or claim.node_class_ref.name == owner]
    return profile.name not in named and "" not in named


def _turned_lately(nodeclass: EC2NodeClass, profile: InstanceProfile, now: datetime) -> bool:
    """Whether the profile's class is not settled on another one for long enough."""
    if nodeclass.metadata.uid != _class_uid(profile):
        return False
    since = nodeclass.metadata.annotations.get(labels.INSTANCE_PROFILE_SINCE, "")
    if not nodeclass.resolved_instance_profile or not since:
        return True
    return now - datetime.fromisoformat(since) < PROTECTION_PERIOD


def _class_uid(profile: InstanceProfile) -> str:
    return profile.path.rstrip("/").rpartition("/")[2]


def _named(claim: NodeClaim) -> str:
    """The profile of a claim's instance; "" = it says nothing, so it may be any."""
    return claim.metadata.annotations.get(labels.INSTANCE_PROFILE_NAME, "")
