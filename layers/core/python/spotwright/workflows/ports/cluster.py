"""One cluster's Kubernetes API, as workflows need it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim, Storage
from spotwright.telemetry.rows import Event


class EventPort(Protocol):
    """Events of the cluster's objects."""

    def record_event(self, kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        """Record an Event with a name derived from object, reason and message. Never raises.

        A repeat bumps its count; within the row's ``repeat_after`` of the last one it is not recorded.
        """
        ...


class ClusterPort(EventPort, Protocol):
    """One cluster's Kubernetes API. Lists are complete (paginated to the end) or raise; absence from a list is no
    evidence. Patches are server-side merges; ``uid``/``resource_version`` arguments are preconditions (Conflict)."""

    name: str

    def pods(self, *, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        """All pods that have not ended; those of a node, also if they have; or those that wait for a node.

        ``limit``: the first so many by namespace and name.
        """
        ...

    def pod(self, namespace: str, name: str) -> Pod | None: ...
    def nodes(self, *, limit: int | None = None) -> tuple[Node, ...]:
        """All nodes, or the first ``limit`` of them by name."""
        ...

    def joining_nodes(self) -> tuple[Node, ...]:
        """Nodes without the label karpenter.sh/registered, except those that EKS or its node groups run."""
        ...

    def node(self, name: str) -> Node | None: ...

    def node_with_volumes(self, name: str) -> NodeWithVolumes | None:
        """The same for a step that may drain it."""
        ...

    def nodepools(self) -> tuple[NodePool, ...]: ...
    def nodepool(self, name: str) -> NodePool | None: ...
    def nodeclasses(self) -> tuple[EC2NodeClass, ...]: ...
    def nodeclass(self, name: str) -> EC2NodeClass | None: ...
    def nodeclaims(self) -> tuple[NodeClaim, ...]: ...
    def nodeclaim(self, name: str) -> NodeClaim | None: ...
    def nodeclaims_of_instances(self, instances: Collection[str], *, cached: bool = False) -> tuple[NodeClaim, ...]:
        """NodeClaims whose label spotwright.dev/instance-id is the id of one of these instances. ``cached``: as the API
        server's cache has them, which while many objects change is much faster, and moments behind."""
        ...

    def daemonsets(self) -> tuple[DaemonSet, ...]: ...
    def pod_disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]: ...
    def nodeoverlays(self) -> tuple[NodeOverlay, ...]:
        """Empty, too, where the definition is not installed."""
        ...

    def capacity_buffers(self) -> tuple[CapacityBuffer, ...]:
        """With what they refer to. Empty, too, where the definition, which is not ours, is not installed."""
        ...

    def attached_volume(self, attachment: str) -> str | None:
        """The PersistentVolume of a VolumeAttachment, or of an inline volume the attachment's own name; None when
        there is no such VolumeAttachment."""
        ...

    def persistent_volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None: ...

    def storage(self) -> Storage:
        """Every PersistentVolumeClaim, PersistentVolume, StorageClass and CSINode, claims first."""
        ...

    def namespaces(self) -> dict[str, dict[str, str]]:
        """The labels of every namespace, by its name."""
        ...

    def running_karpenter(self, *, now: datetime) -> str:
        """The Deployment or Lease that shows that Karpenter runs in the cluster; "" = there is neither."""
        ...

    def create_nodeclaim(self, claim: NodeClaim) -> NodeClaim:
        """Create with finalizer, owner and labels as given; AlreadyExists (a Conflict) is raised, not swallowed."""
        ...

    def patch_metadata(self, kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        """Merge-patch ``metadata`` (labels, annotations, finalizers) of kind nodes | nodeclaims | nodepools |
        nodeoverlays | ec2nodeclasses, with the uid (and resourceVersion when finalizers change)."""
        ...

    def patch_nodeclaim(self, claim: NodeClaim, change: Mapping[str, Any]) -> NodeClaim:
        """``patch_metadata`` of a NodeClaim, and the claim as it is afterwards."""
        ...

    def patch_status(self, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]) -> None:
        """Merge-patch the status subresource, with the object's resourceVersion as precondition when set."""
        ...

    def set_conditions(
        self,
        kind: str,
        metadata: ObjectMeta,
        conditions: Sequence[Condition],
        *,
        removed: Collection[str] = (),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Replace the named conditions, take out those of the types ``removed``, keep the others and their times; a
        no-op when nothing changes.

        ``seen``: statuses by type, "" = there was none; Conflict when a condition has another one by now.
        """
        ...

    def write_nodeclaim_status(
        self,
        claim: NodeClaim,
        conditions: Sequence[Condition],
        *,
        status: Mapping[str, Any] = MappingProxyType({}),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> NodeClaim:
        """``set_conditions`` and further fields of the status in a single write; the claim as it is afterwards."""
        ...

    def set_taints(
        self, node: Node, taints: Sequence[Taint], *, metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> NodeWithVolumes:
        """Change spec.taints from those that were read to ``taints``, and merge ``metadata`` as ``patch_metadata``
        does; the node as it is afterwards.

        ``metadata`` may have ownerReferences, too, which are told by uid: one that stays is not written anew.
        Raises Conflict where taints, owners or finalizers that are to change are others by now; taints and owners that
        came after those that were read stay.
        """
        ...

    def delete(
        self, kind: str, metadata: ObjectMeta, *, grace_seconds: int | None = None, as_read: bool = False
    ) -> None:
        """Delete with the UID as precondition; an object that is gone, or another with its name, is no error.

        ``as_read``: Conflict when it has changed since it was read.
        """
        ...

    def evict(self, pod: Pod) -> bool:
        """policy/v1 Eviction with the UID as precondition. True: evicted or gone; False: a budget forbids it now."""
        ...

    def nominate(self, node: str, pods: Mapping[str, str], *, again: bool = False) -> frozenset[str]:
        """Write status.nominatedNodeName of those of ``pods`` (key → uid) that wait and that nobody nominated.
        ``again``: a moment after they were nominated, when most still are, so that each is read first.

        The keys of those it stands at afterwards, by us now or before; the others are gone, replaced by another pod
        of the name, bound, or nominated for another node.
        """
        ...

    def clear_nominations(self, node: str, pods: Mapping[str, str]) -> None:
        """Clear status.nominatedNodeName of those of ``pods`` (key → uid) that wait and at which ``node`` stands."""
        ...
