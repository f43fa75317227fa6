"""karpenter.sh/v1 NodePool: which nodes may be made, how many, and when they may be disrupted.

Source of fields, defaults and limits: Karpenter v1.14 ``pkg/apis/v1/nodepool.go``; ``consolidateAfter`` is optional
as on Karpenter's main branch.
"""

from spotwright.manifests.schema import (
    Schema,
    choice,
    column,
    definition,
    fields,
    mapping,
    rule,
    several,
    text,
    whole,
)
from spotwright.manifests.shapes import (
    DURATION_OR_NEVER,
    READY,
    conditions,
    node_labels,
    node_spec,
    resource_list,
)
from spotwright.model import labels

_NICKNAMES = "annually|yearly|monthly|weekly|daily|midnight|hourly"


def node_pool() -> Schema:
    return definition(
        group="karpenter.sh",
        kind="NodePool",
        description="Which nodes may be made for pods, how many, and when they may be disrupted.",
        spec=_spec(),
        status=_status(),
        scale={"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
        columns=[
            column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
            column("Nodes", ".status.nodes"),
            column("Ready", READY),
            column("Age", ".metadata.creationTimestamp", "date"),
            column("Weight", ".spec.weight", "integer", 1),
            column("CPU", ".status.resources.cpu", priority=1),
            column("Memory", ".status.resources.memory", priority=1),
        ],
    )


def _spec() -> Schema:
    return fields(
        "What the user wants.",
        {
            "template": _template(),
            "disruption": _disruption(),
            "limits": resource_list("What the pool's nodes may add up to, nodes included; unset = unlimited."),
            "weight": whole("Pools of greater weight are tried first; unset = 0.", 1, 100),
            "replicas": whole("Keep exactly this many nodes, whatever pods need (a static pool).", 0),
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
    return fields(
        "What every node of this pool looks like; a change makes existing nodes drift.",
        {
            "metadata": fields(
                "",
                {
                    "labels": node_labels([labels.CAPACITY_TYPE]),
                    "annotations": mapping("Annotations of every node of this pool.", text("")),
                },
            ),
            "spec": fields(
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
    return fields(
        "When nodes may be removed or replaced to save money or to catch up with a change.",
        {
            "consolidateAfter": text(
                "How long no pod must have come or gone before a node is considered, or Never.",
                pattern=DURATION_OR_NEVER,
                default="0s",
            ),
            "consolidationPolicy": choice(
                "Which nodes are considered.",
                "WhenEmpty",
                "WhenEmptyOrUnderutilized",
                "Balanced",
                default="WhenEmptyOrUnderutilized",
            ),
            "budgets": several(
                "How many nodes may be disrupted at once; the strictest active one holds.",
                _budget(),
                maxItems=50,
                default=[{"nodes": "10%"}],
            ),
        },
        default={"consolidateAfter": "0s"},
    )


def _budget() -> Schema:
    return fields(
        "A limit on disruptions at once, always or in a window of time (UTC).",
        {
            "nodes": text(
                "A number of nodes, or a percentage (rounded up).",
                pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$",
                default="10%",
            ),
            "reasons": several(
                "Which disruptions are limited; unset = all.",
                choice("", "Underutilized", "Empty", "Drifted"),
                kind="set",
                maxItems=50,
            ),
            "schedule": text(
                "When the window opens: five cron fields, or a nickname such as @daily.",
                pattern=rf"^(@({_NICKNAMES})|\S+(\s+\S+){{4}})$",
            ),
            "duration": text(
                "How long the window stays open, in hours and minutes.",
                pattern=r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$",
            ),
        },
        required=["nodes"],
        rules=[rule("has(self.schedule) == has(self.duration)", "schedule and duration go together")],
    )


def _status() -> Schema:
    return fields(
        "What is the case.",
        {
            "resources": resource_list("What the pool's nodes add up to."),
            "nodes": whole("How many nodes the pool has.", 0, default=0),
            "nodeClassObservedGeneration": whole("The class's generation of the last registration.", 0),
            "conditions": conditions(),
        },
    )
