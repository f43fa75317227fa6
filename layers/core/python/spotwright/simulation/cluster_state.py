"""The cluster state as a forwarder would have shipped it (ClusterStatePort): fresh, late, absent, or lying."""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from spotwright.model.cluster_state import (
    KIND_FIELDS,
    NAMESPACE,
    ClusterObjects,
    ClusterState,
    ClusterStateError,
    ClusterStateHead,
    KindState,
    in_order,
)
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.effects import Effects
from spotwright.workflows.ports.cluster_state import ShippedHead

_PLURALS = {
    "nodeclasses": "ec2nodeclasses", "pod_disruption_budgets": "poddisruptionbudgets",
    "persistent_volume_claims": "persistentvolumeclaims", "persistent_volumes": "persistentvolumes",
    "storage_classes": "storageclasses", "csi_nodes": "csinodes", "capacity_buffers": "capacitybuffers",
}  # fmt: skip
LONGEST_LAG = timedelta(minutes=5)


class FakeClusterState:
    """See ClusterStatePort. Nothing is shipped until ``lag_seconds`` says how far the state is behind the cluster.

    ``stated_lag_seconds``: how old it says it is, None = as old as it is; ``lie``: what becomes of its objects;
    ``error``: why it cannot be used.
    """

    def __init__(self, cluster: FakeCluster, clock: Clock, effects: Effects) -> None:
        self._cluster, self._clock, self._effects = cluster, clock, effects
        self.lag_seconds: float | None = None
        self.stated_lag_seconds: float | None = None
        self.lie: Callable[[ClusterObjects], ClusterObjects] | None = None
        self.error: ClusterStateError | None = None
        self._taken: deque[tuple[datetime, ClusterObjects]] = deque()
        self._stopped_at: datetime | None = None

    def take(self) -> None:
        """The forwarder runs: keep the cluster as it is now, for as long as a state may be late."""
        self._stopped_at = None
        if self.lag_seconds is not None:
            now = self._clock.now()
            self._taken.append((now, self._objects()))
            while self._taken[0][0] < now - LONGEST_LAG:
                self._taken.popleft()

    def stop(self) -> None:
        """The forwarder does not run: nothing newer is shipped."""
        self._stopped_at = self._stopped_at or self._clock.now()

    def head(self, *, now: datetime) -> ShippedHead | None:
        self._effects.before_read("cluster_state", "head")
        if self.lag_seconds is None:
            return None
        if self.error is not None:
            raise self.error
        stated = self.lag_seconds if self.stated_lag_seconds is None else self.stated_lag_seconds
        at = self._last_shipped(now - timedelta(seconds=stated))
        kinds = {kind: KindState("1", at) for kind in (*KIND_FIELDS, NAMESPACE)}
        cluster = self._cluster.name
        sequence = int(at.timestamp())
        head = ClusterStateHead(
            cluster=cluster, epoch=1, sequence=sequence, taken=at, kinds=kinds, full=f"clusters/{cluster}/state/0"
        )
        return ShippedHead(head, at)

    def load(self, head: ClusterStateHead) -> ClusterState:
        self._effects.before_read("cluster_state", "load")
        objects = self._objects() if not self.lag_seconds and self._stopped_at is None else self._late_objects()
        if self.lie is not None:
            objects = in_order(self.lie(objects))
        return ClusterState(
            cluster=head.cluster, epoch=head.epoch, sequence=head.sequence, taken=head.taken, kinds=head.kinds,
            objects=objects,
        )  # fmt: skip

    def _last_shipped(self, at: datetime) -> datetime:
        return at if self._stopped_at is None else min(at, self._stopped_at)

    def _late_objects(self) -> ClusterObjects:
        at = self._last_shipped(self._clock.now() - timedelta(seconds=self.lag_seconds or 0))
        past = [objects for taken, objects in self._taken if taken <= at]
        return past[-1] if past else ClusterObjects()

    def _objects(self) -> ClusterObjects:
        fields: dict[str, Any] = {
            field: self._cluster.all(_PLURALS.get(field, field)) for field in KIND_FIELDS.values()
        }
        fields["pods"] = tuple(pod for pod in fields["pods"] if not pod.is_terminal)
        fields["pod_disruption_budgets"] = self._cluster.stored_budgets()
        namespaces = {each.metadata.name: each.metadata.labels for each in self._cluster.all("namespaces")}
        return msgspec.structs.replace(ClusterObjects(**fields), namespaces=namespaces)
