"""Kubernetes' Protobuf messages, with the fields of pods that are used.

A parser skips what its schema does not have, so that this one follows Kubernetes only where more of a pod is read.

Source: ``generated.proto`` of k8s.io/api/core/v1, k8s.io/apimachinery/pkg/apis/meta/v1 and pkg/runtime, 1.36; field
numbers never change. https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, Edition, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError as NoMessage
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.media_types import PROTOBUF_PREFIX
from spotwright.adapters.kubernetes.codecs.objects import JsonObject
from spotwright.model.kubernetes.meta import EARLIEST_TIME, LATEST_TIME

type _Fields = Mapping[str, tuple[int, str]]

_RESOURCES: Final = "map<Quantity>"
_POD_AFFINITY: Final[_Fields] = {
    "requiredDuringSchedulingIgnoredDuringExecution": (1, "repeated PodAffinityTerm"),
    "preferredDuringSchedulingIgnoredDuringExecution": (2, "repeated WeightedPodAffinityTerm"),
}
# Message → field → (number, type). ``map<…>``: its keys are strings.
_MESSAGES: Final[Mapping[str, _Fields]] = {
    "ListMeta": {"resourceVersion": (2, "string"), "continue": (3, "string")},
    "Status": {"message": (3, "string"), "reason": (4, "string")},
    "ObjectMeta": {
        "name": (1, "string"),
        "namespace": (3, "string"),
        "uid": (5, "string"),
        "resourceVersion": (6, "string"),
        "generation": (7, "int64"),
        "creationTimestamp": (8, "Time"),
        "deletionTimestamp": (9, "Time"),
        "labels": (11, "map<string>"),
        "annotations": (12, "map<string>"),
        "ownerReferences": (13, "repeated OwnerReference"),
        "finalizers": (14, "repeated string"),
    },
    "OwnerReference": {"kind": (1, "string"), "name": (3, "string"), "uid": (4, "string"), "apiVersion": (5, "string")},
    "Time": {"seconds": (1, "int64")},
    "Quantity": {"string": (1, "string")},
    "LabelSelector": {"matchLabels": (1, "map<string>"), "matchExpressions": (2, "repeated Requirement")},
    # LabelSelectorRequirement and NodeSelectorRequirement.
    "Requirement": {"key": (1, "string"), "operator": (2, "string"), "values": (3, "repeated string")},
    "PodList": {"metadata": (1, "ListMeta"), "items": (2, "repeated Pod")},
    "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
    "PodSpec": {
        "volumes": (1, "repeated Volume"),
        "containers": (2, "repeated Container"),
        "terminationGracePeriodSeconds": (4, "int64"),
        "nodeSelector": (7, "map<string>"),
        "nodeName": (10, "string"),
        "hostNetwork": (11, "bool"),
        "affinity": (18, "Affinity"),
        "schedulerName": (19, "string"),
        "initContainers": (20, "repeated Container"),
        "tolerations": (22, "repeated Toleration"),
        "priorityClassName": (24, "string"),
        "priority": (25, "int32"),
        "overhead": (32, _RESOURCES),
        "topologySpreadConstraints": (33, "repeated TopologySpreadConstraint"),
        "resourceClaims": (39, "repeated PodResourceClaim"),
        "resources": (40, "ResourceRequirements"),
    },
    "Volume": {"name": (1, "string"), "volumeSource": (2, "VolumeSource")},
    "VolumeSource": {
        "persistentVolumeClaim": (10, "PersistentVolumeClaimVolumeSource"),
        "ephemeral": (29, "EphemeralVolumeSource"),
    },
    "PersistentVolumeClaimVolumeSource": {"claimName": (1, "string")},
    "EphemeralVolumeSource": {"volumeClaimTemplate": (1, "PersistentVolumeClaimTemplate")},
    "PersistentVolumeClaimTemplate": {},
    "Container": {
        "name": (1, "string"),
        "ports": (6, "repeated ContainerPort"),
        "resources": (8, "ResourceRequirements"),
        "restartPolicy": (24, "string"),
    },
    "ContainerPort": {
        "hostPort": (2, "int32"),
        "containerPort": (3, "int32"),
        "protocol": (4, "string"),
        "hostIP": (5, "string"),
    },
    "ResourceRequirements": {"limits": (1, _RESOURCES), "requests": (2, _RESOURCES)},
    "Affinity": {
        "nodeAffinity": (1, "NodeAffinity"),
        "podAffinity": (2, "PodAffinity"),
        "podAntiAffinity": (3, "PodAntiAffinity"),
    },
    "NodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": (1, "NodeSelector"),
        "preferredDuringSchedulingIgnoredDuringExecution": (2, "repeated PreferredSchedulingTerm"),
    },
    "NodeSelector": {"nodeSelectorTerms": (1, "repeated NodeSelectorTerm")},
    "NodeSelectorTerm": {"matchExpressions": (1, "repeated Requirement"), "matchFields": (2, "repeated Requirement")},
    "PreferredSchedulingTerm": {"weight": (1, "int32"), "preference": (2, "NodeSelectorTerm")},
    "PodAffinity": _POD_AFFINITY,
    "PodAntiAffinity": _POD_AFFINITY,
    "WeightedPodAffinityTerm": {"weight": (1, "int32"), "podAffinityTerm": (2, "PodAffinityTerm")},
    "PodAffinityTerm": {
        "labelSelector": (1, "LabelSelector"),
        "namespaces": (2, "repeated string"),
        "topologyKey": (3, "string"),
        "namespaceSelector": (4, "LabelSelector"),
        "matchLabelKeys": (5, "repeated string"),
        "mismatchLabelKeys": (6, "repeated string"),
    },
    "Toleration": {"key": (1, "string"), "operator": (2, "string"), "value": (3, "string"), "effect": (4, "string")},
    "TopologySpreadConstraint": {
        "maxSkew": (1, "int32"),
        "topologyKey": (2, "string"),
        "whenUnsatisfiable": (3, "string"),
        "labelSelector": (4, "LabelSelector"),
        "minDomains": (5, "int32"),
        "nodeAffinityPolicy": (6, "string"),
        "nodeTaintsPolicy": (7, "string"),
        "matchLabelKeys": (8, "repeated string"),
    },
    "PodResourceClaim": {"name": (1, "string")},
    "PodStatus": {
        "phase": (1, "string"),
        "conditions": (2, "repeated PodCondition"),
        "startTime": (7, "Time"),
        "containerStatuses": (8, "repeated ContainerStatus"),
        "initContainerStatuses": (10, "repeated ContainerStatus"),
        "nominatedNodeName": (11, "string"),
    },
    "PodCondition": {"type": (1, "string"), "status": (2, "string"), "reason": (5, "string")},
    "ContainerStatus": {
        "name": (1, "string"),
        "allocatedResources": (10, _RESOURCES),
        "resources": (11, "ResourceRequirements"),
    },
    # Any list without its objects.
    "ListHead": {"metadata": (1, "ListMeta")},
    # The envelope of an answer, runtime.Unknown, whose ``raw`` is read as what it holds.
    **{f"{kind}Answer": {"raw": (2, kind)} for kind in ("PodList", "ListHead", "Status")},
}
_SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
_PACKAGE: Final = "spotwright.kubernetes"


def read_answer(kind: str, content: bytes) -> Any:
    """The message of this kind that an API server answers. Raises DecodeError for what is none."""
    try:
        answer: Any = _CLASSES[f"{kind}Answer"].FromString(content[len(PROTOBUF_PREFIX) :])
    except (NoMessage, UnicodeError) as error:  # UnicodeError: of the library where it is not compiled
        raise DecodeError(f"the answer is not a {kind} in Protobuf: {error}") from None
    # A list that is empty has its ListMeta at least.
    if not answer.HasField("raw"):
        raise DecodeError(f"the answer is not a {kind} in Protobuf: there is nothing in its envelope")
    return answer.raw


def read_message(kind: str, content: bytes) -> Any:
    """A message of this kind, as SerializeToString wrote it."""
    return _CLASSES[kind].FromString(content)


def as_json(message: Message) -> JsonObject:
    """The object in the form of the API server's JSON, with the fields above; its times are datetimes.

    Unlike JSON it has fields that are empty: Protobuf leaves out what Kubernetes declares as a pointer, and nothing
    else.
    """
    convert, found = _CONVERT[message.DESCRIPTOR.name], dict[str, Any]()
    for field, value in message.ListFields():
        name = field.name
        if name == "volumeSource":
            found |= as_json(value)
        else:
            found[name] = convert[name](value) if name in convert else value
    return found


def as_time(message: Any) -> datetime | None:
    """A Time; None = the zero time, which JSON has as null."""
    if not message.HasField("seconds"):
        return None
    return datetime.fromtimestamp(min(max(message.seconds, _EARLIEST), _LATEST), UTC)


_EARLIEST, _LATEST = int(EARLIEST_TIME.timestamp()), int(LATEST_TIME.timestamp())


def _converter(kind: str) -> Callable[[Any], Any] | None:
    """What makes JSON of a field's value; None = the value is JSON."""
    modifier, _, name = kind.rpartition(" ")
    if modifier == "repeated":
        return list if name in _SCALARS else lambda messages: [as_json(message) for message in messages]
    match name:
        case "map<string>":
            return dict
        case "map<Quantity>":
            return lambda amounts: {key: amount.string for key, amount in amounts.items()}
        case "Time":
            return as_time
    return None if name in _SCALARS else as_json


