"""Writes what a Kubernetes API server says of its own kinds: fields, their types, and whether they live in a namespace.

``python -m tools.kubernetes_schema`` asks the local control plane (``make controlplane``), which has the version that
``local.kubernetes.versions`` names. Descriptions and merge strategies are left out.
"""

import json
import os
import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from local.kubernetes.api import KubernetesApi
from local.kubernetes.binaries import ensure_built
from local.kubernetes.control_plane import ControlPlaneStarter
from local.kubernetes.versions import minor_version
from local.ports import Ports
from local.processes import Processes

type Json = dict[str, Any]

FILE: Final = Path(__file__).parents[1] / "layers/core/python/spotwright/cli/inputs/validation/kubernetes.schema.json.z"
_KEPT: Final = ("$ref", "additionalProperties", "format", "items", "properties", "required", "type")
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


def schema_of(api: KubernetesApi) -> Json:
    """``kinds``: apiVersion → kind → [definition, is namespaced]; ``definitions``: name → schema."""
    published = api.get("/openapi/v2")["definitions"]
    kinds: dict[str, dict[str, tuple[str, bool]]] = {}
    for version, resources in _resources(api):
        for resource in resources:
            definition = _definition_name(published, version, resource["kind"])
            if definition and "/" not in resource["name"]:
                kinds.setdefault(version, {})[resource["kind"]] = (definition, resource["namespaced"])
    names = {definition for of_version in kinds.values() for definition, _ in of_version.values()}
    definitions = {name: _stripped(published[name]) for name in sorted(_reachable(published, names))}
    return {"version": minor_version(), "kinds": kinds, "definitions": definitions}


def encode(schema: Json) -> bytes:
    return zlib.compress(json.dumps(schema, separators=(",", ":"), sort_keys=True).encode(), 9)


def decode(content: bytes) -> Json:
    schema: Json = json.loads(zlib.decompress(content))
    return schema


def _resources(api: KubernetesApi) -> list[tuple[str, list[Json]]]:
    """Of each version that is served: its resources."""
    versions = [("v1", "/api/v1")]
    for group in api.get("/apis")["groups"]:
        if group["name"].endswith(".k8s.io") or "." not in group["name"]:
            versions += [
                (version["groupVersion"], f"/apis/{version['groupVersion']}")
                for version in group["versions"]
                if not group["name"].startswith("karpenter.")
            ]
    return [(version, api.get(path)["resources"]) for version, path in versions]


def _definition_name(published: Json, version: str, kind: str) -> str:
    group, _, short = version.rpartition("/")
    wanted = {"group": group, "version": short, "kind": kind}
    return next(
        (
            name
            for name, schema in published.items()
            if wanted in schema.get("x-kubernetes-group-version-kind", ()) and name.endswith(f".{kind}")
        ),
        "",
    )


def _reachable(published: Json, names: set[str]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _references(published[name])
    return found


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    if not isinstance(schema, dict):
        return []
    here = [schema["$ref"].rpartition("/")[2]] if isinstance(schema.get("$ref"), str) else []
    return here + [name for item in schema.values() for name in _references(item)]


def _stripped(schema: Json) -> Json:
    kept = {key: schema[key] for key in _KEPT if key in schema}
    if schema.get(_OPEN):
        kept[_OPEN] = True
    if "$ref" in kept:
        kept["$ref"] = kept["$ref"].rpartition("/")[2]
    if "properties" in kept:
        kept["properties"] = {name: _stripped(inner) for name, inner in kept["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = _stripped(kept[name])
    return kept


def main() -> None:
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="spotwright-schema-")))
        ports = Ports()
        ending.callback(ports.close)
        processes = ending.enter_context(Processes(folder / "logs"))
        starter = ControlPlaneStarter(folder, ensure_built(print), processes, ports)
        plane = starter.start(aws_endpoint="http://127.0.0.1:9", cluster="schema", environment=dict(os.environ))
        content = encode(schema_of(plane.api))
    FILE.write_bytes(content)
    print(f"{FILE}: {len(content)} bytes")


if __name__ == "__main__":
    main()
