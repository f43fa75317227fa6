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
        description="Which nodes may be launched for pods, how many, and when they may be disrupted.",
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
        "Which nodes the pool launches, and how it disrupts them.",
        {
            "template": _template(),
            "disruption": _disruption(),
            "limits": resource_list(
                "The most that the pool's nodes may have together; nodes limits their number; unset = unlimited."
            ),
            "weight": integer("Pools of greater weight are preferred; unset = 0.", 1, 100),
            "replicas": integer("Keeps exactly this many nodes, whatever pods need (a static pool).", 0),
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
        "The template of the pool's nodes; after a change existing nodes are drifted.",
        {
            "metadata": object_with(
                "Labels and annotations of the nodes.",
                {
                    "labels": node_labels([labels.CAPACITY_TYPE]),
                    "annotations": map_of("Annotations of the nodes of this pool.", string("")),
                },
            ),
            "spec": object_with(
                "What the nodes must be.",
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
        "When nodes may be disrupted: removed or replaced to save money or after a change.",
        {
            "consolidateAfter": string(
                "How long a node must be without pod events before it may be consolidated, or Never.",
                pattern=DURATION_OR_NEVER,
                default="0s",
            ),
            "consolidationPolicy": enum(
                "Which nodes may be consolidated.",
                "WhenEmpty",
                "WhenEmptyOrUnderutilized",
                "Balanced",
                default="WhenEmptyOrUnderutilized",
            ),
            "budgets": array(
                "How many nodes may be disrupted at once; the strictest active budget holds.",
                _budget(),
                maxItems=50,
                default=[{"nodes": "10%"}],
            ),
        },
        default={"consolidateAfter": "0s"},
    )


def _budget() -> Schema:
    return object_with(
        "Limits how many nodes are disrupted at once, always or in a time window (UTC).",
        {
            "nodes": string(
                "A number of nodes, or a percentage (rounded up).",
                pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$",
                default="10%",
            ),
            "reasons": array(
                "Reasons for disruption that the budget limits; unset = all.",
                enum("", "Underutilized", "Empty", "Drifted"),
                kind="set",
                maxItems=50,
            ),
            "schedule": string(
                "When the time window begins: five cron fields, or a macro such as @daily.",
                pattern=rf"^(@({_NICKNAMES})|\S+(\s+\S+){{4}})$",
            ),
            "duration": string(
                "How long the time window lasts, in hours and minutes.",
                pattern=r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$",
            ),
        },
        required=["nodes"],
        rules=[rule("has(self.schedule) == has(self.duration)", "schedule and duration go together")],
    )


def _status() -> Schema:
    return object_with(
        "The pool's nodes and conditions.",
        {
            "resources": resource_list("The resources of the pool's nodes together."),
            "nodes": integer("How many nodes the pool has.", 0, default=0),
            "nodeClassObservedGeneration": integer("Generation of the EC2NodeClass at the last registration.", 0),
            "conditions": conditions(),
        },
    )