def _describe_message(name: str, fields: _Fields) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for field, (number, kind) in fields.items():
        modifier, _, type_name = kind.rpartition(" ")
        described = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if modifier == "repeated":
            described.label = FieldDescriptorProto.LABEL_REPEATED
        if type_name.startswith("map<"):
            described.label = FieldDescriptorProto.LABEL_REPEATED
            entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
            entry.options.map_entry = True
            for part, (at, part_type) in {"key": (1, "string"), "value": (2, type_name[4:-1])}.items():
                _set_type(entry.field.add(name=part, number=at, label=FieldDescriptorProto.LABEL_OPTIONAL), part_type)
            type_name = f"{name}.{entry.name}"
        _set_type(described, type_name)
    return message


def _set_type(field: FieldDescriptorProto, type_name: str) -> None:
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{type_name}"


def _message_classes() -> dict[str, type[Message]]:
    # Kubernetes' messages are proto2, which gives a text that is not UTF-8 as bytes; an edition refuses it.
    file = FileDescriptorProto(
        name="spotwright/kubernetes.proto", package=_PACKAGE, syntax="editions", edition=Edition.EDITION_2023
    )
    file.message_type.extend(_describe_message(name, fields) for name, fields in _MESSAGES.items())
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES: Final = _message_classes()
_CONVERT: Final = {
    name: {field: convert for field, (_, kind) in fields.items() if (convert := _converter(kind)) is not None}
    for name, fields in _MESSAGES.items()
}
