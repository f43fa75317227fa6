"""Orphans: instances with the tags of a cluster that no launch row and no NodeClaim names.

Few are terminated. More at once are taken for an error of Spotwright, or for the work of somebody who deleted
NodeClaims: none of them is terminated but those that a person acknowledged by the tag ``spotwright.dev/orphan``.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance

# The launch row or the NodeClaim of a younger instance may not name it yet.
ORPHAN_AGE: Final = timedelta(seconds=60)
# More orphans at once than this number and this share of the cluster's instances are refused.
MAXIMUM_ORPHANS: Final = 3
MAXIMUM_ORPHAN_SHARE: Final = 0.10
# The value of the tag by which a person says that an orphan may go.
ACKNOWLEDGED: Final = "terminate"
_STATES: Final = ("pending", "running", "stopping", "stopped")


class Orphans(msgspec.Struct, frozen=True):
    """``to_terminate``: few, or acknowledged; ``refused``: too many for any of them to be terminated."""

    to_terminate: tuple[Instance, ...] = ()
    refused: tuple[Instance, ...] = ()


def find_orphans(
    instances: Collection[Instance], *, assigned: Collection[str], launching: Collection[str], now: datetime
) -> Orphans:
    """``instances``: all of the cluster; ``assigned``: ids that NodeClaims and launch rows name; ``launching``: ids of
    launch rows, to which instances belong by their tag."""
    orphans = [instance for instance in instances if _is_orphan(instance, assigned, launching, now)]
    acknowledged = tuple(filter(is_acknowledged, orphans))
    others = tuple(instance for instance in orphans if not is_acknowledged(instance))
    if len(others) > max(MAXIMUM_ORPHANS, int(len(instances) * MAXIMUM_ORPHAN_SHARE)):
        return Orphans(acknowledged, others)
    return Orphans((*acknowledged, *others))


def is_acknowledged(instance: Instance) -> bool:
    """Whether a person said that the instance may go, if it is an orphan."""
    return instance.tags.get(labels.ORPHAN_TAG) == ACKNOWLEDGED


def _is_orphan(instance: Instance, assigned: Collection[str], launching: Collection[str], now: datetime) -> bool:
    return (
        instance.id not in assigned
        and instance.tags.get(labels.LAUNCH_TAG, "") not in launching
        and instance.state in _STATES
        and instance.launch_time is not None
        and now - instance.launch_time >= ORPHAN_AGE
    )
