"""Instance profiles that were made for a class and are needed no more: an earlier role, a class that is gone."""

from datetime import datetime
from typing import Final

from spotwright.aws.nodeclass import instance_profiles
from spotwright.errors import ApiError
from spotwright.model import labels
from spotwright.workflows.ports.bundles import CatalogPorts
from spotwright.workflows.ports.catalog import InstanceProfilePort

# The tick that settles all classes comes every five minutes; every sixth one looks for profiles.
_EVERY_MINUTES: Final = 30
_TICK_MINUTES: Final = 5


def is_due(now: datetime) -> bool:
    return now.minute % _EVERY_MINUTES < _TICK_MINUTES


def delete_unneeded(ports: CatalogPorts, *, now: datetime) -> tuple[str, ...]:
    """Delete what nobody needs; notes for people. Only under this cluster's path, with this cluster's tag.

    What cannot be had from IAM is a note as well: classes are settled all the same, and the next round comes.
    """
    if ports.instance_profiles is None:
        return ()
    try:
        return _delete_unneeded(ports, ports.instance_profiles, now)
    except ApiError as error:
        return (f"unused instance profiles were not looked for: {error}",)


def _delete_unneeded(ports: CatalogPorts, iam: InstanceProfilePort, now: datetime) -> tuple[str, ...]:
    root = f"/karpenter/{ports.region}/{ports.cluster.name}/"
    listed = iam.profiles_under(root)
    classes = ports.cluster.nodeclasses()
    unread = sorted(nodeclass.name for nodeclass in classes if nodeclass.read_error)
    if unread:
        return (f"no instance profile is deleted while EC2NodeClass {', '.join(unread)} cannot be read",)
    unused_profiles = instance_profiles.unused_profiles(listed, classes, ports.cluster.nodeclaims(), now=now)
    gone = [profile.name for profile in unused_profiles.profiles if _delete_if_unneeded(ports, iam, profile.name, now)]
    said = [f"deleted instance profile {name}, which nothing uses" for name in gone]
    return (*said, unused_profiles.note) if unused_profiles.note else tuple(said)


def _delete_if_unneeded(ports: CatalogPorts, iam: InstanceProfilePort, name: str, now: datetime) -> bool:
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
