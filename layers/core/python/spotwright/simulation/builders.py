"""Objects with defaults for scenarios: a ready EC2NodeClass, a NodePool, pods, a small catalog."""

from typing import Any, Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, SecurityGroup, SelectorTerm, Subnet
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Toleration
from spotwright.model.requirements import NodeSelectorRequirement, Operator, from_labels

CLUSTER: Final = "dev-eks-cluster"
ZONES: Final = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
GIB: Final = 2**30
FACTS: Final = ClusterFacts(
    name=CLUSTER,
    endpoint="https://cluster.example",
    certificate_authority="Y2E=",
    version="1.35",
    service_cidr="10.100.0.0/16",
    vpc_id="vpc-1",
    dns_ip="10.100.0.10",
)
READY: Final = Condition("Ready", "True", "Ready", observed_generation=1)


def nodeclass(name: str = "default", **fields: Any) -> EC2NodeClass:
    """A class that is resolved and Ready."""
    nodeclass = EC2NodeClass(
        metadata=ObjectMeta(name),
        ami_selector_terms=(SelectorTerm(alias="al2023@latest"),),
        ami_family="AL2023",
        role="KarpenterNodeRole-dev-eks-cluster",
        subnets=tuple(Subnet(f"subnet-{zone[-1]}", zone) for zone in ZONES),
        security_groups=(SecurityGroup("sg-1"),),
        amis=(AMI("ami-amd64", requirements=(NodeSelectorRequirement(labels.ARCH, Operator.IN, ("amd64",)),)),),
        resolved_instance_profile="dev-eks-cluster_1",
        conditions=(READY,),
    )
    return msgspec.structs.replace(nodeclass, **fields)


def nodepool(name: str = "default", **fields: Any) -> NodePool:
    nodepool = NodePool(
        metadata=ObjectMeta(name), node_class_ref=NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    )
    return msgspec.structs.replace(nodepool, **fields)


def pod(name: str, *, cpu_millicores: int = 1000, memory_bytes: int = GIB, **fields: Any) -> Pod:
    """A pod of a ReplicaSet in the namespace ``default`` that the scheduler has not seen yet."""
    metadata = ObjectMeta(
        name,
        namespace=fields.pop("namespace", "default"),
        labels=fields.pop("labels", {"app": name.rpartition("-")[0] or name}),
        annotations=fields.pop("annotations", {}),
        owner_references=fields.pop("owner_references", (OwnerReference("ReplicaSet", "inflate", "uid-rs"),)),
    )
    requests = {"cpu": cpu_millicores, "memory": memory_bytes, "pods": 1}
    return msgspec.structs.replace(Pod(metadata=metadata, requests=requests), **fields)


def daemonset_pod(name: str, node: str, **fields: Any) -> Pod:
    """A running pod of a DaemonSet that tolerates everything."""
    everything = (Toleration(operator="Exists"),)
    return pod(
        name,
        cpu_millicores=100,
        memory_bytes=GIB // 8,
        namespace="kube-system",
        node_name=node,
        phase="Running",
        owner_references=(OwnerReference("DaemonSet", name, "uid-ds"),),
        tolerations=fields.pop("tolerations", everything),
        **fields,
    )


def pod_disruption_budget(name: str, app: str, **fields: Any) -> PodDisruptionBudget:
    """A PodDisruptionBudget over the pods labelled ``app`` in the namespace ``default``."""
    return PodDisruptionBudget(
        ObjectMeta(name, namespace=fields.pop("namespace", "default")),
        (NodeSelectorRequirement("app", Operator.IN, (app,)),),
        **fields,
    )


def unmanaged_node(name: str, **fields: Any) -> Node:
    """A ready node without NodeClaim and instance."""
    amounts = {"cpu": 64000, "memory": 256 * GIB, "pods": 110}
    node = Node(ObjectMeta(name), allocatable=amounts, capacity=amounts, conditions=(READY,))
    return msgspec.structs.replace(node, **fields)


def instance_type(
    name: str, cpu: int, memory_gib: int, *, on_demand: float, spot: float = 0.0, arch: str = "amd64"
) -> InstanceType:
    """A type offered in every zone; prices in dollars an hour, spot 0 = on-demand only."""
    capacity = {"cpu": cpu * 1000, "memory": memory_gib * GIB, "pods": 58, "ephemeral-storage": 20 * GIB}
    offerings = tuple(
        Offering(zone, kind, int(price * PICOUSD), True, from_labels({labels.ZONE: zone, labels.CAPACITY_TYPE: kind}))
        for kind, price in ((labels.ON_DEMAND, on_demand), (labels.SPOT, spot))
        for zone in ZONES
        if price
    )  # fmt: skip
    type_labels = {labels.INSTANCE_TYPE: name, labels.ARCH: arch, labels.OS: "linux", labels.REGION: "ap-northeast-2"}
    family, _, size = name.partition(".")
    type_labels |= {labels.INSTANCE_PREFIX + "family": family, labels.INSTANCE_PREFIX + "size": size}
    return InstanceType(
        name=name,
        requirements=from_labels(type_labels).intersection(_offering_requirements(offerings)),
        capacity=capacity,
        allocatable=capacity | {"cpu": cpu * 1000 - 100, "memory": memory_gib * GIB - GIB // 2},
        offerings=offerings,
    )


def _offering_requirements(offerings: tuple[Offering, ...]) -> Any:
    keys = (
        (labels.ZONE, {offering.zone for offering in offerings}),
        (labels.CAPACITY_TYPE, {offering.capacity_type for offering in offerings}),
    )
    return tuple(NodeSelectorRequirement(key, Operator.IN, tuple(sorted(values))).requirement() for key, values in keys)


def small_catalog() -> Catalog:
    """Four instance types, cheaper on spot."""
    return Catalog(
        {
            "": (
                instance_type("m5.large", 2, 8, on_demand=0.118, spot=0.040),
                instance_type("m5.xlarge", 4, 16, on_demand=0.236, spot=0.080),
                instance_type("c5.large", 2, 4, on_demand=0.096, spot=0.035),
                instance_type("c5.2xlarge", 8, 16, on_demand=0.384, spot=0.150),
            )
        },
        "given",
    )


def capacity_types(*kinds: str) -> tuple[NodeSelectorRequirement, ...]:
    return (NodeSelectorRequirement(labels.CAPACITY_TYPE, Operator.IN, kinds),)
