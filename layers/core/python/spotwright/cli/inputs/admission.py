"""What admission adds to pods before they are scheduled: defaults of LimitRanges, and what a RuntimeClass needs.

Source: plugins ``limitranger`` and ``runtimeclass`` of kube-apiserver, and ``SetDefaults_LimitRangeItem``.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

type Json = dict[str, Any]


class Admission(msgspec.Struct, frozen=True):
    """LimitRanges by namespace, in the order in which they stand, and RuntimeClasses by name."""

    limit_ranges: dict[str, list[Json]]
    runtime_classes: dict[str, Json]

    def admit(self, content: Json) -> Json:
        """A pod or DaemonSet as the API server would store it; anything else as it is."""
        namespace = str(content["metadata"].get("namespace") or "default")
        spec = _map(content.get("spec"))
        if content["kind"] == "Pod":
            return content | {"spec": self._admit(namespace, spec)}
        if content["kind"] == "DaemonSet":
            template = _map(spec.get("template"))
            admitted = template | {"spec": self._admit(namespace, _map(template.get("spec")))}
            return content | {"spec": spec | {"template": admitted}}
        return content

    def _admit(self, namespace: str, pod_spec: Json) -> Json:
        for item in (item for limits in self.limit_ranges.get(namespace, ()) for item in _container_limits(limits)):
            pod_spec = _with_defaults(pod_spec, item)
        runtime_class = self.runtime_classes.get(str(pod_spec.get("runtimeClassName")))
        return pod_spec if runtime_class is None else _with_runtime_class(pod_spec, runtime_class)


def read_admission(contents: Iterable[Json]) -> Admission | None:
    """The LimitRanges and RuntimeClasses among these objects; None without any."""
    limit_ranges: dict[str, list[Json]] = {}
    runtime_classes: dict[str, Json] = {}
    for content in contents:
        if content["kind"] == "LimitRange":
            limit_ranges.setdefault(str(content["metadata"].get("namespace") or "default"), []).append(content)
        elif content["kind"] == "RuntimeClass":
            runtime_classes[str(content["metadata"].get("name"))] = content
    return Admission(limit_ranges, runtime_classes) if limit_ranges or runtime_classes else None


def _container_limits(limit_range: Json) -> Iterator[Json]:
    items = _map(limit_range.get("spec")).get("limits")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("type") == "Container":
            yield item


def _with_defaults(pod_spec: Json, item: Json) -> Json:
    """The pod with default limits and requests: ``max`` stands in for ``default``, that and ``min`` for requests."""
    limits = _map(item.get("max")) | _map(item.get("default"))
    requests = _map(item.get("min")) | limits | _map(item.get("defaultRequest"))
    filled = {
        name: [_fill(container, requests, limits) for container in containers]
        for name in ("initContainers", "containers")
        if isinstance(containers := pod_spec.get(name), list)
    }
    return pod_spec | filled


def _fill(container: Any, requests: Json, limits: Json) -> Any:
    """The container with what it does not state; a request that it does not state is its own limit first."""
    if not isinstance(container, dict):
        return container
    resources = _map(container.get("resources"))
    own_limits = _map(resources.get("limits"))
    filled = {
        "requests": requests | own_limits | _map(resources.get("requests")),
        "limits": limits | own_limits,
    }
    return container | {"resources": resources | {name: amounts for name, amounts in filled.items() if amounts}}


def _with_runtime_class(pod_spec: Json, runtime_class: Json) -> Json:
    """The pod with the overhead of its RuntimeClass, and kept to the nodes that support it."""
    scheduling = _map(runtime_class.get("scheduling"))
    added: Json = {}
    if overhead := _map(_map(runtime_class.get("overhead")).get("podFixed")):
        added["overhead"] = overhead
    if selector := _map(scheduling.get("nodeSelector")):
        added["nodeSelector"] = _map(pod_spec.get("nodeSelector")) | selector
    if isinstance(tolerations := scheduling.get("tolerations"), list):
        added["tolerations"] = [*(pod_spec.get("tolerations") or ()), *tolerations]
    return pod_spec | added


def _map(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
