"""Small clusters for tests: everything has a default, so that a test states only what it is about."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch.filters import select_offerings
from spotwright.aws.refusal import Refusal
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import EC2NodeClass, Subnet
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import DaemonSet, Pod
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_expressions
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NewNode, Plan
from spotwright.scheduling.pod_planner import plan_pods

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONES = ("z1", "z2", "z3")
GIB = 2**30


def amounts(cpu: str | float = 0, memory: str = "0", **further: int) -> dict[str, int]:
    return resources.parse({"cpu": cpu, "memory": memory, **{name: str(size) for name, size in further.items()}})


def pod(name: str = "p", cpu: str | float = "100m", memory: str = "128Mi", **fields: Any) -> Pod:
    """A pending pod of namespace ``default`` that kube-scheduler gave up on."""
    about = {
        field: fields.pop(field)
        for field in ("labels", "annotations", "owner_references", "deletion_timestamp")
        if field in fields
    }
    extra = fields.pop("requests", {})
    metadata = ObjectMeta(name, fields.pop("namespace", "default"), uid=name, creation_timestamp=NOW, **about)
    fields.setdefault("unschedulable", "node_name" not in fields)
    return Pod(metadata, amounts(cpu, memory) | {"pods": 1} | extra, **fields)


def pods(
    count: int, name: str = "p", cpu: str | float = "100m", memory: str = "128Mi", **fields: Any
) -> tuple[Pod, ...]:
    return tuple(pod(f"{name}-{number}", cpu, memory, **fields) for number in range(count))


def pool(name: str = "default", *requirements: NodeSelectorRequirement, **fields: Any) -> NodePool:
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    limits = resources.parse(fields.pop("limits", {}))
    return NodePool(ObjectMeta(name), reference, requirements=requirements, limits=limits, **fields)


def instance(
    name: str, cpu: int, memory_gib: int, price: float, *, spot: float = 0, zones: Iterable[str] = ZONES, **fields: Any
) -> InstanceType:
    """A type with nothing reserved. ``price`` and ``spot`` in USD per hour; ``spot`` 0 = on-demand only."""
    capacity = amounts(cpu, f"{memory_gib}Gi") | {"pods": 110} | fields.pop("capacity", {})
    stated = {labels.ARCH: "amd64", labels.OS: "linux", labels.INSTANCE_TYPE: name} | fields.pop("labels", {})
    kinds = {labels.ON_DEMAND: price} | ({labels.SPOT: spot} if spot else {})
    offerings = tuple(Offering(zone, kind, round(cost * PICOUSD)) for kind, cost in kinds.items() for zone in zones)
    requirements = {key: Requirement(key, False, frozenset((value,))) for key, value in sorted(stated.items())}
    return InstanceType(name, Requirements(requirements), capacity, capacity, offerings)


SMALL = instance("small", 2, 4, 0.10, spot=0.04)
MEDIUM = instance("medium", 4, 8, 0.20, spot=0.08)
LARGE = instance("large", 8, 16, 0.40, spot=0.16)
FAT = instance("fat", 4, 32, 0.30, spot=0.12)
TYPES = (SMALL, MEDIUM, LARGE, FAT)


def node(name: str, cpu: str | float = 4, memory: str = "8Gi", **fields: Any) -> Node:
    """An initialized node of pool ``default`` in zone z1; ``labels`` are added."""
    well_known = {
        labels.NODEPOOL: "default",
        labels.REGISTERED: "true",
        labels.INITIALIZED: "true",
        labels.ZONE: "z1",
        labels.HOSTNAME: name,
        labels.CAPACITY_TYPE: labels.ON_DEMAND,
    }
    capacity = amounts(cpu, memory) | {"pods": 110}
    metadata = ObjectMeta(
        name, labels=well_known | fields.pop("labels", {}), deletion_timestamp=fields.pop("deletion_timestamp", None)
    )
    ready = (Condition("Ready", "True"),)
    return Node(metadata, f"aws:///z1/{name}", allocatable=capacity, capacity=capacity, conditions=ready, **fields)


def daemonset(name: str = "agent", cpu: str | float = "100m", memory: str = "128Mi", **fields: Any) -> DaemonSet:
    template = pod(name, cpu, memory, namespace="kube-system", **fields)
    return DaemonSet(ObjectMeta(name, "kube-system"), template)


def owned_by(kind: str, name: str = "owner") -> tuple[OwnerReference, ...]:
    return (OwnerReference(kind, name),)


def snapshot(*waiting: Pod, pools: Iterable[NodePool] | None = None, **fields: Any) -> Snapshot:
    nodepools = (pool(),) if pools is None else tuple(pools)
    return Snapshot("test", NOW, pods=waiting, nodepools=nodepools, **fields)


def reserving(instance_type: InstanceType, capacity: int, reservation: str = "cr-1") -> InstanceType:
    """The type with a reservation of so many instances in z1."""
    values = {labels.RESERVATION_ID: reservation, labels.RESERVATION_TYPE: "default"}
    stated = Requirements({key: Requirement(key, False, frozenset((value,))) for key, value in values.items()})
    offering = Offering("z1", labels.RESERVED, PICOUSD // 10**8, True, stated, capacity)
    return msgspec.structs.replace(instance_type, offerings=(*instance_type.offerings, offering))


def planned(*waiting: Pod, types: Iterable[InstanceType] = TYPES, **fields: Any) -> Plan:
    """The plan for these pods and one NodePool without demands."""
    return plan_pods(snapshot(*waiting, **fields), Catalog({"": tuple(types)}))


def launchable(node: NewNode, types: Iterable[InstanceType]) -> set[tuple[str, str, str]]:
    """(type, zone, capacity type) of all that a launch of the node could ask for, each capacity type tried alone."""
    subnets = tuple(Subnet(f"subnet-{zone}", zone) for zone in ZONES)
    nodeclass, sold = EC2NodeClass(ObjectMeta("default"), subnets=subnets), tuple(types)
    offerings = set()
    for kind in (labels.ON_DEMAND, labels.SPOT):
        only = from_expressions(
            (*node.requirements, NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (kind,)))
        ).node_selector_requirements()
        answer = select_offerings(
            msgspec.structs.replace(node, requirements=only), nodeclass, sold, UnavailableOfferings()
        )
        if not isinstance(answer, Refusal):
            offerings |= {
                (offering.instance_type.name, offering.zone, offering.capacity_type) for offering in answer[1]
            }
    return offerings


def shown(plan: Plan) -> list[str]:
    """New nodes as ``type x pods``, sorted."""
    return sorted(f"{new_node.instance_types[0]} x {len(new_node.pods)}" for new_node in plan.new_nodes)


def why(plan: Plan) -> Mapping[str, str]:
    """Reasons by pod of all pods without a place."""
    return {
        unplaced_pod.pod: "; ".join(unplaced_pod.reasons)
        for unplaced_pod in (*plan.unschedulable_pods, *plan.ignored_pods)
    }


def zone_is(*zones: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(labels.ZONE, "In", zones)
