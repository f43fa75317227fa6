"""The definition of CapacityBuffers, which is the autoscaling SIG's and not installed by us: its fields and rules.

Source: https://github.com/kubernetes/autoscaler, ``cluster-autoscaler/apis/config/crd``, v1beta1, as Karpenter 1.14
ships it. What is not named here is pruned, as there.
"""

from typing import Any

type Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
GENERATION: Schema = {"type": "integer", "format": "int64", "minimum": 0}


def _object(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | ({"required": list(required)} if required else {})


_TEMPLATE = _object(("name",), name=NAME)
_CONDITION = _object(
    ("type", "status", "reason", "message", "lastTransitionTime"),
    type={"type": "string", "maxLength": 316},
    status={"type": "string", "enum": ["True", "False", "Unknown"]},
    reason={"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    message={"type": "string", "maxLength": 32768},
    lastTransitionTime={"type": "string", "format": "date-time"},
    observedGeneration=GENERATION,
)
_SPEC = _object(
    podTemplateRef=_TEMPLATE,
    scalableRef=_object(("kind", "name"), apiGroup=TEXT, kind=NAME, name=NAME),
    replicas=COUNT,
    percentage=COUNT,
    limits={"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
    provisioningStrategy={"type": "string", "default": "buffer.x-k8s.io/active-capacity"},
) | {
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
            "message": "podTemplateRef needs replicas or limits",
        },
        {
            "rule": "!(has(self.podTemplateRef) && has(self.scalableRef))",
            "message": "podTemplateRef and scalableRef exclude each other",
        },
    ]
}
_STATUS = _object(
    podTemplateRef=_TEMPLATE,
    podTemplateGeneration=GENERATION,
    replicas=COUNT,
    provisioningStrategy=TEXT,
    conditions={
        "type": "array",
        "items": _CONDITION,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    },
)
SERVED_AT = "autoscaling.x-k8s.io/v1beta1/capacitybuffers"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "capacitybuffers.autoscaling.x-k8s.io"},
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "names": {"kind": "CapacityBuffer", "plural": "capacitybuffers", "singular": "capacitybuffer"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": _object(("spec",), spec=_SPEC, status=_STATUS)},
            }
        ],
    },
}
