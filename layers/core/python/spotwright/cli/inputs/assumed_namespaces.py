"""Namespaces of pods that are not among the manifests, whose labels a namespaceSelector asks for: assumed."""

from collections.abc import Iterator
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot

_NAME: Final = "kubernetes.io/metadata.name"


def assume_namespaces(snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot with a namespace for every pod, and a sentence where it matters which labels these have.

    A namespace that no file has counts with the label that the API server gives each, its name.
    """
    asked = sorted({key for pod in snapshot.pods for key in _asked_labels(pod)})
    missing = sorted({pod.metadata.namespace for pod in snapshot.pods}.difference(snapshot.namespaces))
    if not asked or not missing:
        return snapshot, ()
    complete = msgspec.structs.replace(snapshot, namespaces={name: {} for name in missing} | snapshot.namespaces)
    others = [key for key in asked if key != _NAME]
    if not others:
        return complete, ()
    names = f"Namespace {missing[0]} is" if len(missing) == 1 else f"Namespaces {', '.join(missing)} are"
    label = f"label {others[0]}" if len(others) == 1 else f"labels {', '.join(others)}"
    return complete, (f"{names} not in these files; assumed without the {label} that a namespaceSelector asks for",)


def _asked_labels(pod: Pod) -> Iterator[str]:
    """The labels of namespaces that decide which pods a term of affinity means."""
    preferred = (*pod.preferred_pod_affinity, *pod.preferred_pod_anti_affinity)
    for term in (*pod.pod_affinity, *pod.pod_anti_affinity, *(weighted.pod_affinity_term for weighted in preferred)):
        for requirement in term.namespace_selector or ():
            yield requirement.key
