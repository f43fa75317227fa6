"""Kubernetes objects of manifests and case files as a snapshot."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from spotwright.adapters.kubernetes.codecs.capacity_buffer import SCALABLE_KINDS, decode_capacity_buffer
from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, DecodeError, describe_error
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
from spotwright.cli.inputs.admission import read_admission
from spotwright.cli.inputs.assumed_nodeclasses import inherit_status
from spotwright.cli.inputs.conversion import object_name
from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.volume_claims import ephemeral_claims
from spotwright.cli.inputs.workloads import WORKLOAD_KINDS, workload_objects
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import Storage
from spotwright.model.quoting import quote
from spotwright.model.snapshot import Settings, Snapshot

type Json = dict[str, Any]

_DECODERS: Final[dict[str, tuple[str, Callable[[Json], Any]]]] = {
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
    "PriorityClass": ("ranks", lambda obj: _decode_priority_class(obj)),
}
_NAMESPACED: Final = ("Pod", "CapacityBuffer", "DaemonSet", "PodDisruptionBudget", "PersistentVolumeClaim")
# Fields of a snapshot, and of its storage, that list objects.
_LISTED: Final = (
    "pods", "nodes", "nodepools", "nodeclasses", "nodeclaims", "daemonsets", "pod_disruption_budgets", "nodeoverlays",
    "capacity_buffers",
)  # fmt: skip
_STORAGE: Final = ("persistent_volume_claims", "persistent_volumes", "storage_classes", "csi_nodes")
# A plan of manifests does not depend on the time of day.
_NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def decode_snapshot(documents: Documents, feature_gates: str = "") -> Snapshot:
    """The snapshot of the documents; raises InputError with file, object and field."""
    fields: dict[str, list[Any]] = {}
    for document in _admitted(_expand_workloads(documents.objects), documents.objects):
        entry = _DECODERS.get(document.content["kind"])
        if entry is not None:
            fields.setdefault(entry[0], []).append(_decode(document, entry[1]))
    disks = Storage(**{name: tuple(fields.pop(name, ())) for name in _STORAGE})
    namespaces = {obj.name: obj.labels for obj in fields.pop("namespaces", ())}
    empty = Snapshot(
        cluster="manifests", now=_decode_now(documents.now), settings=_settings(documents.settings, feature_gates)
    )
    ranks = {obj.metadata.name: obj for obj in fields.pop("ranks", ())}
    decoded = {name: tuple(values) for name, values in fields.items()}
    decoded["capacity_buffers"] = _decode_buffers(documents)
    decoded["pods"] = tuple(_with_priority(pod, ranks) for pod in decoded.get("pods", ()))
    return msgspec.structs.replace(empty, storage=disks, namespaces=namespaces, **decoded)


def apply_manifests(cluster: Snapshot, manifests: Snapshot) -> Snapshot:
    """The cluster as if the manifests were applied to it: they replace objects of the same name.

    An EC2NodeClass keeps what the cluster resolved by selectors that are the same.
    """

    def merge[Named: Any](existing: tuple[Named, ...], replacing: tuple[Named, ...]) -> tuple[Named, ...]:
        names = {obj.metadata.key for obj in replacing}
        return (*(obj for obj in existing if obj.metadata.key not in names), *replacing)

    merged = {name: merge(getattr(cluster, name), getattr(manifests, name)) for name in _LISTED}
    return msgspec.structs.replace(
        cluster,
        **merged | {"nodeclasses": inherit_status(merged["nodeclasses"], cluster.nodeclasses)},
        namespaces=cluster.namespaces | manifests.namespaces,
        storage=Storage(
            **{name: merge(getattr(cluster.storage, name), getattr(manifests.storage, name)) for name in _STORAGE}
        ),
    )


def _expand_workloads(documents: tuple[Document, ...]) -> Iterator[Document]:
    """The objects, with the pods of workloads in their place, and the claims that are made for pods.

    A workload whose objects are there too, as in what ``kubectl get -o yaml`` writes, stands for none beside them.
    """
    owners = {owner for document in documents for owner in _owners(document)}
    claims = {_key(document.content) for document in documents if document.content["kind"] == "PersistentVolumeClaim"}
    for document in documents:
        if document.content["kind"] not in WORKLOAD_KINDS:
            made = [document.content]
        elif (document.content["kind"], *_key(document.content)) in owners:
            continue
        else:
            made = list(_decode(document, lambda content: tuple(workload_objects(content))))
        is_case = document.place is not None and document.place.is_case
        for content in made:
            if content is document.content:
                yield document
            elif content["kind"] == "Pod" or _key(content) not in claims:
                yield Document(document.source, content)
            if content["kind"] == "Pod" and not is_case:
                made_claims = (claim for claim in _ephemeral_claims(content) if _key(claim) not in claims)
                yield from (Document(document.source, claim) for claim in made_claims)


def _admitted(expanded: Iterable[Document], objects: tuple[Document, ...]) -> Iterator[Document]:
    """The documents with what admission adds to pods; those of a case file are as a cluster stores them."""
    admission = read_admission(document.content for document in objects)
    for document in expanded:
        if admission is None or (document.place is not None and document.place.is_case):
            yield document
        else:
            yield msgspec.structs.replace(document, content=admission.admit(document.content))


def _owners(document: Document) -> Iterator[tuple[str, str, str]]:
    """Kind, namespace and name of the objects that made this object; of objects of a case file, none."""
    if document.place is not None and document.place.is_case:
        return
    metadata = document.content["metadata"]
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict):
            yield str(reference.get("kind")), str(metadata.get("namespace") or "default"), str(reference.get("name"))


def _ephemeral_claims(pod: Json) -> tuple[Json, ...]:
    """The claims of a pod's ephemeral volumes; none of a pod that cannot be read, which its own decoder says."""
    try:
        return tuple(ephemeral_claims(pod))
    except DECODE_ERRORS:
        return ()


