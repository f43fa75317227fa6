"""karpenter.sh/v1alpha1 NodeOverlay: prices and capacity of instance types that a user states.

Source of fields and limits: Karpenter v1.14 ``pkg/apis/v1alpha1/nodeoverlay.go``. It has an effect only while the
feature gate NodeOverlay is on.
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
        description="Changes the prices and the capacity of instance types when nodes are planned.",
        spec=_spec(),
        status=object_with("Whether the overlay is valid and applied.", {"conditions": conditions()}),
        short_names=["overlays"],
        columns=[
            printer_column("Ready", READY_STATUS_PATH),
            printer_column("Age", ".metadata.creationTimestamp", "date"),
            printer_column("Weight", ".spec.weight", "integer", 1),
        ],
    )


def _spec() -> Schema:
    return object_with(
        "The offerings that the overlay applies to, and how it changes them.",
        {
            "requirements": requirements([labels.CAPACITY_TYPE, labels.NODEPOOL]),
            "price": string("The price in USD per hour; replaces the known price.", pattern=r"^\d+(\.\d+)?$"),
            "priceAdjustment": string(
                "Changes the known price by USD per hour (+0.05, -0.05) or a percentage (+10%, -10%; at least -100%).",
                pattern=r"^([+-](\d+(\.\d+)?|\.\d+)|\+(\d+(\.\d+)?|\.\d+)%|-(\d{1,2}(\.\d+)?|\.\d+|100)%)$",
            ),
            "capacity": resource_list(
                "Extended resources that nodes of these offerings will have, beside those of the instance type.",
                rules=[
                    rule(
                        "self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
                        "cpu, memory, ephemeral-storage and pods are the instance type's own",
                    )
                ],
            ),
            "weight": integer(
                "Of overlays that apply to the same offering, the one of greatest weight wins.", 1, 10000
            ),
        },
        required=["requirements"],
        rules=[rule("!has(self.price) || !has(self.priceAdjustment)", "price and priceAdjustment exclude each other")],
    )
