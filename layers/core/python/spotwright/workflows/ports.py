"""The Protocols that workflows need, and the values that cross them. Adapters and fakes both satisfy them.

Every method may raise the exceptions of ``spotwright.failures``; none retries forever (bounded, with jitter).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from spotwright.aws.token_bucket import TokenBucket
from spotwright.disruption.breaker import Breaker
from spotwright.model.ec2.fleet import FleetResult, Instance, OfferingHealth
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import Storage
from spotwright.workflows.rows import ClusterRow, CommandRow, LaunchRow, NominationRow, NoticeRow, Row


class Doorbell(msgspec.Struct, frozen=True):
    """A hint that something may have changed. ``cluster`` "*" = every cluster of the cell."""

    cluster: str
    kind: str
    key: str = ""
    epoch: int = 0
    schema: int = 1


class ClusterPort(Protocol):
    """One cluster's Kubernetes API. Lists are complete (paginated to the end) or raise; absence from a list is no
    evidence. Patches are server-side merges; ``uid``/``resource_version`` arguments are preconditions (Conflict)."""

    name: str

    def pods(self, *, node: str = "", pending: bool = False) -> tuple[Pod, ...]: ...
    def nodes(self) -> tuple[Node, ...]: ...
    def node(self, name: str) -> Node | None: ...
    def nodepools(self) -> tuple[NodePool, ...]: ...
    def nodeclasses(self) -> tuple[EC2NodeClass, ...]: ...
    def nodeclass(self, name: str) -> EC2NodeClass | None: ...
    def nodeclaims(self) -> tuple[NodeClaim, ...]: ...
    def nodeclaim(self, name: str) -> NodeClaim | None: ...
    def daemonsets(self) -> tuple[DaemonSet, ...]: ...
    def pod_disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]: ...
    def nodeoverlays(self) -> tuple[NodeOverlay, ...]:
        """Empty, too, where the definition is not installed."""
        ...

    def capacity_buffers(self) -> tuple[CapacityBuffer, ...]:
        """With what they refer to. Empty, too, where the definition, which is not ours, is not installed."""
        ...

    def volume_attachments(self, node: str) -> tuple[str, ...]: ...

    def storage(self) -> Storage:
        """Every PersistentVolumeClaim, PersistentVolume, StorageClass and CSINode, claims first."""
        ...

    def namespaces(self) -> dict[str, dict[str, str]]:
        """The labels of every namespace, by its name."""
        ...

    def create_nodeclaim(self, claim: NodeClaim) -> NodeClaim:
        """Create with finalizer, owner and labels as given; AlreadyExists (a Conflict) is raised, not swallowed."""
        ...

    def patch_metadata(self, kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        """Merge-patch ``metadata`` (labels, annotations, finalizers, ownerReferences) of kind nodes | nodeclaims |
        nodepools | nodeoverlays | ec2nodeclasses, with the uid (and resourceVersion when finalizers change)."""
        ...

    def patch_status(self, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]) -> None:
        """Merge-patch the status subresource, with the object's resourceVersion as precondition when set."""
        ...

    def set_conditions(
        self, kind: str, metadata: ObjectMeta, conditions: Sequence[Condition], *, removed: Collection[str] = ()
    ) -> None:
        """Replace the named conditions, take out those of the types ``removed``, keep the others and their times; a
        no-op when nothing changes."""
        ...

    def set_taints(self, node: Node, taints: Sequence[Taint]) -> None:
        """Replace spec.taints under the node's resourceVersion."""
        ...

    def delete(self, kind: str, metadata: ObjectMeta, *, grace_seconds: int | None = None) -> None:
        """Delete with the UID as precondition; an object that is gone, or another with its name, is no error."""
        ...

    def evict(self, pod: Pod) -> bool:
        """policy/v1 Eviction with the UID as precondition. True: evicted or gone; False: a budget forbids it now."""
        ...

    def nominate(self, node: str, pods: Mapping[str, str]) -> frozenset[str]:
        """Write status.nominatedNodeName of those of ``pods`` (key → uid) that wait and that nobody nominated.

        The keys of those it stands at afterwards, by us now or before; the others are gone, replaced by another pod
        of the name, bound, or nominated for another node.
        """
        ...

    def withdraw(self, node: str, pods: Mapping[str, str]) -> None:
        """Clear status.nominatedNodeName of those of ``pods`` (key → uid) that wait and at which ``node`` stands."""
        ...

    def event(self, kind: str, metadata: ObjectMeta, *, type: str, reason: str, message: str, now: datetime) -> None:
        """Record an Event with a name derived from object, reason and message. Never raises.

        A repeat bumps its count, and within ``lifecycle.telling.quiet`` of the last one it is nothing at all.
        """
        ...


