"""The definition of CapacityBuffers, which is the autoscaling SIG's and not installed by us: its fields and rules.

Source: https://github.com/kubernetes/autoscaler, ``cluster-autoscaler/apis/config/crd``, v1beta1, as Karpenter 1.14
ships it. What is not named here is pruned, as there.
"""

from typing import Any

from spotwright.cli.inputs.validation.capacity_buffer import capacity_buffer_schema

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
                "schema": {"openAPIV3Schema": capacity_buffer_schema()},
            }
        ],
    },
}
