"""Kubernetes objects, as the API server or a manifest states them, into the model.

Tolerant where one object must not stop the others: a pod that cannot be read carries ``problem``. For objects a
user writes for us (NodePool, EC2NodeClass) a bad value raises DecodeError naming object, field and value.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from spotwright.adapters import fields, pod_company, pod_requests
from spotwright.model import quantity, resources
from spotwright.model.node import Node
from spotwright.model.nodeclaim import NodeClaim
from spotwright.model.nodeclass import (
    Ami,
    BlockDevice,
    EC2NodeClass,
    MetadataOptions,
    SecurityGroup,
    SelectorTerm,
    Subnet,
)
from spotwright.model.nodepool import Budget, NodeClassReference, NodePool
from spotwright.model.objects import Condition, Metadata, Owner
from spotwright.model.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.requirements import Selector
from spotwright.model.taints import Taint, Toleration

type Json = Mapping[str, Any]

_DURATION: Final = re.compile(r"([0-9]+)(h|m|s)")
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


class DecodeError(ValueError):
    """An object that cannot be read; the message names kind, name, field, value and what is allowed."""


def metadata(obj: Json) -> Metadata:
    given = obj.get("metadata") or {}
    return Metadata(
        name=given.get("name") or "",
        namespace=given.get("namespace") or "",
        uid=given.get("uid") or "",
        generation=given.get("generation") or 0,
        resource_version=given.get("resourceVersion") or "",
        created=moment(given.get("creationTimestamp")),
        deleting=moment(given.get("deletionTimestamp")),
        labels=dict(given.get("labels") or {}),
        annotations=dict(given.get("annotations") or {}),
        finalizers=tuple(given.get("finalizers") or ()),
        owners=tuple(
            Owner(one.get("kind", ""), one.get("name", ""), one.get("uid", ""), one.get("apiVersion", ""))
            for one in given.get("ownerReferences") or ()
        ),
    )


def moment(text: Any) -> datetime | None:
    """An RFC 3339 time as aware UTC."""
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def duration_seconds(text: str) -> int | None:
    """``1h30m`` in seconds; None for Never. Raises ValueError."""
    if text == "Never":
        return None
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m, 1h30m or Never")
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def selectors(items: Iterable[Json] | None) -> tuple[Selector, ...]:
    return tuple(
        Selector(
            key=one.get("key") or "",
            operator=one.get("operator") or "",
            values=tuple(str(value) for value in one.get("values") or ()),
            min_values=one.get("minValues"),
        )
        for one in items or ()
    )


def taints(items: Iterable[Json] | None) -> tuple[Taint, ...]:
    return tuple(Taint(one["key"], one.get("effect") or "", str(one.get("value") or "")) for one in items or ())


def conditions(obj: Json) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=one["type"],
            status=one.get("status", "Unknown"),
            reason=one.get("reason") or "",
            message=one.get("message") or "",
            since=moment(one.get("lastTransitionTime")),
            observed_generation=one.get("observedGeneration") or 0,
        )
        for one in (obj.get("status") or {}).get("conditions") or ()
    )


def pod(obj: Json) -> Pod:
    """A pod; what cannot be read is said in ``problem`` and left out."""
    spec, status, about = obj.get("spec") or {}, obj.get("status") or {}, metadata(obj)
    if not about.namespace:
        about = msgspec.structs.replace(about, namespace="default")
    try:
        requests, problem = pod_requests.requests(spec, status), ""
    except quantity.QuantityError as error:
        requests, problem = {resources.PODS: 1}, str(error)
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    placed = _condition(status, "PodScheduled")
    return Pod(
        metadata=about,
        requests=requests,
        node_selector={key: str(value) for key, value in (spec.get("nodeSelector") or {}).items()},
        node_affinity=tuple(
            selectors(term.get("matchExpressions")) for term in required.get("nodeSelectorTerms") or ()
        ),
        tolerations=tuple(
            Toleration(
                one.get("key") or "",
                one.get("operator") or "Equal",
                str(one.get("value") or ""),
                one.get("effect") or "",
            )
            for one in spec.get("tolerations") or ()
        ),
        priority=spec.get("priority") or 0,
        priority_class=spec.get("priorityClassName") or "",
        scheduler=spec.get("schedulerName") or "default-scheduler",
        node_name=spec.get("nodeName") or "",
        nominated_node=status.get("nominatedNodeName") or "",
        phase=status.get("phase") or "Pending",
        unschedulable=placed.get("reason") == "Unschedulable",
        started=moment(status.get("startTime")),
        termination_grace_seconds=_or(spec.get("terminationGracePeriodSeconds"), 30),
        ready=_condition(status, "Ready").get("status") == "True",
        unhandled=tuple(_unhandled(spec, required)),
        problem=problem,
        node_preferences=pod_company.node_preferences(spec),
        spreads=pod_company.spreads(spec, about.labels),
        near=pod_company.required(spec, "podAffinity", about.labels, about.namespace),
        apart=pod_company.required(spec, "podAntiAffinity", about.labels, about.namespace),
        rather_near=pod_company.preferred(spec, "podAffinity", about.labels, about.namespace),
        rather_apart=pod_company.preferred(spec, "podAntiAffinity", about.labels, about.namespace),
        host_ports=pod_company.host_ports(spec),
        volume_claims=tuple(pod_company.volume_claims(spec, about.name)),
    )


def _unhandled(spec: Json, required: Json) -> Iterable[str]:
    """Field paths of hard constraints that the planner does not handle."""
    if any(term.get("matchFields") for term in required.get("nodeSelectorTerms") or ()):
        yield "spec.affinity.nodeAffinity.matchFields"
    if spec.get("resourceClaims"):
        yield "spec.resourceClaims"


def daemonset(obj: Json) -> DaemonSet:
    """A DaemonSet; its template pod is named after it and tolerates what the controller adds."""
    about = metadata(obj)
    template = dict((obj.get("spec") or {}).get("template") or {})
    template["metadata"] = dict(template.get("metadata") or {}) | {"name": about.name, "namespace": about.namespace}
    return DaemonSet(metadata=about, template=pod(template))


def pod_disruption_budget(obj: Json) -> PodDisruptionBudget:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    selector = spec.get("selector")
    return PodDisruptionBudget(
        metadata=metadata(obj),
        selector=None if selector is None else pod_company.label_selector(selector),
        disruptions_allowed=status.get("disruptionsAllowed") or 0,
        min_available=spec.get("minAvailable"),
        max_unavailable=spec.get("maxUnavailable"),
        unhealthy_pod_eviction_policy=spec.get("unhealthyPodEvictionPolicy") or "IfHealthyBudget",
    )


def node(obj: Json) -> Node:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return Node(
        metadata=metadata(obj),
        provider_id=spec.get("providerID") or "",
        taints=taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=resources.parse(status.get("allocatable") or {}),
        capacity=resources.parse(status.get("capacity") or {}),
        conditions=conditions(obj),
    )


def nodepool(obj: Json) -> NodePool:
    """A NodePool with its defaults; raises DecodeError."""
    reader = _Reader(obj)
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    given, about, disruption = template.get("spec") or {}, template.get("metadata") or {}, spec.get("disruption") or {}
    status = obj.get("status") or {}
    return NodePool(
        metadata=metadata(obj),
        node_class_ref=_class_reference(given),
        labels={key: str(value) for key, value in (about.get("labels") or {}).items()},
        annotations=dict(about.get("annotations") or {}),
        requirements=selectors(given.get("requirements")),
        taints=taints(given.get("taints")),
        startup_taints=taints(given.get("startupTaints")),
        expire_after_seconds=reader.duration("spec.template.spec.expireAfter", given.get("expireAfter") or "720h"),
        termination_grace_seconds=reader.optional_duration(
            "spec.template.spec.terminationGracePeriod", given.get("terminationGracePeriod")
        ),
        limits=reader.amounts("spec.limits", spec.get("limits") or {}),
        weight=spec.get("weight") or 0,
        replicas=spec.get("replicas"),
        consolidation_policy=disruption.get("consolidationPolicy") or "WhenEmptyOrUnderutilized",
        consolidate_after_seconds=reader.duration(
            "spec.disruption.consolidateAfter", disruption.get("consolidateAfter") or "0s"
        ),
        budgets=_budgets(disruption.get("budgets")),
        conditions=conditions(obj),
        resources=resources.parse(status.get("resources") or {}),
        nodes=int(status.get("nodes") or 0),
        problems=fields.problems(obj),
        stated_empty=_stated_empty(about, given),
    )


def _stated_empty(template_metadata: Json, template_spec: Json) -> tuple[str, ...]:
    """Which of the hashed lists and maps are there and empty."""
    places = (
        ("labels", template_metadata),
        ("annotations", template_metadata),
        ("taints", template_spec),
        ("startupTaints", template_spec),
    )
    return tuple(name for name, where in places if where.get(name) in ([], {}))


def readable_nodepool(obj: Json) -> NodePool:
    """A NodePool that the API server let pass; what cannot be read is said in ``unreadable`` and stops no other."""
    try:
        return nodepool(obj)
    except DecodeError as error:
        spec = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
        return NodePool(metadata(obj), _class_reference(spec), conditions=conditions(obj), unreadable=str(error))


def _budgets(items: list[Json] | None) -> tuple[Budget, ...]:
    if items is None:
        return (Budget(),)
    return tuple(
        Budget(
            nodes=str(one.get("nodes") or "10%"),
            reasons=tuple(one.get("reasons") or ()),
            schedule=one.get("schedule") or "",
            duration=one.get("duration") or "",
        )
        for one in items
    )


def _class_reference(spec: Json) -> NodeClassReference:
    ref = spec.get("nodeClassRef") or {}
    return NodeClassReference(ref.get("group") or "", ref.get("kind") or "", ref.get("name") or "")


def nodeclaim(obj: Json) -> NodeClaim:
    reader = _Reader(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return NodeClaim(
        metadata=metadata(obj),
        node_class_ref=_class_reference(spec),
        requirements=selectors(spec.get("requirements")),
        requests=reader.amounts("spec.resources.requests", (spec.get("resources") or {}).get("requests") or {}),
        taints=taints(spec.get("taints")),
        startup_taints=taints(spec.get("startupTaints")),
        expire_after_seconds=reader.duration("spec.expireAfter", spec.get("expireAfter") or "720h"),
        termination_grace_seconds=reader.optional_duration(
            "spec.terminationGracePeriod", spec.get("terminationGracePeriod")
        ),
        provider_id=status.get("providerID") or "",
        node_name=status.get("nodeName") or "",
        image_id=status.get("imageID") or "",
        capacity=resources.parse(status.get("capacity") or {}),
        allocatable=resources.parse(status.get("allocatable") or {}),
        last_pod_event=moment(status.get("lastPodEventTime")),
        conditions=conditions(obj),
    )


def nodeclass(obj: Json) -> EC2NodeClass:
    """An EC2NodeClass with the CRD's defaults; raises DecodeError."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    options = spec.get("metadataOptions") or {}
    return EC2NodeClass(
        metadata=metadata(obj),
        subnet_selector_terms=_terms(spec.get("subnetSelectorTerms")),
        security_group_selector_terms=_terms(spec.get("securityGroupSelectorTerms")),
        ami_selector_terms=_terms(spec.get("amiSelectorTerms")),
        ami_family=spec.get("amiFamily") or "",
        role=spec.get("role") or "",
        instance_profile=spec.get("instanceProfile") or "",
        user_data=spec.get("userData") or "",
        tags=dict(spec.get("tags") or {}),
        kubelet=dict(spec.get("kubelet") or {}),
        block_devices=tuple(_block_device(one) for one in spec.get("blockDeviceMappings") or ()),
        metadata_options=MetadataOptions(
            http_endpoint=options.get("httpEndpoint") or "enabled",
            http_protocol_ipv6=options.get("httpProtocolIPv6") or "disabled",
            http_put_response_hop_limit=options.get("httpPutResponseHopLimit") or 1,
            http_tokens=options.get("httpTokens") or "required",
        ),
        detailed_monitoring=spec.get("detailedMonitoring"),
        associate_public_ip_address=spec.get("associatePublicIPAddress"),
        instance_store_policy=spec.get("instanceStorePolicy") or "",
        context=spec.get("context") or "",
        problems=(*fields.problems(obj), *_unhandled_class_fields(spec)),
        subnets=tuple(
            Subnet(one["id"], one.get("zone") or "", one.get("zoneID") or "") for one in status.get("subnets") or ()
        ),
        security_groups=tuple(
            SecurityGroup(one["id"], one.get("name") or "") for one in status.get("securityGroups") or ()
        ),
        amis=tuple(
            Ami(one["id"], one.get("name") or "", bool(one.get("deprecated")), selectors(one.get("requirements")))
            for one in status.get("amis") or ()
        ),
        resolved_profile=status.get("instanceProfile") or "",
        conditions=conditions(obj),
    )


