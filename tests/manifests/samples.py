"""The smallest valid object of each kind, and a way to change one place of it."""

import copy
from typing import Any

type Object = dict[str, Any]

REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def nodepool() -> Object:
    spec = {"template": {"spec": {"nodeClassRef": dict(REFERENCE), "requirements": []}}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "sample"}, "spec": spec}


def nodeclaim() -> Object:
    spec = {"nodeClassRef": dict(REFERENCE), "requirements": []}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "sample"}, "spec": spec}


def nodeclass() -> Object:
    spec = {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"discovery": "test"}}],
        "securityGroupSelectorTerms": [{"tags": {"discovery": "test"}}],
    }
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "sample"}, "spec": spec}


def nodeoverlay() -> Object:
    metadata = {"name": "sample"}
    spec: Object = {"requirements": [], "priceAdjustment": "-10%"}
    return {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": metadata, "spec": spec}


SAMPLES = {
    "NodePool": nodepool,
    "NodeClaim": nodeclaim,
    "EC2NodeClass": nodeclass,
    "NodeOverlay": nodeoverlay,
}
COLLECTIONS = {
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "NodeOverlay": "/apis/karpenter.sh/v1alpha1/nodeoverlays",
}


def changed(value: Object, path: str, to: Any) -> Object:
    """``value`` with the dotted ``path`` set; ``to`` None takes it away. Missing objects on the way are made."""
    result = copy.deepcopy(value)
    *way, last = path.split(".")
    place: Any = result
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    if to is None:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = to
    else:
        place[last] = to
    return result
