"""Deleting instance profiles that Spotwright created and no EC2NodeClass or NodeClaim uses any more."""

from datetime import datetime
from typing import Final

from spotwright.aws.nodeclass import instance_profiles
from spotwright.errors import ApiError
from spotwright.model import labels
from spotwright.workflows.ports.bundles import CatalogPorts
from spotwright.workflows.ports.catalog import InstanceProfilePort

# All classes are resolved every five minutes; every sixth time unused profiles are looked for.
_EVERY_MINUTES: Final = 30
_TICK_MINUTES: Final = 5


def is_due(now: datetime) -> bool:
    return now.minute % _EVERY_MINUTES < _TICK_MINUTES


def delete_unused(ports: CatalogPorts, *, now: datetime) -> tuple[str, ...]:
    """Delete unused profiles under this cluster's path with this cluster's tag; notes for the log.

    An error of IAM is a note as well: the classes are resolved already, and profiles are looked for again later.
    """
    if ports.instance_profiles is None:
        return ()
    try:
        return _delete_unused(ports, ports.instance_profiles, now)
    except ApiError as error:
        return (f"unused instance profiles were not looked for: {error}",)


def _delete_unused(ports: CatalogPorts, iam: InstanceProfilePort, now: datetime) -> tuple[str, ...]:
    root = f"/karpenter/{ports.region}/{ports.cluster.name}/"
    listed = iam.profiles_under(root)
    classes = ports.cluster.nodeclasses()
    unread = sorted(nodeclass.name for nodeclass in classes if nodeclass.read_error)
    if unread:
        return (f"no instance profile is deleted while EC2NodeClass {', '.join(unread)} cannot be read",)
    unused_profiles = instance_profiles.unused_profiles(listed, classes, ports.cluster.nodeclaims(), now=now)
    deleted = [profile.name for profile in unused_profiles.profiles if _delete_if_unused(ports, iam, profile.name, now)]
    notes = [f"deleted instance profile {name}, which nothing uses" for name in deleted]
    return (*notes, unused_profiles.note) if unused_profiles.note else tuple(notes)


def _delete_if_unused(ports: CatalogPorts, iam: InstanceProfilePort, name: str, now: datetime) -> bool:
    """Read the profile itself, and classes and claims once more, then delete it."""
    instance_profile = iam.read(name)
    if instance_profile is None or instance_profile.tags.get(labels.cluster_tag(ports.cluster.name)) != "owned":
        return False
    owner = instance_profile.tags.get(labels.EC2NODECLASS, "")
    current = ports.cluster.nodeclass(owner) if owner else None
    classes = (current,) if current is not None else ()
    if not instance_profiles.is_unused(instance_profile, classes, ports.cluster.nodeclaims(), now=now):
        return False
    iam.delete(name)
    return True
