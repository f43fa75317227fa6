"""The pods that workloads would start, and their claims: Deployment, ReplicaSet, StatefulSet, Job, CronJob."""

from collections.abc import Iterator
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.cli.inputs.volume_claims import stateful_set_claims

type Json = dict[str, Any]

WORKLOAD_KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob")

# Kubernetes' own limit for a cluster.
MAX_PODS: Final = 150_000


def workload_objects(workload: Json) -> Iterator[Json]:
    """The pods of a workload, with its name and a number as name, owned by the workload itself, and the claims that it
    makes for them."""
    kind, spec = workload["kind"], workload.get("spec") or {}
    if kind == "CronJob":
        spec = ((spec.get("jobTemplate") or {}).get("spec") or {}) | {"suspend": spec.get("suspend")}
    template = spec.get("template") or {}
    about = template.get("metadata") or {}
    count = _count(kind, spec)
    if count > MAX_PODS:
        name = workload["metadata"].get("name") or "(no name)"
        raise DecodeError(f"{kind} {name} asks for {count} pods; at most {MAX_PODS} can be planned")
    name = workload["metadata"].get("name") or workload["metadata"].get("generateName") or ""
    for number in range(count):
        metadata = {
            "name": f"{name}-{number}",
            "namespace": workload["metadata"].get("namespace") or "default",
            "labels": about.get("labels") or {},
            "annotations": about.get("annotations") or {},
            "ownerReferences": [{"kind": kind, "name": name}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}
        if kind == "StatefulSet":
            yield from stateful_set_claims(workload, pod)
        yield pod


def _count(kind: str, spec: Json) -> int:
    if spec.get("suspend") is True:
        return 0
    if kind in ("Job", "CronJob"):
        parallel, completions = spec.get("parallelism"), spec.get("completions")
        wanted = 1 if parallel is None else int(parallel)
        return wanted if completions is None else min(wanted, int(completions))
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)
