"""The environment of a container, as a kubelet would make it from the pod's spec."""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")

type Pod = Mapping[str, Any]
# Finds the `data` of a ConfigMap or Secret: kind, namespace, name; None when there is none.
type FindData = Callable[[str, str, str], Mapping[str, str] | None]


class ContainerConfigError(Exception):
    """A container's environment refers to something that is not there (CreateContainerConfigError)."""


def container_environment(
    pod: Pod, container: Mapping[str, Any], defaults: Mapping[str, str], find: FindData
) -> dict[str, str]:
    """`defaults` first, then envFrom, then env in its order. Raises ContainerConfigError."""
    environment = dict(defaults)
    for source in container.get("envFrom") or []:
        environment |= _from_source(pod, source, find)
    for entry in container.get("env") or []:
        value = _value(pod, entry, find)
        if value is not None:
            environment[entry["name"]] = expand_references(value, environment)
    return environment


def expand_references(text: str, environment: Mapping[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does: unknown names stay, $$(NAME) escapes."""

    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return f"$({found[2]})"
        return environment.get(found[2], found[0])

    return REFERENCE.sub(replace, text)


def _value(pod: Pod, entry: Mapping[str, Any], find: FindData) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value") or "")
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    for kind, key in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
        if key in source:
            return _of_key(pod, kind, source[key], find)
    raise ContainerConfigError(f"env {entry['name']}: {', '.join(source)} is not played here")


def _field(pod: Pod, path: str) -> str:
    found = SUBSCRIPT.fullmatch(path)
    if found:
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return str(value)


def _of_key(pod: Pod, kind: str, reference: Mapping[str, Any], find: FindData) -> str | None:
    data = _data(pod, kind, reference["name"], find)
    if data is None or reference["key"] not in data:
        if reference.get("optional"):
            return None
        raise ContainerConfigError(f"{kind} {reference['name']} has no {reference['key']}")
    return data[reference["key"]]


def _from_source(pod: Pod, source: Mapping[str, Any], find: FindData) -> dict[str, str]:
    for kind, key in (("Secret", "secretRef"), ("ConfigMap", "configMapRef")):
        if key in source:
            data = _data(pod, kind, source[key]["name"], find)
            if data is None and not source[key].get("optional"):
                raise ContainerConfigError(f"{kind} {source[key]['name']} not found")
            return {source.get("prefix", "") + name: value for name, value in (data or {}).items()}
    return {}


def _data(pod: Pod, kind: str, name: str, find: FindData) -> dict[str, str] | None:
    data = find(kind, pod["metadata"]["namespace"], name)
    if data is None:
        return None
    return {key: base64.b64decode(value).decode() if kind == "Secret" else value for key, value in data.items()}
