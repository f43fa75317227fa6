"""Kubernetes objects of manifests and case files as a snapshot."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from spotwright.adapters.kubernetes.codecs.capacity_buffer import SCALABLE_KINDS, decode_capacity_buffer
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim
from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
from spotwright.adapters.kubernetes.codecs.nodeoverlay import decode_nodeoverlay
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool_strict
from spotwright.adapters.kubernetes.codecs.objects import decode_metadata, decode_time, validate
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from spotwright.cli import InputError
from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.workloads import WORKLOAD_KINDS, workload_pods
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import Storage
from spotwright.model.quantity import QuantityError
from spotwright.model.snapshot import Settings, Snapshot

type Json = dict[str, Any]

_READERS: Final[dict[str, tuple[str, Callable[[Json], Any]]]] = {
    "Pod": ("pods", lambda obj: _pod(obj)),
    "Node": ("nodes", decode_node),
    "NodePool": ("nodepools", decode_nodepool_strict),
    "EC2NodeClass": ("nodeclasses", decode_nodeclass_strict),
    "NodeOverlay": ("nodeoverlays", decode_nodeoverlay),
    "NodeClaim": ("nodeclaims", decode_nodeclaim),
    "DaemonSet": ("daemonsets", decode_daemonset),
    "PodDisruptionBudget": ("pod_disruption_budgets", decode_pod_disruption_budget),
    "Namespace": ("namespaces", lambda obj: validate(decode_metadata(obj))),
    "PersistentVolumeClaim": ("persistent_volume_claims", decode_persistent_volume_claim),
    "PersistentVolume": ("persistent_volumes", decode_persistent_volume),
    "StorageClass": ("storage_classes", decode_storage_class),
    "CSINode": ("csi_nodes", decode_csi_node),
    "PriorityClass": ("ranks", lambda obj: _rank(obj)),
}
_NAMESPACED: Final = ("Pod", "CapacityBuffer", "DaemonSet", "PodDisruptionBudget", "PersistentVolumeClaim")
# Fields of a snapshot, and of its storage, that list objects.
_LISTED: Final = (
    "pods", "nodes", "nodepools", "nodeclasses", "nodeclaims", "daemonsets", "pod_disruption_budgets", "nodeoverlays",
    "capacity_buffers",
)  # fmt: skip
_STORAGE: Final = ("persistent_volume_claims", "persistent_volumes", "storage_classes", "csi_nodes")
# A plan of manifests does not depend on when it is made.
_NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def decode_snapshot(documents: Documents, feature_gates: str = "") -> Snapshot:
    """What the planner sees; raises InputError naming file, object and field."""
    fields: dict[str, list[Any]] = {}
    for document in _expanded(documents.objects):
        entry = _READERS.get(document.content["kind"])
        if entry is not None:
            fields.setdefault(entry[0], []).append(_decoded(document, entry[1]))
    disks = Storage(**{name: tuple(fields.pop(name, ())) for name in _STORAGE})
    namespaces = {one.name: one.labels for one in fields.pop("namespaces", ())}
    empty = Snapshot(
        cluster="manifests", now=_moment(documents.now), settings=_settings(documents.settings, feature_gates)
    )
    ranks = {one.metadata.name: one for one in fields.pop("ranks", ())}
    read = {name: tuple(values) for name, values in fields.items()}
    read["capacity_buffers"] = _buffers(documents)
    read["pods"] = tuple(_ranked(pod, ranks) for pod in read.get("pods", ()))
    return msgspec.structs.replace(empty, storage=disks, namespaces=namespaces, **read)


def apply_manifests(cluster: Snapshot, manifests: Snapshot) -> Snapshot:
    """The manifests as if they were applied to a cluster: objects of the same name are replaced, the others stay."""

    def merged[Named: Any](there: tuple[Named, ...], given: tuple[Named, ...]) -> tuple[Named, ...]:
        names = {one.metadata.key for one in given}
        return (*(one for one in there if one.metadata.key not in names), *given)

    return msgspec.structs.replace(
        cluster,
        **{name: merged(getattr(cluster, name), getattr(manifests, name)) for name in _LISTED},
        namespaces=cluster.namespaces | manifests.namespaces,
        storage=Storage(
            **{name: merged(getattr(cluster.storage, name), getattr(manifests.storage, name)) for name in _STORAGE}
        ),
    )


def _expanded(documents: tuple[Document, ...]) -> Iterator[Document]:
    for document in documents:
        if document.content["kind"] in WORKLOAD_KINDS:
            for pod in _decoded(document, lambda content: tuple(workload_pods(content))):
                yield Document(document.source, pod)
        else:
            yield document


def _buffers(documents: Documents) -> tuple[CapacityBuffer, ...]:
    """CapacityBuffers; what they refer to is looked for among the manifests."""
    named = {
        (kind, content["metadata"].get("namespace") or "default", content["metadata"].get("name")): content
        for content in (one.content for one in documents.objects)
        if (kind := content["kind"]) == "PodTemplate" or kind in SCALABLE_KINDS
    }
    return tuple(
        _decoded(one, lambda content: decode_capacity_buffer(content, lambda *key: named.get(key)))
        for one in documents.objects
        if one.content["kind"] == "CapacityBuffer"
    )


def _decoded(document: Document, read: Callable[[Json], Any]) -> Any:
    content = document.content
    if content["kind"] in _NAMESPACED and not content["metadata"].get("namespace"):
        content = content | {"metadata": content["metadata"] | {"namespace": "default"}}
    try:
        return read(content)
    except (ValueError, QuantityError) as error:
        who = f"{content['kind']} {content['metadata'].get('name') or '(no name)'}"
        told = str(error) if who in str(error) else f"{who}: {error}"
        raise InputError(f"{document.source}: {told}") from None
    except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
        name = content["metadata"].get("name") or "(no name)"
        raise InputError(f"{document.source}: {content['kind']} {name} is malformed: {error!r}") from None


def _pod(obj: Json) -> Pod:
    """A pod that nobody has judged yet counts as one that kube-scheduler gave up on, unless it is gated."""
    pod = decode_pod(obj)
    if pod.read_error:
        return msgspec.structs.replace(pod, unschedulable=True)
    judged = any(
        condition.get("type") == "PodScheduled" for condition in (obj.get("status") or {}).get("conditions") or ()
    )
    if judged or (obj.get("spec") or {}).get("schedulingGates"):
        return pod
    return msgspec.structs.replace(pod, unschedulable=True)


class _Rank(msgspec.Struct, frozen=True):
    """A PriorityClass. ``default``: of pods that name none."""

    metadata: ObjectMeta
    priority: int
    default: bool


def _rank(obj: Json) -> _Rank:
    value = obj.get("value")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"PriorityClass {obj['metadata'].get('name')}: value: {value!r} is not a whole number")
    return _Rank(validate(decode_metadata(obj)), value, bool(obj.get("globalDefault")))


# Those that every cluster has.
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _ranked(pod: Pod, ranks: dict[str, _Rank]) -> Pod:
    """The priority that admission would give a pod that states only its class."""
    if pod.priority:
        return pod
    default = next((rank for _, rank in sorted(ranks.items()) if rank.default), None)
    chosen = ranks.get(pod.priority_class_name) if pod.priority_class_name else default
    priority = chosen.priority if chosen else _SYSTEM.get(pod.priority_class_name, 0)
    return msgspec.structs.replace(pod, priority=priority) if priority else pod


_SETTINGS: Final = {
    "preferencePolicy": "PREFERENCE_POLICY",
    "minValuesPolicy": "MIN_VALUES_POLICY",
    "largestNodeShare": "LARGEST_NODE_SHARE",
    "largestZoneShare": "LARGEST_ZONE_SHARE",
}


def _settings(given: Json, feature_gates: str) -> Settings:
    from spotwright.errors import InvalidRequest
    from spotwright.settings import decision_settings

    unknown = sorted(set(given).difference(_SETTINGS))
    if unknown:
        raise InputError(f"settings: {unknown[0]} is unknown; known are {', '.join(_SETTINGS)}")
    try:
        named = {_SETTINGS[name]: value for name, value in given.items()}
        return decision_settings(named | {"FEATURE_GATES": feature_gates})
    except InvalidRequest as error:
        raise InputError(f"settings: {error}") from None


def _moment(given: Any) -> datetime:
    try:
        return decode_time(given) or _NOW
    except (TypeError, ValueError):
        raise InputError(f"now: {given!r} is not a time such as 2026-01-01T12:00:00Z") from None
