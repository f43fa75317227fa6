"""Kubernetes objects of manifests and case files as a snapshot."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from spotwright.adapters import decode, decode_nodeclass, decode_nodepool, storage
from spotwright.cli import InputError, workloads
from spotwright.cli.documents import Document, Documents
from spotwright.model.pod import Pod
from spotwright.model.quantity import QuantityError
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.model.volumes import Storage

type Json = dict[str, Any]

_READERS: Final[dict[str, tuple[str, Callable[[Json], Any]]]] = {
    "Pod": ("pods", lambda obj: _pod(obj)),
    "Node": ("nodes", decode.node),
    "NodePool": ("nodepools", decode_nodepool.nodepool),
    "EC2NodeClass": ("nodeclasses", decode_nodeclass.nodeclass),
    "NodeClaim": ("nodeclaims", decode_nodepool.nodeclaim),
    "DaemonSet": ("daemonsets", decode.daemonset),
    "PodDisruptionBudget": ("budgets", decode.pod_disruption_budget),
    "Namespace": ("namespaces", decode.metadata),
    "PersistentVolumeClaim": ("claims", storage.claim),
    "PersistentVolume": ("volumes", storage.volume),
    "StorageClass": ("classes", storage.storage_class),
    "CSINode": ("csi_nodes", storage.csi_node),
}
_OLD_KINDS: Final = ("Provisioner", "AWSNodeTemplate", "Machine")
_NAMESPACED: Final = ("Pod", "DaemonSet", "PodDisruptionBudget", "PersistentVolumeClaim")
# A plan of manifests does not depend on when it is made.
_NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def snapshot(documents: Documents) -> Snapshot:
    """What the planner sees; raises InputError naming file, object and field."""
    fields: dict[str, list[Any]] = {}
    for document in _expanded(documents.objects):
        entry = _READERS.get(document.content["kind"])
        if entry is not None:
            fields.setdefault(entry[0], []).append(_decoded(document, entry[1]))
    kept = {name: tuple(fields.pop(name, ())) for name in ("claims", "volumes", "classes", "csi_nodes")}
    disks = Storage(kept["claims"], kept["volumes"], kept["classes"], kept["csi_nodes"])
    namespaces = {one.name: one.labels for one in fields.pop("namespaces", ())}
    empty = Snapshot(cluster="manifests", now=_moment(documents.now), settings=_settings(documents.settings))
    read = {name: tuple(values) for name, values in fields.items()}
    return msgspec.structs.replace(empty, storage=disks, namespaces=namespaces, **read)


def notes(documents: Documents) -> tuple[str, ...]:
    """What the manifests hold that no planner of today reads."""
    return tuple(
        f"{one.content['kind']} {one.content['metadata'].get('name') or ''} ({one.source}) is of Karpenter before v1"
        " and is not read: write it as a NodePool and an EC2NodeClass"
        for one in documents.objects
        if one.content["kind"] in _OLD_KINDS
    )


def _expanded(documents: tuple[Document, ...]) -> Iterator[Document]:
    for document in documents:
        if document.content["kind"] in workloads.KINDS:
            for pod in workloads.pods(document.content):
                yield Document(document.source, pod)
        else:
            yield document


def _decoded(document: Document, read: Callable[[Json], Any]) -> Any:
    content = document.content
    if content["kind"] in _NAMESPACED and not content["metadata"].get("namespace"):
        content = content | {"metadata": content["metadata"] | {"namespace": "default"}}
    try:
        return read(content)
    except (ValueError, QuantityError) as error:
        raise InputError(f"{document.source}: {error}") from None
    except (AttributeError, KeyError, TypeError) as error:
        name = content["metadata"].get("name") or "(no name)"
        raise InputError(f"{document.source}: {content['kind']} {name} is malformed: {error!r}") from None


def _pod(obj: Json) -> Pod:
    """A pod that nobody has judged yet counts as one that kube-scheduler gave up on, unless it is gated."""
    pod = decode.pod(obj)
    judged = any(one.get("type") == "PodScheduled" for one in (obj.get("status") or {}).get("conditions") or ())
    if judged or (obj.get("spec") or {}).get("schedulingGates"):
        return pod
    return msgspec.structs.replace(pod, unschedulable=True)


def _settings(given: Json) -> Settings:
    known = {"preferencePolicy": "preference_policy", "minValuesPolicy": "min_values_policy"}
    unknown = sorted(set(given).difference(known))
    if unknown:
        raise InputError(f"settings: {unknown[0]} is unknown; known are {', '.join(known)}")
    return Settings(**{known[name]: value for name, value in given.items()})


def _moment(given: Any) -> datetime:
    try:
        return decode.moment(given) or _NOW
    except (TypeError, ValueError):
        raise InputError(f"now: {given!r} is not a time such as 2026-01-01T12:00:00Z") from None
