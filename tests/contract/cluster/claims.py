"""NodeClaims as the contracts of ClusterPort make them."""

import msgspec

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from tests.contract.cluster_world import NUMBERS

CLASS = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")


def claim(**changes: object) -> NodeClaim:
    name = f"claim-{next(NUMBERS)}"
    nodeclaim = NodeClaim(
        metadata=ObjectMeta(name, labels={labels.NODEPOOL: "default"}, finalizers=(labels.FINALIZER,)),
        node_class_ref=CLASS,
        requirements=(
            NodeSelectorRequirement("kubernetes.io/arch", "In", ("amd64",)),
            NodeSelectorRequirement("karpenter.k8s.aws/instance-cpu", "Gt", ("1",)),
        ),
        requests={"cpu": 1500, "memory": 2**30, "pods": 3},
        taints=(Taint("spot", "NoSchedule", "only"),),
        expire_after_seconds=None,
        termination_grace_period_seconds=600,
    )
    return msgspec.structs.replace(nodeclaim, **changes)
