"""Workloads that a HorizontalPodAutoscaler of the manifests keeps larger than they state."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from spotwright.cli.inputs.conversion import object_name
from spotwright.cli.inputs.documents import Document, Documents

type Json = dict[str, Any]
type _Key = tuple[str, str, str]

_SCALED_KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")


def apply_autoscalers(documents: Documents) -> tuple[Documents, tuple[str, ...]]:
    """The documents with at least ``minReplicas`` in each workload that is autoscaled, and notes about these workloads.

    An autoscaler leaves a workload with 0 replicas alone, and minReplicas is 1 where it is not stated. Objects of a
    case file are as a cluster stores them.
    Source: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/
    """
    autoscalers = dict(_autoscalers(documents))
    objects: list[Document] = []
    notes: list[str] = []
    for document in documents.objects:
        content = document.content
        autoscaler = autoscalers.get((content["kind"], _namespace(content), str(content["metadata"].get("name"))))
        spec = content.get("spec")
        if (
            autoscaler is None
            or not isinstance(spec, dict)
            or content["kind"] not in _SCALED_KINDS
            or _is_case(document)
        ):
            objects.append(document)
            continue
        least, stated = _least(autoscaler), spec.get("replicas")
        replicas = 1 if stated is None else int(stated)
        if replicas == 0 or least <= replicas:
            objects.append(document)
            continue
        scaled = content | {"spec": spec | {"replicas": least}}
        objects.append(msgspec.structs.replace(document, content=scaled))
        own = "states no replicas" if stated is None else f"states replicas {replicas}"
        notes.append(
            f"{object_name(content)} {own}; {least} pods are planned, the minReplicas of {object_name(autoscaler)}"
        )
    return msgspec.structs.replace(documents, objects=tuple(objects)), tuple(notes)


def _autoscalers(documents: Documents) -> Iterator[tuple[_Key, Json]]:
    """Kind, namespace and name of each workload that is autoscaled, and its autoscaler."""
    for document in documents.objects:
        if document.content["kind"] == "HorizontalPodAutoscaler" and not _is_case(document):
            target = (document.content.get("spec") or {}).get("scaleTargetRef") or {}
            yield (str(target.get("kind")), _namespace(document.content), str(target.get("name"))), document.content


def _least(autoscaler: Json) -> int:
    least = autoscaler["spec"].get("minReplicas")
    return 1 if least is None else int(least)


def _namespace(content: Json) -> str:
    return str(content["metadata"].get("namespace") or "default")


def _is_case(document: Document) -> bool:
    return document.place is not None and document.place.is_case
