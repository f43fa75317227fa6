"""Nodes and their claims for tests of disruption: an hour old, initialized and empty unless told otherwise."""

from datetime import UTC, datetime, timedelta

import msgspec

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget, NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
NOBODY: frozenset[str] = frozenset()


def claim(name: str, **fields: object) -> NodeClaim:
    nodeclaim = NodeClaim(
        ObjectMeta(name, uid=name, creation_timestamp=LONG_AGO, labels={labels.NODEPOOL: "default"}),
        NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
        provider_id=f"aws:///z/i-{name}",
        node_name=f"node-{name}",
        conditions=(
            Condition("Initialized", "True", last_transition_time=LONG_AGO),
            Condition("Consolidatable", "True"),
        ),
    )
    return msgspec.structs.replace(nodeclaim, **fields)


def node(name: str, **fields: object) -> Node:
    built = Node(
        ObjectMeta(f"node-{name}", labels={labels.INITIALIZED: "true"}),
        provider_id=f"aws:///z/i-{name}",
        conditions=(Condition("Ready", "True"),),
    )
    return msgspec.structs.replace(built, **fields)


def snapshot(*names: str, **fields: object) -> Snapshot:
    built = Snapshot(
        cluster="c",
        now=NOW,
        nodepools=(builders.nodepool(budgets=(Budget("100%"),)),),
        nodeclaims=tuple(map(claim, names)),
        nodes=tuple(map(node, names)),
    )
    return msgspec.structs.replace(built, **fields)


def on(name: str, pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, node_name=f"node-{name}", phase="Running", start_time=LONG_AGO)
