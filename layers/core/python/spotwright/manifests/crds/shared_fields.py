"""Schemas that NodePool and NodeClaim, and in part EC2NodeClass, have in common.

Source: Karpenter v1.14 ``pkg/apis/v1`` for the fields, Kubernetes "Labels and Selectors" for names and values.
Differences: a restricted label domain is matched as a whole (``notkarpenter.sh/x`` is allowed), and the API server
checks the values of requirements, not a condition afterwards.
"""

from collections.abc import Sequence

from spotwright.manifests.crds.openapi import (
    Rule,
    Schema,
    array,
    date_time,
    enum,
    integer,
    map_of,
    object_with,
    quantity,
    rule,
    string,
)
from spotwright.model import labels

DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
QUALIFIED_NAME = rf"^({_DOMAIN}/)?{_NAME}$"
LABEL_VALUE = rf"^({_NAME})?$"

_PROVIDER_KEYS = sorted(
    key for key in labels.WELL_KNOWN | {labels.EC2NODECLASS} if key.startswith("karpenter.k8s.aws/")
)


def _key_rules(over: str, own: Sequence[str]) -> list[Rule]:
    """Rules for label keys. ``over``: CEL that applies ``{}`` (a test of ``key``) to the validated value.

    ``own``: the keys of karpenter.sh that are allowed.
    """

    def restricted(domain: str, allowed: Sequence[str]) -> str:
        listed = ", ".join(f"'{key}'" for key in allowed)
        pattern = r"^([^/]+\\.)?" + domain.replace(".", r"\\.") + "/"
        return over.format(f"key in [{listed}] || !key.matches('{pattern}')")

    return [
        rule(over.format(f"key != '{labels.HOSTNAME}'"), f"label {labels.HOSTNAME} is restricted"),
        rule(
            restricted("karpenter.sh", own),
            f"labels of the domain karpenter.sh are restricted, except {' and '.join(own)}",
        ),
        rule(
            restricted("karpenter.k8s.aws", _PROVIDER_KEYS),
            "labels of the domain karpenter.k8s.aws are restricted, except the well-known ones",
        ),
    ]


def node_labels(own: Sequence[str]) -> Schema:
    """Labels for a node. ``own``: the karpenter.sh keys that are allowed."""
    return map_of(
        "Labels of the nodes of this pool.",
        string("", maxLength=63, pattern=LABEL_VALUE),
        rules=_key_rules("self.all(key, {})", own),
        maxProperties=100,
        **{"x-kubernetes-map-type": "atomic"},
    )


def requirements(own: Sequence[str]) -> Schema:
    """Requirements on nodes, ANDed. ``own``: the karpenter.sh keys that are allowed."""
    key = string(
        "The label that is constrained.", maxLength=316, pattern=QUALIFIED_NAME,
        rules=_key_rules("[self].all(key, {})", own),
    )  # fmt: skip
    item = object_with(
        "Constrains the values of a node label.",
        {
            "key": key,
            "operator": enum("How the values constrain the label.", *_OPERATORS),
            "values": array("The values that the operator applies to.", string("", maxLength=63, pattern=LABEL_VALUE)),
            "minValues": integer(
                "How many different values of the label the instance types of a launch must have at least.", 1, 50
            ),
        },
        required=["key", "operator"],
        rules=_REQUIREMENT_RULES,
        **{"x-kubernetes-map-type": "atomic"},
    )
    return array("Requirements on the node's labels; all of them must hold.", item, maxItems=100)


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
_REQUIREMENT_RULES = (
    rule(
        "self.operator != 'In' || (has(self.values) && self.values.size() > 0)",
        "operator In needs at least one value",
    ),
    rule(
        "!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(self.values) && self.values.size() == 1"
        " && self.values[0].matches('^[0-9]{1,18}$'))",
        "operators Gt, Lt, Gte and Lte need exactly one value, a whole number of at least 0",
    ),
    rule(
        "self.operator != 'In' || !has(self.minValues) || !has(self.values) || self.values.size() >= self.minValues",
        "operator In with minValues needs at least that many values",
    ),
)


def taints(description: str) -> Schema:
    item = object_with(
        "A taint keeps away pods that do not tolerate it.",
        {
            "key": string("The taint's key.", minLength=1, maxLength=316, pattern=QUALIFIED_NAME),
            "value": string("The taint's value.", maxLength=63, pattern=LABEL_VALUE),
            "effect": enum(
                "What happens to pods that do not tolerate the taint.", "NoSchedule", "PreferNoSchedule", "NoExecute"
            ),
            "timeAdded": date_time("When the taint was added; only for NoExecute taints of a node."),
        },
        required=["key", "effect"],
    )
    return array(description, item)


def nodeclass_reference(*, rules: Sequence[Rule] = ()) -> Schema:
    return object_with(
        "The EC2NodeClass that says how instances are launched.",
        {
            "group": string("API group: karpenter.k8s.aws.", minLength=1, pattern=r"^[^/]*$"),
            "kind": string("Kind: EC2NodeClass.", minLength=1),
            "name": string("Name of the class.", minLength=1),
        },
        required=["group", "kind", "name"],
        rules=rules,
    )


def resource_list(description: str, *, rules: Sequence[Rule] = ()) -> Schema:
    """Quantities keyed by resource name."""
    return map_of(description, quantity(""), rules=rules)


def node_spec(requirement_keys: Sequence[str], reference_rules: Sequence[Rule] = ()) -> dict[str, Schema]:
    """The fields that a NodePool's template and a NodeClaim share."""
    return {
        "taints": taints("Taints of the node."),
        "startupTaints": taints("Taints that another program, such as a DaemonSet, removes when the node is prepared."),
        "requirements": requirements(requirement_keys),
        "nodeClassRef": nodeclass_reference(rules=reference_rules),
        "terminationGracePeriod": string(
            "How long a drain may take before it ignores PodDisruptionBudgets and deletes pods; unset = unlimited.",
            pattern=DURATION,
        ),
        "expireAfter": string("Age at which a node is replaced, or Never.", pattern=DURATION_OR_NEVER, default="720h"),
    }  # fmt: skip


def conditions() -> Schema:
    """Status conditions by type. Only type, status and lastTransitionTime are always set."""
    item = object_with(
        "A condition of the object.",
        {
            "type": string("What the condition is about, such as Ready.", maxLength=316, pattern=QUALIFIED_NAME),
            "status": enum("Whether the condition holds.", "True", "False", "Unknown"),
            "reason": string("Why, as a CamelCase word for programs.", maxLength=1024),
            "message": string("Why, as a sentence for people.", maxLength=32768),
            "lastTransitionTime": date_time("When the status last changed."),
            "observedGeneration": integer("The metadata.generation that the condition is about.", 0),
        },
        required=["type", "status", "lastTransitionTime"],
    )
    return array("Conditions of the object, by type.", item, kind="map", keys=["type"])


READY_STATUS_PATH = '.status.conditions[?(@.type=="Ready")].status'
