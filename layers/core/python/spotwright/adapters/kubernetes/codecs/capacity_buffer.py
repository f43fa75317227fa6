"""CapacityBuffers into the model, with the pod template and the scale they refer to.

What the definition's own rules refuse is refused here as well: an older definition may not know them. A buffer that
means nothing says so in ``fault`` and ``problem``, and stops no other.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from spotwright.adapters.kubernetes.codecs.objects import (
    DECODE_ERRORS,
    Json,
    decode_conditions,
    decode_metadata,
    describe_error,
    validate,
)
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.model import quantity, resources
from spotwright.model.karpenter.capacity_buffer import ACTIVE_CAPACITY, CapacityBuffer, CapacityBufferStatus
from spotwright.model.kubernetes.pod import Pod

# (kind, namespace, name) → the object, None when there is none.
type ObjectLookup = Callable[[str, str, str], Json | None]

RESOLUTION_FAILED: Final = "ResolutionFailed"
SCALABLE_KINDS: Final = ("Deployment", "StatefulSet", "ReplicaSet")


class _Fault(ValueError):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def decode_capacity_buffer(obj: Json, lookup: ObjectLookup) -> CapacityBuffer:
    about, spec = validate(decode_metadata(obj)), obj.get("spec")
    blank = CapacityBuffer(about)
    try:
        blank = validate(CapacityBuffer(about, status=_status(obj), conditions=decode_conditions(obj)))
        strategy = (spec or {}).get("provisioningStrategy") or ACTIVE_CAPACITY
        if strategy != ACTIVE_CAPACITY:
            return validate(msgspec.structs.replace(blank, provisioning_strategy=strategy))
        return validate(_resolved(blank, spec or {}, lookup))
    except _Fault as fault:
        return msgspec.structs.replace(blank, not_ready_reason=fault.reason, not_ready_message=str(fault))
    except quantity.QuantityError as error:
        return msgspec.structs.replace(
            blank, not_ready_reason=RESOLUTION_FAILED, not_ready_message=f"spec.limits: {error}"
        )
    except DECODE_ERRORS as error:
        return msgspec.structs.replace(
            blank, not_ready_reason=RESOLUTION_FAILED, not_ready_message=f"spec: {describe_error(error)}"
        )


def _status(obj: Json) -> CapacityBufferStatus:
    given = obj.get("status") or {}
    return CapacityBufferStatus(
        replicas=given.get("replicas"),
        pod_template_ref=(given.get("podTemplateRef") or {}).get("name") or "",
        pod_template_generation=given.get("podTemplateGeneration") or 0,
        provisioning_strategy=given.get("provisioningStrategy") or "",
    )


def _resolved(blank: CapacityBuffer, spec: Json, lookup: ObjectLookup) -> CapacityBuffer:
    _check(spec)
    about, template, scale, name, generation = blank.metadata, dict[str, Any](), None, "", 0
    if ref := spec.get("podTemplateRef"):
        name = ref["name"]
        found = lookup("PodTemplate", about.namespace, name)
        if found is None:
            raise _Fault("PodTemplateNotFound", f"PodTemplate {about.namespace}/{name} does not exist")
        template = found.get("template") or {}
        generation = decode_metadata(found).generation
    else:
        template, scale = _scalable(about.namespace, spec["scalableRef"], lookup)
    return msgspec.structs.replace(
        blank,
        template_pod=_pod(about.namespace, about.name, template),
        scalable_replicas=scale,
        replicas=spec.get("replicas"),
        percentage=spec.get("percentage"),
        limits=resources.parse(spec.get("limits") or {}),
        pod_template_ref=name,
        pod_template_generation=generation,
    )


def _check(spec: Json) -> None:
    template, scalable = spec.get("podTemplateRef"), spec.get("scalableRef")
    if bool(template) == bool(scalable):
        raise _Fault(RESOLUTION_FAILED, "spec: exactly one of podTemplateRef and scalableRef is needed")
    if template and spec.get("replicas") is None and not spec.get("limits"):
        raise _Fault(RESOLUTION_FAILED, "spec: podTemplateRef needs replicas or limits beside it")
    for name in ("replicas", "percentage"):
        value = spec.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise _Fault(RESOLUTION_FAILED, f"spec.{name}: {value!r} is not a whole number from 0")


def _scalable(namespace: str, ref: Json, lookup: ObjectLookup) -> tuple[dict[str, Any], int]:
    kind, name = ref["kind"], ref["name"]
    if kind not in SCALABLE_KINDS or ref.get("apiGroup", "apps") != "apps":
        given = f"{kind} of {ref.get('apiGroup', '') or 'the core group'}"
        raise _Fault(RESOLUTION_FAILED, f"spec.scalableRef: {given} is not one of {', '.join(SCALABLE_KINDS)} of apps")
    found = lookup(kind, namespace, name)
    if found is None:
        raise _Fault("ScalableRefNotFound", f"{kind} {namespace}/{name} does not exist")
    spec = found.get("spec") or {}
    replicas = spec.get("replicas")
    return spec.get("template") or {}, 1 if replicas is None else int(replicas)


def _pod(namespace: str, name: str, template: Json) -> Pod:
    """A pod of the template, as it would be made in the buffer's namespace."""
    about = template.get("metadata") or {}
    kept = {key: about.get(key) or {} for key in ("labels", "annotations")}
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key != "nodeName"}
    pod = decode_pod({"metadata": kept | {"name": name, "namespace": namespace}, "spec": spec})
    if pod.read_error:
        raise _Fault(RESOLUTION_FAILED, f"its pod template cannot be read: {pod.read_error}")
    return pod
