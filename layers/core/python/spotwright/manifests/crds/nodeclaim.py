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
        description="A node: what it must be, and how far its launch has come.",
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
        "The resources that the node must offer.",
        {"requests": resource_list("The sum of the requests of the pods that the node is for.")},
    )
    return object_with(
        "What the node must be; it cannot be changed.",
        node_spec([labels.CAPACITY_TYPE, labels.NODEPOOL]) | {"resources": resources},
        required=["nodeClassRef", "requirements"],
        rules=[rule("self == oldSelf", "spec is immutable")],
    )


def _status() -> Schema:
    return object_with(
        "The instance and the Node of this NodeClaim.",
        {
            "nodeName": string("Name of the Node."),
            "providerID": string("The instance: aws:///<zone>/<instance id>."),
            "imageID": string("The AMI of the instance."),
            "capacity": resource_list("The resources of the node."),
            "allocatable": resource_list("The resources that pods can use."),
            "conditions": conditions(),
            "lastPodEventTime": date_time("When a pod was last bound to this node, finished, or was deleted."),
        },
    )
