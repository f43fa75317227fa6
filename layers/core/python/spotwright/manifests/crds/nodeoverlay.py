"""karpenter.sh/v1alpha1 NodeOverlay: prices and capacity of instance types that a user states.

Source of fields and limits: Karpenter v1.14 ``pkg/apis/v1alpha1/nodeoverlay.go``. It has an effect only while the
feature gate NodeOverlay is on. Every percentage is allowed, since no price falls below zero.
"""

from spotwright.manifests.crds.openapi import (
    Schema,
    custom_resource_definition,
    integer,
    object_with,
    printer_column,
    rule,
    string,
)
from spotwright.manifests.crds.shared_fields import READY_STATUS_PATH, conditions, requirements, resource_list
from spotwright.model import labels


def nodeoverlay() -> Schema:
    return custom_resource_definition(
        group="karpenter.sh",
        kind="NodeOverlay",
        version="v1alpha1",
        description="Changes what instance types are taken to cost and to hold when nodes are decided.",
        spec=_spec(),
        status=object_with("Whether it counts.", {"conditions": conditions()}),
        short_names=["overlays"],
        columns=[
            printer_column("Ready", READY_STATUS_PATH),
            printer_column("Age", ".metadata.creationTimestamp", "date"),
            printer_column("Weight", ".spec.weight", "integer", 1),
        ],
    )


def _spec() -> Schema:
    return object_with(
        "Which offerings it is about, and what it says of them.",
        {
            "requirements": requirements([labels.CAPACITY_TYPE, labels.NODEPOOL]),
            "price": string("USD per hour, in place of the known price.", pattern=r"^\d+(\.\d+)?$"),
            "priceAdjustment": string(
                "Added to the known price: USD per hour (+0.05, -0.05) or a share of it (+10%, -10%).",
                pattern=r"^[+-](\d+(\.\d+)?|\.\d+)%?$",
            ),
            "capacity": resource_list(
                "Resources that nodes bought as such an offering will have besides what the type is known to have.",
                rules=[
                    rule(
                        "self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
                        "cpu, memory, ephemeral-storage and pods are the instance type's own",
                    )
                ],
            ),
            "weight": integer("Of several that say something of one offering the heaviest counts.", 1, 10000),
        },
        required=["requirements"],
        rules=[rule("!has(self.price) || !has(self.priceAdjustment)", "price and priceAdjustment exclude each other")],
    )
