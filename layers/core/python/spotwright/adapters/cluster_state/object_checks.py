"""What cannot be true of the objects of a cluster state, whoever wrote it."""

from datetime import datetime

from spotwright.adapters.cluster_state.head import read_resource_version
from spotwright.model.cluster_state import (
    KIND_FIELDS,
    ClusterObject,
    ClusterObjects,
    ClusterStateError,
    ClusterStateHead,
)
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import EARLIEST_TIME, LATEST_TIME, LONGEST_DURATION_SECONDS, Condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod


def check_resource_versions(head: ClusterStateHead, objects: ClusterObjects) -> None:
    """No object can be newer than the last list or event of its kind. Raises ClusterStateError."""
    for kind in KIND_FIELDS:
        versions = [obj.metadata.resource_version for obj in objects.of_kind(kind)]
        if not versions:
            continue
        if kind not in head.kinds:
            raise ClusterStateError(f"{head.full}: no resourceVersion is stated for {kind}", code="BadResourceVersion")
        try:
            newest = max(int(version or 0) for version in versions)
        except ValueError:
            newest = max(read_resource_version(kind, version) for version in versions if version)
        stated = head.kinds[kind].resource_version
        if newest > read_resource_version(kind, stated):
            raise ClusterStateError(
                f"{head.full}: a {kind} has the resourceVersion {newest}, which is later than {stated}, that of"
                " the kind",
                code="InTheFuture",
            )


def check_times(head: ClusterStateHead, objects: ClusterObjects) -> None:
    """Times and durations are within the bounds of what is read from the API server, so that they can be added.

    Raises ClusterStateError.
    """
    for kind in KIND_FIELDS:
        found = objects.of_kind(kind)
        times = [at for obj in found for at in _times(obj) if at is not None]
        if times and not EARLIEST_TIME <= min(times) <= max(times) <= LATEST_TIME:
            wrong = next(at for at in times if not EARLIEST_TIME <= at <= LATEST_TIME)
            raise ClusterStateError(
                f"{head.full}: a {kind} has the time {wrong.isoformat()}, which is not between {EARLIEST_TIME.year} and"
                f" {LATEST_TIME.year}",
                code="Malformed",
            )
        longest = max((abs(seconds) for obj in found for seconds in _durations(obj) if seconds is not None), default=0)
        if longest > LONGEST_DURATION_SECONDS:
            raise ClusterStateError(
                f"{head.full}: a {kind} has a duration of {longest} s, more than {LONGEST_DURATION_SECONDS} s",
                code="Malformed",
            )


def _times(obj: ClusterObject) -> tuple[datetime | None, ...]:
    created, deleted = obj.metadata.creation_timestamp, obj.metadata.deletion_timestamp
    if isinstance(obj, Pod):
        return created, deleted, obj.start_time
    if isinstance(obj, NodeClaim):
        return created, deleted, obj.last_pod_event_time, *_since(obj.conditions)
    if isinstance(obj, Node):
        return created, deleted, *_since(obj.conditions)
    return created, deleted


def _durations(obj: ClusterObject) -> tuple[int | None, ...]:
    if isinstance(obj, Pod):
        return (obj.termination_grace_period_seconds,)
    if isinstance(obj, NodeClaim):
        return obj.expire_after_seconds, obj.termination_grace_period_seconds
    return ()


def _since(conditions: tuple[Condition, ...]) -> list[datetime | None]:
    return [condition.last_transition_time for condition in conditions]
