"""PersistentVolumeClaims that controllers make for pods: of a StatefulSet's templates, and of ephemeral volumes."""

from collections.abc import Iterator, Mapping
from typing import Any

type Json = dict[str, Any]


def stateful_set_claims(stateful_set: Mapping[str, Any], pod: Json) -> Iterator[Json]:
    """The claims of a StatefulSet's pod, which gets a volume for each of them."""
    metadata, volumes = pod["metadata"], list(pod["spec"].get("volumes") or ())
    for template in (stateful_set.get("spec") or {}).get("volumeClaimTemplates") or ():
        volume = (template.get("metadata") or {}).get("name")
        name = f"{volume}-{metadata['name']}"
        volumes = [other for other in volumes if other.get("name") != volume]
        volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": name}})
        yield _claim(name, metadata, template)
    pod["spec"] = pod["spec"] | {"volumes": volumes}


def ephemeral_claims(pod: Json) -> Iterator[Json]:
    """The claims of a pod's ephemeral volumes."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template:
            yield _claim(f"{pod['metadata'].get('name')}-{volume.get('name')}", pod["metadata"], template)


def _claim(name: str, pod: Json, template: Json) -> Json:
    metadata = {"name": name, "namespace": pod.get("namespace") or "default"}
    spec = template.get("spec") or {}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
