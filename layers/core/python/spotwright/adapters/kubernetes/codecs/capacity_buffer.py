"""CapacityBuffers, from JSON into the model, with the pod template and the replicas that they refer to.

The CRD's validation rules are checked here too, since an older CRD may not have them. A buffer that is not ready says
why in ``not_ready_reason`` and ``not_ready_message``.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, describe_error
from spotwright.adapters.kubernetes.codecs.objects import Json, decode_conditions, decode_metadata, validate
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.model import quantity, resources
from spotwright.model.karpenter.capacity_buffer import ACTIVE_CAPACITY, CapacityBuffer, CapacityBufferStatus
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.quoting import quote

# (kind, namespace, name) → the object, None when there is none.
type ObjectLookup = Callable[[str, str, str], Json | None]

RESOLUTION_FAILED: Final = "ResolutionFailed"
SCALABLE_KINDS: Final = ("Deployment", "StatefulSet", "ReplicaSet")


class _NotReady(ValueError):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def decode_capacity_buffer(obj: Json, lookup: ObjectLookup) -> CapacityBuffer:
    metadata, spec = validate(decode_metadata(obj)), obj.get("spec")
    buffer = CapacityBuffer(metadata)
    try:
        buffer = validate(CapacityBuffer(metadata, status=_status(obj), conditions=decode_conditions(obj)))
        strategy = (spec or {}).get("provisioningStrategy") or ACTIVE_CAPACITY
        if strategy != ACTIVE_CAPACITY:
            return validate(msgspec.structs.replace(buffer, provisioning_strategy=strategy))
        return validate(_resolve_references(buffer, spec or {}, lookup))
    except _NotReady as error:
        return msgspec.structs.replace(buffer, not_ready_reason=error.reason, not_ready_message=str(error))
    except quantity.QuantityError as error:
        return msgspec.structs.replace(
            buffer, not_ready_reason=RESOLUTION_FAILED, not_ready_message=f"spec.limits: {error}"
        )
    except DECODE_ERRORS as error:
        return msgspec.structs.replace(
            buffer, not_ready_reason=RESOLUTION_FAILED, not_ready_message=f"spec: {describe_error(error)}"
        )


def _status(obj: Json) -> CapacityBufferStatus:
    status = obj.get("status") or {}
    return CapacityBufferStatus(
        replicas=status.get("replicas"),
        pod_template_ref=(status.get("podTemplateRef") or {}).get("name") or "",
        pod_template_generation=status.get("podTemplateGeneration") or 0,
        provisioning_strategy=status.get("provisioningStrategy") or "",
    )


def _resolve_references(buffer: CapacityBuffer, spec: Json, lookup: ObjectLookup) -> CapacityBuffer:
    _check_spec(spec)
    metadata, template, scale, name, generation = buffer.metadata, dict[str, Any](), None, "", 0
    if ref := spec.get("podTemplateRef"):
        name = ref["name"]
        template_object = lookup("PodTemplate", metadata.namespace, name)
        if template_object is None:
            raise _NotReady("PodTemplateNotFound", f"PodTemplate {metadata.namespace}/{name} does not exist")
        template = template_object.get("template") or {}
        generation = decode_metadata(template_object).generation
    else:
        template, scale = _template_and_replicas(metadata.namespace, spec["scalableRef"], lookup)
    return msgspec.structs.replace(
        buffer,
        template_pod=_decode_template_pod(metadata.namespace, metadata.name, template),
        scalable_replicas=scale,
        replicas=spec.get("replicas"),
        percentage=spec.get("percentage"),
        limits=resources.parse(spec.get("limits") or {}),
        pod_template_ref=name,
        pod_template_generation=generation,
    )


def _check_spec(spec: Json) -> None:
    template, scalable = spec.get("podTemplateRef"), spec.get("scalableRef")
    if bool(template) == bool(scalable):
        raise _NotReady(RESOLUTION_FAILED, "spec: exactly one of podTemplateRef and scalableRef is needed")
    if template and spec.get("replicas") is None and not spec.get("limits"):
        raise _NotReady(RESOLUTION_FAILED, "spec: podTemplateRef needs replicas or limits beside it")
    for name in ("replicas", "percentage"):
        value = spec.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise _NotReady(RESOLUTION_FAILED, f"spec.{name}: {quote(value)} is not a whole number from 0")


def _template_and_replicas(namespace: str, ref: Json, lookup: ObjectLookup) -> tuple[dict[str, Any], int]:
    kind, name = ref["kind"], ref["name"]
    if kind not in SCALABLE_KINDS or ref.get("apiGroup", "apps") != "apps":
        referenced = f"{kind} of {ref.get('apiGroup', '') or 'the core group'}"
        raise _NotReady(
            RESOLUTION_FAILED, f"spec.scalableRef: {referenced} is not one of {', '.join(SCALABLE_KINDS)} of apps"
        )
    workload = lookup(kind, namespace, name)
    if workload is None:
        raise _NotReady("ScalableRefNotFound", f"{kind} {namespace}/{name} does not exist")
    spec = workload.get("spec") or {}
    replicas = spec.get("replicas")
    return spec.get("template") or {}, 1 if replicas is None else int(replicas)


def _decode_template_pod(namespace: str, name: str, template: Json) -> Pod:
    """A pod of the template, in the namespace of the buffer."""
    metadata = template.get("metadata") or {}
    pod_metadata = {key: metadata.get(key) or {} for key in ("labels", "annotations")}
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key != "nodeName"}
    pod = decode_pod({"metadata": pod_metadata | {"name": name, "namespace": namespace}, "spec": spec})
    if pod.read_error:
        raise _NotReady(RESOLUTION_FAILED, f"its pod template cannot be read: {pod.read_error}")
    return pod
