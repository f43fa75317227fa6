"""karpenter.sh/v1 NodeClaim: one node that was promised, from launch to termination.

Source of fields and defaults: Karpenter v1.14 ``pkg/apis/v1/nodeclaim.go``.
"""

from spotwright.manifests.schema import Schema, column, definition, fields, moment, rule, text
from spotwright.manifests.shapes import READY, conditions, node_spec, resource_list
from spotwright.model import labels


def node_claim() -> Schema:
    return definition(
        group="karpenter.sh",
        kind="NodeClaim",
        description="One node that was promised: what it must be, and how far it has come.",
        spec=_spec(),
        status=_status(),
        columns=[
            column("Type", _label(labels.INSTANCE_TYPE)),
            column("Capacity", _label(labels.CAPACITY_TYPE)),
            column("Zone", _label(labels.ZONE)),
            column("Node", ".status.nodeName"),
            column("Ready", READY),
            column("Age", ".metadata.creationTimestamp", "date"),
            column("ImageID", ".status.imageID", priority=1),
            column("ID", ".status.providerID", priority=1),
            column("NodePool", _label(labels.NODEPOOL), priority=1),
            column("NodeClass", ".spec.nodeClassRef.name", priority=1),
            column("Drifted", READY.replace("Ready", "Drifted"), priority=1),
        ],
    )


def _label(key: str) -> str:
    escaped = key.replace(".", r"\.")
    return f".metadata.labels.{escaped}"


def _spec() -> Schema:
    resources = fields(
        "What the pods that this node is for need together.",
        {"requests": resource_list("The least that the node must offer.")},
    )
    return fields(
        "What the node must be; fixed once it is written.",
        node_spec([labels.CAPACITY_TYPE, labels.NODEPOOL]) | {"resources": resources},
        required=["nodeClassRef", "requirements"],
        rules=[rule("self == oldSelf", "spec is immutable")],
    )


def _status() -> Schema:
    return fields(
        "How far the node has come.",
        {
            "nodeName": text("Name of the Node that joined."),
            "providerID": text("The instance: aws:///<zone>/<instance id>."),
            "imageID": text("The AMI that the instance was started from."),
            "capacity": resource_list("What the node has."),
            "allocatable": resource_list("What pods may use of it."),
            "conditions": conditions(),
            "lastPodEventTime": moment("When a pod last came to or went from this node."),
        },
    )
