"""Pods by the workload that started them: what people call their pods by."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod

_TEMPLATE_HASH: Final = "pod-template-hash"


class Workload(msgspec.Struct, frozen=True, order=True):
    """What owns a pod, such as a Deployment; a pod that nothing owns is its own workload, of kind Pod."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        """``Deployment web``, with its namespace unless that is ``default``."""
        name = self.name if self.namespace in ("", "default") else f"{self.namespace}/{self.name}"
        return f"{self.kind} {name}"


def find_workload(pod: Pod) -> Workload:
    """The owner of a pod; of a ReplicaSet's pods the Deployment that their label ``pod-template-hash`` tells of."""
    metadata = pod.metadata
    if not metadata.owner_references:
        return Workload(metadata.namespace, "Pod", metadata.name)
    owner = metadata.owner_references[0]
    suffix = f"-{metadata.labels.get(_TEMPLATE_HASH, '')}"
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        return Workload(metadata.namespace, "Deployment", owner.name.removesuffix(suffix))
    return Workload(metadata.namespace, owner.kind, owner.name)


class Workloads:
    """The workloads of pods, by the pods' keys ``namespace/name``."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._by_pod: Mapping[str, Workload] = {pod.key: find_workload(pod) for pod in pods}

    def of(self, pod: str) -> Workload:
        """The workload of a pod; a pod that is not known, such as a virtual one of a CapacityBuffer, is its own."""
        namespace, _, name = pod.rpartition("/")
        return self._by_pod.get(pod) or Workload(namespace, "Pod", name)

    def count(self, pods: Iterable[str]) -> dict[Workload, int]:
        """How many of these pods each workload has, the workload with most pods first."""
        counts: dict[Workload, int] = {}
        for pod in pods:
            workload = self.of(pod)
            counts[workload] = counts.get(workload, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