class Ec2Port(Protocol):
    """EC2 with the rights of one cluster's *act* role (reads too)."""

    def create_fleet(self, request: Mapping[str, Any]) -> FleetResult:
        """Send a stored request verbatim (its ClientToken makes it idempotent)."""
        ...

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
        """(id, version number as text) of the template ``name`` holding exactly ``data``, if there is one."""
        ...

    def ensure_launch_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[str, str]:
        """(id, version number as text) of the template ``name`` holding exactly ``data``; created when missing."""
        ...

    def instances_of_launch(self, launch: str) -> tuple[Instance, ...]: ...
    def instances_of_cluster(self) -> tuple[Instance, ...]: ...

    def instance(self, instance_id: str) -> Instance | None:
        """A direct read by id; None only when EC2 itself says NotFound."""
        ...

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """One call; ended ones may be among them. One that EC2 does not know (NotFound), or that we may not end, keeps
        all of them."""
        ...

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None: ...


class StatePort(Protocol):
    """Rows of one cluster in DynamoDB. Writes are conditional; a lost race raises Conflict and changes nothing."""

    def cluster(self) -> ClusterRow: ...
    def request(self) -> int:
        """Count one more request for planning; the new ``requested``."""
        ...

    def served(self, requested: int) -> None: ...
    def commit(self, *, expected_version: int, key: str) -> None:
        """version v → v+1, head = key, key appended to unacted; Conflict when the version moved on."""
        ...

    def acted(self, key: str) -> None:
        """Take a decision's key out of ``unacted``; no error when it is not there."""
        ...

    def create(self, row: Row) -> bool:
        """Put if absent; False when it existed."""
        ...

    def save[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, row: R) -> R:
        """Replace under the row's version (Conflict otherwise); the row with its new version."""
        ...

    def launch(self, id: str) -> LaunchRow | None: ...
    def launches(self) -> tuple[LaunchRow, ...]: ...
    def command(self, id: str) -> CommandRow | None: ...
    def commands(self) -> tuple[CommandRow, ...]: ...
    def notice(self, instance_id: str) -> NoticeRow | None: ...
    def notices(self) -> tuple[NoticeRow, ...]: ...
    def nomination(self, claim: str) -> NominationRow | None: ...
    def nominations(self) -> tuple[NominationRow, ...]: ...
    def due(self, before: int) -> tuple[Row, ...]: ...
    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        """All that the account's clusters remember of offerings, by key; of some of it ``until`` is over."""
        ...

    def mark_offering(self, health: OfferingHealth) -> None:
        """Replace under the row's version; Conflict when another learned something meanwhile."""
        ...

    def call_rate(self, action: str) -> TokenBucket | None:
        """The account's bucket of an EC2 action; None when it was not called for a while."""
        ...

    def save_call_rate(self, rate: TokenBucket) -> None:
        """Replace under the row's version; Conflict when another called meanwhile."""
        ...

    def heartbeat(self) -> int:
        """Epoch milliseconds of the forwarder's last sign of life; 0 = never."""
        ...

    def breaker(self) -> Breaker: ...
    def save_breaker(self, breaker: Breaker) -> None:
        """Replace under the version that was read; Conflict when another was faster."""
        ...

    def catalog_key(self) -> str: ...
    def set_catalog_key(self, key: str, at: int) -> None: ...
    def catalog_at(self) -> int: ...
    def begin_reading(self, now: int, *, since: int) -> bool:
        """Note that the region is read from now on; False while another does who began after ``since``.

        Epoch milliseconds. It spares a second reading and no more: whoever dies at it is not waited for long.
        """
        ...

    def end_reading(self) -> None:
        """Nobody reads any more."""
        ...


class BlobPort(Protocol):
    """Content-addressed bodies in S3."""

    def key(self, kind: str, body: bytes) -> str:
        """Where a body would be stored."""
        ...

    def put(self, kind: str, body: bytes) -> str:
        """Store under ``<kind>/<cluster>/<sha256>.json``; the key. kind: decisions | snapshots | catalogs."""
        ...

    def get(self, key: str) -> bytes: ...


class DoorbellPort(Protocol):
    """The queues, by name: provision, lifecycle, catalog, disrupt, sweep."""

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None: ...


class CatalogPort(Protocol):
    """The cluster's instance catalog, read once per process and key."""

    def read(self, key: str) -> Catalog: ...
