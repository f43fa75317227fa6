"""A cluster as the planner sees it, that grows, shrinks and is consolidated without an API server."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.disruption.candidates import node_price
from spotwright.disruption.consolidation import Consolidation
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.consolidation_timer import pods_digest
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget, NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement, Operator, from_expressions
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NewNode, NodeAssignment, Plan

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO: Final = NOW - timedelta(hours=1)


class Launched(msgspec.Struct, frozen=True, rename="camel"):
    """A node that was bought, and its pods, ``namespace/name``."""

    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    pods: tuple[str, ...]


class SimulatedCluster:
    """Nodes are Ready as soon as they are planned, and pods are where they were planned."""

    def __init__(self, problem: Snapshot, catalog: Catalog) -> None:
        pools = tuple(
            msgspec.structs.replace(pool, budgets=(Budget("100%"),), consolidate_after_seconds=0)
            for pool in problem.nodepools
        )
        self.catalog = catalog
        self._types = {kind.name: kind for kind in catalog.instance_types("")}
        self._made = 0
        self.snapshot = msgspec.structs.replace(problem, now=NOW, nodepools=pools, nodes=(), nodeclaims=(), pods=())

    @property
    def price_picousd_per_hour(self) -> int:
        return sum(node_price(claim, self.catalog) or 0 for claim in self.snapshot.nodeclaims)

    def grow(self, pods: Sequence[Pod], batch: int) -> None:
        """Pods arrive so many at a time."""
        for first in range(0, len(pods), batch):
            waiting = (*self.snapshot.pods, *pods[first : first + batch])
            self.snapshot = msgspec.structs.replace(self.snapshot, pods=waiting)
            self._apply(decide(self.snapshot, self.catalog), ())

    def shrink(self, percent: int, seed: int) -> None:
        """So many percent of the pods stay; nodes without pods go."""
        dice = Random(f"shrink/{seed}")
        pods = tuple(pod for pod in self.snapshot.pods if dice.randrange(100) < percent)
        hosts = {pod.node_name for pod in pods}
        self._keep(pods, lambda claim: claim.node_name in hosts)

    def repeat(self, times: int) -> None:
        """The same nodes and pods so many times, under names of their own: large clusters take long to grow."""
        copies = [_renamed(self.snapshot, number) for number in range(times)]
        self.snapshot = msgspec.structs.replace(
            self.snapshot,
            pods=tuple(pod for copy in copies for pod in copy.pods),
            nodes=tuple(node for copy in copies for node in copy.nodes),
            nodeclaims=tuple(claim for copy in copies for claim in copy.nodeclaims),
        )
        self._keep(self.snapshot.pods, lambda _: True)

    def apply(self, found: Consolidation) -> None:
        gone = {name for move in found.moves for name in move.candidates}
        self._apply(found.plan, gone)

    def replace(
        self, gone: Collection[str], launched: Iterable[Launched], moved: Mapping[str, Collection[str]]
    ) -> None:
        """``gone``: Nodes; ``moved``: pods that go to Nodes, by Node."""
        claims = {claim.node_name: claim.name for claim in self.snapshot.nodeclaims}
        stays = tuple(NodeAssignment(name, tuple(pods)) for name, pods in moved.items())
        plan = Plan(existing_nodes=stays, new_nodes=tuple(map(_planned, launched)))
        self._apply(plan, {claims[name] for name in gone})

    def _apply(self, plan: Plan, gone: Iterable[str]) -> None:
        hosts = {pod: node.name for node in plan.existing_nodes for pod in node.pods}
        made = [self._node(node) for node in plan.new_nodes]
        for (_, node), planned in zip(made, plan.new_nodes, strict=True):
            hosts |= dict.fromkeys(planned.pods, node.name)
        names = set(gone)
        pods = tuple(
            msgspec.structs.replace(
                pod, node_name=hosts.get(pod.key, pod.node_name), phase="Running", unschedulable=False
            )
            for pod in self.snapshot.pods
            if pod.key in hosts or pod.node_name
        )
        claims = (*self.snapshot.nodeclaims, *(claim for claim, _ in made))
        nodes = (*self.snapshot.nodes, *(node for _, node in made))
        self.snapshot = msgspec.structs.replace(self.snapshot, nodeclaims=claims, nodes=nodes)
        self._keep(pods, lambda claim: claim.name not in names)

    def _keep(self, pods: tuple[Pod, ...], stays: Callable[[NodeClaim], bool]) -> None:
        by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            by_node.setdefault(pod.node_name, []).append(pod)
        claims = []
        for claim in self.snapshot.nodeclaims:
            if stays(claim):
                seen = {labels.PODS_SEEN: pods_digest(by_node.get(claim.node_name, ()))}
                claims.append(
                    msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=seen))
                )
        left = {claim.node_name for claim in claims}
        nodes = tuple(node for node in self.snapshot.nodes if node.name in left)
        self.snapshot = msgspec.structs.replace(self.snapshot, pods=pods, nodes=nodes, nodeclaims=tuple(claims))

    def _node(self, planned: NewNode) -> tuple[NodeClaim, Node]:
        """The cheapest type that it may be, in its cheapest zone."""
        self._made += 1
        name = f"{planned.nodepool}-{self._made:05}"
        requirements = from_expressions(planned.requirements)
        kind = self._types[planned.instance_types[0]]
        offering = min(
            (
                each
                for each in kind.offerings
                if each.available
                and requirements.get(labels.ZONE).has(each.zone)
                and requirements.get(labels.CAPACITY_TYPE).has(each.capacity_type)
            ),
            key=lambda each: (each.price_picousd_per_hour, each.zone),
        )
        own = dict(kind.requirements.labels()) | dict(planned.labels) | {
            labels.NODEPOOL: planned.nodepool, labels.INSTANCE_TYPE: kind.name, labels.ZONE: offering.zone,
            labels.CAPACITY_TYPE: offering.capacity_type, labels.REGISTERED: "true", labels.INITIALIZED: "true",
            labels.HOSTNAME: f"node-{name}",
        }  # fmt: skip
        provider = f"aws:///{offering.zone}/i-{self._made:017d}"
        claim = NodeClaim(
            ObjectMeta(name, uid=name, labels=own, creation_timestamp=LONG_AGO),
            NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", planned.nodeclass),
            provider_id=provider,
            node_name=f"node-{name}",
            conditions=tuple(
                Condition(each, "True", last_transition_time=LONG_AGO)
                for each in ("Launched", "Registered", "Initialized", "Consolidatable")
            ),
        )
        node = Node(
            ObjectMeta(f"node-{name}", labels=own),
            provider_id=provider,
            taints=planned.taints,
            allocatable=dict(kind.allocatable),
            capacity=dict(kind.capacity),
            conditions=(Condition("Ready", "True"),),
        )
        return claim, node


def _planned(launched: Launched) -> NewNode:
    only = {labels.ZONE: launched.zone, labels.CAPACITY_TYPE: launched.capacity_type}
    return NewNode(
        nodepool=launched.node_pool, nodeclass="default", pods=launched.pods, instance_types=(launched.instance_type,),
        requirements=tuple(NodeSelectorRequirement(key, Operator.IN, (value,)) for key, value in only.items()),
        labels={}, taints=(), startup_taints=(), requests={}, price_picousd_per_hour=0,
        capacity_type=launched.capacity_type, zones=(launched.zone,),
    )  # fmt: skip


def _renamed(snapshot: Snapshot, number: int) -> Snapshot:
    """With a number before the name of each pod, Node and NodeClaim; number 0 leaves them as they are."""
    if not number:
        return snapshot

    def about(metadata: ObjectMeta) -> ObjectMeta:
        own = metadata.labels
        if labels.HOSTNAME in own:
            own = own | {labels.HOSTNAME: f"{number}-{own[labels.HOSTNAME]}"}
        name, uid = f"{number}-{metadata.name}", f"{number}-{metadata.uid}"
        return msgspec.structs.replace(metadata, name=name, uid=uid, labels=own)

    def renamed[T: (Pod, Node, NodeClaim)](thing: T, **fields: str) -> T:
        return msgspec.structs.replace(thing, metadata=about(thing.metadata), **fields)

    return msgspec.structs.replace(
        snapshot,
        pods=tuple(renamed(pod, node_name=f"{number}-{pod.node_name}") for pod in snapshot.pods),
        nodes=tuple(renamed(node, provider_id=f"{node.provider_id}-{number}") for node in snapshot.nodes),
        nodeclaims=tuple(
            renamed(claim, provider_id=f"{claim.provider_id}-{number}", node_name=f"{number}-{claim.node_name}")
            for claim in snapshot.nodeclaims
        ),
    )
