"""Nodes and their claims for tests of disruption: an hour old, initialized and empty unless told otherwise."""

from datetime import UTC, datetime, timedelta

import msgspec

from spotwright.model import labels
from spotwright.model.node import Node
from spotwright.model.nodeclaim import NodeClaim
from spotwright.model.nodepool import Budget, NodeClassReference
from spotwright.model.objects import Condition, Metadata
from spotwright.model.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import given

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
NOBODY: frozenset[str] = frozenset()


def claim(name: str, **fields: object) -> NodeClaim:
    made = NodeClaim(
        Metadata(name, uid=name, created=LONG_AGO, labels={labels.NODEPOOL: "default"}),
        NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
        provider_id=f"aws:///z/i-{name}",
        node_name=f"node-{name}",
        conditions=(Condition("Initialized", "True", since=LONG_AGO), Condition("Consolidatable", "True")),
    )
    return msgspec.structs.replace(made, **fields)


def node(name: str, **fields: object) -> Node:
    made = Node(
        Metadata(f"node-{name}", labels={labels.INITIALIZED: "true"}),
        provider_id=f"aws:///z/i-{name}",
        conditions=(Condition("Ready", "True"),),
    )
    return msgspec.structs.replace(made, **fields)


def snapshot(*names: str, **fields: object) -> Snapshot:
    made = Snapshot(
        cluster="c",
        now=NOW,
        nodepools=(given.node_pool(budgets=(Budget("100%"),)),),
        nodeclaims=tuple(map(claim, names)),
        nodes=tuple(map(node, names)),
    )
    return msgspec.structs.replace(made, **fields)


def on(name: str, pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, node_name=f"node-{name}", phase="Running", started=LONG_AGO)
