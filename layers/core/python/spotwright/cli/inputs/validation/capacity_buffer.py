"""The schema of CapacityBuffers, whose definition is the autoscaling SIG's and not installed by Spotwright.

Source: https://github.com/kubernetes/autoscaler, ``cluster-autoscaler/apis/config/crd``, v1beta1, as Karpenter v1.14
ships it.
"""

from spotwright.manifests.crds.openapi import Schema, integer, object_with, rule, string
from spotwright.manifests.crds.shared_fields import conditions, resource_list


def capacity_buffer_schema() -> Schema:
    """Of a whole object."""
    template = object_with("", {"name": string("", minLength=1)}, required=["name"])
    count = integer("", 0, 2**31 - 1)
    scalable = {"apiGroup": string(""), "kind": string("", minLength=1), "name": string("", minLength=1)}
    spec = object_with(
        "",
        {
            "podTemplateRef": template,
            "scalableRef": object_with("", scalable, required=["kind", "name"]),
            "replicas": count,
            "percentage": count,
            "limits": resource_list(""),
            "provisioningStrategy": string("", default="buffer.x-k8s.io/active-capacity"),
        },
        rules=[
            rule(
                "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
                "podTemplateRef needs replicas or limits",
            ),
            rule(
                "!(has(self.podTemplateRef) && has(self.scalableRef))",
                "podTemplateRef and scalableRef exclude each other",
            ),
        ],
    )
    status = {
        "podTemplateRef": template,
        "podTemplateGeneration": integer("", 0),
        "replicas": count,
        "provisioningStrategy": string(""),
        "conditions": conditions(),
    }
    properties = {
        "apiVersion": string(""),
        "kind": string(""),
        "metadata": {"type": "object"},
        "spec": spec,
        "status": object_with("", status),
    }
    return object_with("", properties, required=["spec"])