def _key(content: Json) -> tuple[str, str]:
    return str(content["metadata"].get("namespace") or "default"), str(content["metadata"].get("name"))


def _decode_buffers(documents: Documents) -> tuple[CapacityBuffer, ...]:
    """CapacityBuffers, with the pod templates and workloads of the manifests that they refer to."""
    named = {
        (kind, *_key(content)): content
        for content in (document.content for document in documents.objects)
        if (kind := content["kind"]) == "PodTemplate" or kind in SCALABLE_KINDS
    }
    return tuple(
        _decode(document, lambda content: decode_capacity_buffer(content, lambda *key: named.get(key)))
        for document in documents.objects
        if document.content["kind"] == "CapacityBuffer"
    )


def _decode(document: Document, decode: Callable[[Json], Any]) -> Any:
    content = document.content
    if content["kind"] in _NAMESPACED and not content["metadata"].get("namespace"):
        content = content | {"metadata": content["metadata"] | {"namespace": "default"}}
    try:
        return decode(content)
    except DECODE_ERRORS as error:
        title, why = object_name(content), describe_error(error)
        raise InputError(f"{document.source}: {why if title in why else f'{title}: {why}'}") from None


def _pod(obj: Json) -> Pod:
    """A pod without the condition PodScheduled counts as unschedulable, unless it has scheduling gates."""
    pod = decode_pod(obj)
    if pod.read_error:
        return msgspec.structs.replace(pod, unschedulable=True)
    is_scheduled_condition_set = any(
        condition.get("type") == "PodScheduled" for condition in (obj.get("status") or {}).get("conditions") or ()
    )
    if is_scheduled_condition_set or (obj.get("spec") or {}).get("schedulingGates"):
        return pod
    return msgspec.structs.replace(pod, unschedulable=True)


class _PriorityClass(msgspec.Struct, frozen=True):
    """A PriorityClass. ``default``: of pods that name none."""

    metadata: ObjectMeta
    priority: int
    default: bool


def _decode_priority_class(obj: Json) -> _PriorityClass:
    value = obj.get("value")
    if isinstance(value, bool) or not isinstance(value, int):
        raise DecodeError(f"value: {quote(value)} is not a whole number")
    return _PriorityClass(validate(decode_metadata(obj)), value, bool(obj.get("globalDefault")))


# The priority classes that every cluster has.
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _with_priority(pod: Pod, classes: dict[str, _PriorityClass]) -> Pod:
    """The pod with the priority that admission gives it by its priority class."""
    if pod.priority:
        return pod
    default = next((candidate for _, candidate in sorted(classes.items()) if candidate.default), None)
    priority_class = classes.get(pod.priority_class_name) if pod.priority_class_name else default
    priority = priority_class.priority if priority_class else _SYSTEM_PRIORITIES.get(pod.priority_class_name, 0)
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
        values = {_SETTINGS[name]: value for name, value in given.items()}
        return decision_settings(values | {"FEATURE_GATES": feature_gates})
    except InvalidRequest as error:
        raise InputError(f"settings: {error}") from None


def _decode_now(given: Any) -> datetime:
    try:
        return decode_time(given) or _NOW
    except DecodeError:
        raise InputError(f"now: {quote(given)} is not a time such as 2026-01-01T12:00:00Z") from None