_UNHANDLED_CLASS_FIELDS: Final = (
    "capacityReservationSelectorTerms",
    "placementGroupSelector",
    "networkInterfaces",
    "ipPrefixCount",
    "connectionTracking",
    "cpuOptions",
)


def _unhandled_class_fields(spec: Json) -> Iterable[str]:
    return (f"field spec.{name} is not supported yet" for name in _UNHANDLED_CLASS_FIELDS if spec.get(name))


def _terms(items: Iterable[Json] | None) -> tuple[SelectorTerm, ...]:
    return tuple(
        SelectorTerm(
            tags=dict(one.get("tags") or {}),
            id=one.get("id") or "",
            name=one.get("name") or "",
            owner=str(one.get("owner") or ""),
            alias=one.get("alias") or "",
            ssm_parameter=one.get("ssmParameter") or "",
        )
        for one in items or ()
    )


def _block_device(one: Json) -> BlockDevice:
    ebs = one.get("ebs") or {}
    return BlockDevice(
        device_name=one.get("deviceName") or "",
        root_volume=bool(one.get("rootVolume")),
        volume_size=str(ebs.get("volumeSize") or ""),
        volume_type=ebs.get("volumeType") or "",
        iops=ebs.get("iops"),
        throughput=ebs.get("throughput"),
        encrypted=ebs.get("encrypted"),
        delete_on_termination=ebs.get("deleteOnTermination"),
        kms_key_id=ebs.get("kmsKeyID") or "",
        snapshot_id=ebs.get("snapshotID") or "",
        volume_initialization_rate=ebs.get("volumeInitializationRate"),
    )


class _Reader:
    """Reads single fields of one object, so that errors can name it."""

    def __init__(self, obj: Json) -> None:
        self._who = f"{obj.get('kind') or 'object'} {(obj.get('metadata') or {}).get('name') or '(no name)'}"

    def duration(self, field: str, text: str) -> int | None:
        try:
            return duration_seconds(str(text))
        except ValueError as error:
            raise DecodeError(f"{self._who}: {field}: {error}") from None

    def optional_duration(self, field: str, text: str | None) -> int | None:
        return None if text is None else self.duration(field, text)

    def amounts(self, field: str, given: Mapping[str, Any]) -> dict[str, int]:
        try:
            return resources.parse(given)
        except quantity.QuantityError as error:
            raise DecodeError(f"{self._who}: {field}: {error}") from None


def _condition(status: Json, kind: str) -> Json:
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), {})


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
