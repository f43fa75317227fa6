"""What the forwarder keeps of each object: the fields whose changes matter, and those of its metrics.

Views are built from an object's JSON and compared by value; a change of any other field is ignored.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from spotwright.adapters.kubernetes.codecs.pod_requests import pod_requests
from spotwright.model import labels, resources
from spotwright.model.quantity import QuantityError

type Json = Mapping[str, Any]


class PodView(msgspec.Struct, frozen=True):
    """``unschedulable``: kube-scheduler found no node, none is nominated, and the pod is not a DaemonSet's."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    unschedulable: bool = False
    terminal: bool = False
    deleting: bool = False
    of_daemonset: bool = False
    ready: bool = False
    owner: str = ""
    requests: dict[str, int] = {}


class NodeView(msgspec.Struct, frozen=True):
    """``taints``: key, value and effect of each, sorted. ``capacity``, ``allocatable``: cpu millicores, bytes …"""

    name: str
    uid: str
    ready: bool = False
    deleting: bool = False
    provider_id: str = ""
    taints: tuple[tuple[str, str, str], ...] = ()
    labels: dict[str, str] = {}
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}


class NodeClaimView(msgspec.Struct, frozen=True):
    """``of_decision``: a decision of Spotwright created it, so that lifecycle has it already."""

    name: str
    uid: str
    of_decision: bool = False
    deleting: bool = False
    node: str = ""


class NodePoolView(msgspec.Struct, frozen=True):
    name: str
    uid: str
    generation: int = 0
    deleting: bool = False
    ready: str = ""


class NodeClassView(msgspec.Struct, frozen=True):
    name: str
    uid: str
    generation: int = 0
    deleting: bool = False
    ready: str = ""


type View = PodView | NodeView | NodeClaimView | NodePoolView | NodeClassView


def pod_view(value: Json) -> PodView:
    metadata, spec, status = _parts(value)
    owners = metadata.get("ownerReferences") or ()
    daemon = any(owner.get("kind") == "DaemonSet" for owner in owners)
    deleting = "deletionTimestamp" in metadata
    node = spec.get("nodeName") or ""
    scheduled = _condition(status, "PodScheduled")
    placed = bool(node or status.get("nominatedNodeName") or deleting or daemon)
    return PodView(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        node=node,
        phase=status.get("phase") or "Pending",
        unschedulable=not placed and scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable",
        terminal=status.get("phase") in ("Succeeded", "Failed"),
        deleting=deleting,
        of_daemonset=daemon,
        ready=_condition(status, "Ready").get("status") == "True",
        owner=f"{owners[0].get('kind')}/{owners[0].get('name')}" if owners else "",
        requests=_requests(spec, status),
    )


def node_view(value: Json) -> NodeView:
    metadata, spec, status = _parts(value)
    taints = (
        (taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")) for taint in spec.get("taints") or ()
    )
    return NodeView(
        name=metadata["name"],
        uid=metadata["uid"],
        ready=_condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        provider_id=spec.get("providerID") or "",
        taints=tuple(sorted(taints)),
        labels=dict(metadata.get("labels") or {}),
        capacity=_amounts(status.get("capacity")),
        allocatable=_amounts(status.get("allocatable")),
    )


def nodeclaim_view(value: Json) -> NodeClaimView:
    metadata, _, status = _parts(value)
    return NodeClaimView(
        name=metadata["name"],
        uid=metadata["uid"],
        of_decision=labels.DECISION in (metadata.get("annotations") or {}),
        deleting="deletionTimestamp" in metadata,
        node=status.get("nodeName") or "",
    )


def nodepool_view(value: Json) -> NodePoolView:
    return NodePoolView(**_generation_fields(value))


def nodeclass_view(value: Json) -> NodeClassView:
    return NodeClassView(**_generation_fields(value))


def _generation_fields(value: Json) -> dict[str, Any]:
    metadata, _, status = _parts(value)
    return {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "generation": metadata.get("generation", 0),
        "deleting": "deletionTimestamp" in metadata,
        "ready": _condition(status, "Ready").get("status", ""),
    }


def _parts(value: Json) -> tuple[Json, Json, Json]:
    return value["metadata"], value.get("spec") or {}, value.get("status") or {}


def _condition(status: Json, kind: str) -> Json:
    return next((condition for condition in status.get("conditions") or () if condition.get("type") == kind), {})


def _requests(spec: Json, status: Json) -> dict[str, int]:
    """The pod's requests; {} when they cannot be parsed, which the planner reports."""
    try:
        return pod_requests(spec, status)
    except QuantityError:
        return {}


def _amounts(quantities: Json | None) -> dict[str, int]:
    try:
        return resources.parse(quantities or {})
    except QuantityError:
        return {}
