"""karpenter.sh/v1 NodeClaim: a node from its request to its termination.

Source of fields and defaults: Karpenter v1.14 ``pkg/apis/v1/nodeclaim.go``.
"""

from spotwright.manifests.crds.openapi import (
    Schema,
    custom_resource_definition,
    date_time,
    object_with,
    printer_column,
    rule,
    string,
)
from spotwright.manifests.crds.shared_fields import READY_STATUS_PATH, conditions, node_spec, resource_list
from spotwright.model import labels


def nodeclaim() -> Schema:
    return custom_resource_definition(
        group="karpenter.sh",
        kind="NodeClaim",
        description="One node that was promised: what it must be, and how far it has come.",
        spec=_spec(),
        status=_status(),
        columns=[
            printer_column("Type", _label(labels.INSTANCE_TYPE)),
            printer_column("Capacity", _label(labels.CAPACITY_TYPE)),
            printer_column("Zone", _label(labels.ZONE)),
            printer_column("Node", ".status.nodeName"),
            printer_column("Ready", READY_STATUS_PATH),
            printer_column("Age", ".metadata.creationTimestamp", "date"),
            printer_column("ImageID", ".status.imageID", priority=1),
            printer_column("ID", ".status.providerID", priority=1),
            printer_column("NodePool", _label(labels.NODEPOOL), priority=1),
            printer_column("NodeClass", ".spec.nodeClassRef.name", priority=1),
            printer_column("Drifted", READY_STATUS_PATH.replace("Ready", "Drifted"), priority=1),
        ],
    )


def _label(key: str) -> str:
    escaped = key.replace(".", r"\.")
    return f".metadata.labels.{escaped}"


def _spec() -> Schema:
    resources = object_with(
        "What the pods that this node is for need together.",
        {"requests": resource_list("The least that the node must offer.")},
    )
    return object_with(
        "What the node must be; fixed once it is written.",
        node_spec([labels.CAPACITY_TYPE, labels.NODEPOOL]) | {"resources": resources},
        required=["nodeClassRef", "requirements"],
        rules=[rule("self == oldSelf", "spec is immutable")],
    )


def _status() -> Schema:
    return object_with(
        "How far the node has come.",
        {
            "nodeName": string("Name of the Node that joined."),
            "providerID": string("The instance: aws:///<zone>/<instance id>."),
            "imageID": string("The AMI that the instance was started from."),
            "capacity": resource_list("What the node has."),
            "allocatable": resource_list("What pods may use of it."),
            "conditions": conditions(),
            "lastPodEventTime": date_time("When a pod last came to or went from this node."),
        },
    )
