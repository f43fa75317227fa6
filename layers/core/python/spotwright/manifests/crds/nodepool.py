"""karpenter.sh/v1 NodePool: which nodes may be launched, how many, and when they may be disrupted.

Source of fields, defaults and limits: Karpenter v1.14 ``pkg/apis/v1/nodepool.go``; ``consolidateAfter`` is optional
as on Karpenter's main branch.
"""

from spotwright.manifests.crds.openapi import (
    Schema,
    array,
    custom_resource_definition,
    enum,
    integer,
    map_of,
    object_with,
    printer_column,
    rule,
    string,
)
from spotwright.manifests.crds.shared_fields import (
    DURATION_OR_NEVER,
    READY_STATUS_PATH,
    conditions,
    node_labels,
    node_spec,
    resource_list,
)
from spotwright.model import labels

_NICKNAMES = "annually|yearly|monthly|weekly|daily|midnight|hourly"


def nodepool() -> Schema:
    return custom_resource_definition(
        group="karpenter.sh",
        kind="NodePool",
        description="Which nodes may be made for pods, how many, and when they may be disrupted.",
        spec=_spec(),
        status=_status(),
        scale={"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
        columns=[
            printer_column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
            printer_column("Nodes", ".status.nodes"),
            printer_column("Ready", READY_STATUS_PATH),
            printer_column("Age", ".metadata.creationTimestamp", "date"),
            printer_column("Weight", ".spec.weight", "integer", 1),
            printer_column("CPU", ".status.resources.cpu", priority=1),
            printer_column("Memory", ".status.resources.memory", priority=1),
        ],
    )


def _spec() -> Schema:
    return object_with(
        "What the user wants.",
        {
            "template": _template(),
            "disruption": _disruption(),
            "limits": resource_list("What the pool's nodes may add up to, nodes included; unset = unlimited."),
            "weight": integer("Pools of greater weight are tried first; unset = 0.", 1, 100),
            "replicas": integer("Keep exactly this many nodes, whatever pods need (a static pool).", 0),
        },
        required=["template"],
        rules=[
            rule(
                "has(self.replicas) == has(oldSelf.replicas)",
                "replicas cannot be added to or removed from an existing NodePool",
            ),
            rule(
                "!has(self.replicas) || !has(self.limits) || self.limits.size() == 0"
                " || (self.limits.size() == 1 && 'nodes' in self.limits)",
                "a NodePool with replicas may limit nodes only",
            ),
            rule("!has(self.replicas) || !has(self.weight)", "a NodePool with replicas takes no weight"),
        ],
    )


def _template() -> Schema:
    return object_with(
        "What every node of this pool looks like; a change makes existing nodes drift.",
        {
            "metadata": object_with(
                "",
                {
                    "labels": node_labels([labels.CAPACITY_TYPE]),
                    "annotations": map_of("Annotations of every node of this pool.", string("")),
                },
            ),
            "spec": object_with(
                "",
                node_spec(
                    [labels.CAPACITY_TYPE],
                    [
                        rule("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
                        rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
                    ],
                ),
                required=["nodeClassRef", "requirements"],
            ),
        },
        required=["spec"],
    )


def _disruption() -> Schema:
    return object_with(
        "When nodes may be removed or replaced to save money or to catch up with a change.",
        {
            "consolidateAfter": string(
                "How long no pod must have come or gone before a node is considered, or Never.",
                pattern=DURATION_OR_NEVER,
                default="0s",
            ),
            "consolidationPolicy": enum(
                "Which nodes are considered.",
                "WhenEmpty",
                "WhenEmptyOrUnderutilized",
                "Balanced",
                default="WhenEmptyOrUnderutilized",
            ),
            "budgets": array(
                "How many nodes may be disrupted at once; the strictest active one holds.",
                _budget(),
                maxItems=50,
                default=[{"nodes": "10%"}],
            ),
        },
        default={"consolidateAfter": "0s"},
    )


def _budget() -> Schema:
    return object_with(
        "A limit on disruptions at once, always or in a window of time (UTC).",
        {
            "nodes": string(
                "A number of nodes, or a percentage (rounded up).",
                pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$",
                default="10%",
            ),
            "reasons": array(
                "Which disruptions are limited; unset = all.",
                enum("", "Underutilized", "Empty", "Drifted"),
                kind="set",
                maxItems=50,
            ),
            "schedule": string(
                "When the window opens: five cron fields, or a nickname such as @daily.",
                pattern=rf"^(@({_NICKNAMES})|\S+(\s+\S+){{4}})$",
            ),
            "duration": string(
                "How long the window stays open, in hours and minutes.",
                pattern=r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$",
            ),
        },
        required=["nodes"],
        rules=[rule("has(self.schedule) == has(self.duration)", "schedule and duration go together")],
    )


def _status() -> Schema:
    return object_with(
        "What is the case.",
        {
            "resources": resource_list("What the pool's nodes add up to."),
            "nodes": integer("How many nodes the pool has.", 0, default=0),
            "nodeClassObservedGeneration": integer("The class's generation of the last registration.", 0),
            "conditions": conditions(),
        },
    )
