"""What the planner would do if nodes went: the very planner that provisions, on the cluster without them.

Source: Karpenter v1.14 ``pkg/controllers/disruption/helpers.go`` (SimulateScheduling).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.disruption import blockers
from spotwright.disruption.candidates import Candidate
from spotwright.disruption.interruption import mark_deleting
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NewNode, Plan

# What kube-scheduler sees on a node that takes no pods.
_CLOSED: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class Group(msgspec.Struct, frozen=True):
    """Candidates that depend on each other, because their pods share new nodes, and these nodes.

    Every other group may be carried out without this one. Candidates whose pods all find room on nodes that stay are
    a group each.
    """

    candidates: tuple[Candidate, ...]
    new_nodes: tuple[NewNode, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(candidate.name for candidate in self.candidates)


class Simulation(msgspec.Struct, frozen=True):
    """``snapshot``: the cluster as if the candidates were being deleted; ``plan``: what is decided for it.

    ``failures``: candidates whose pods would not all have a place, by name, and why.
    """

    snapshot: Snapshot
    plan: Plan
    groups: tuple[Group, ...] = ()
    failures: dict[str, str] = {}


def settle(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The cluster once pending pods are where ``plan`` puts them; pods without a place are left out.

    ``plan`` has no new nodes for pods: while nodes are to be bought, nothing is disrupted by choice.
    """
    hosts = {pod: node.name for node in plan.existing_nodes for pod in node.pods}
    pods = tuple(
        msgspec.structs.replace(pod, node_name=hosts[pod.key]) if pod.key in hosts else pod
        for pod in snapshot.pods
        if pod.node_name or pod.key in hosts
    )
    return msgspec.structs.replace(snapshot, pods=pods)


def close_idle_nodes(snapshot: Snapshot) -> Snapshot:
    """Nodes within their own consolidateAfter take no pods of others: they may go themselves in a moment."""
    pools = {pool.name: pool for pool in snapshot.nodepools}
    waiting = set[str]()
    for claim in snapshot.nodeclaims:
        pool = pools.get(claim.nodepool)
        at = consolidation_timer.consolidatable_at(claim, pool)
        if pool is not None and pool.consolidate_after_seconds and at is not None and snapshot.now < at:
            waiting.add(claim.provider_id)
    return _closed(snapshot, waiting) if waiting else snapshot


def close_late_nodes(snapshot: Snapshot, *, within: timedelta) -> Snapshot:
    """Nodes whose NodeClaims were not Initialized within that time take no pods of others: they may never start."""
    late = {claim.name for claim in snapshot.nodeclaims if _is_late(claim, snapshot.now - within)}
    if not late:
        return snapshot
    claims = tuple(
        msgspec.structs.replace(claim, taints=(*claim.taints, _CLOSED)) if claim.name in late else claim
        for claim in snapshot.nodeclaims
    )
    closed = {claim.provider_id for claim in claims if claim.name in late} - {""}
    return _closed(msgspec.structs.replace(snapshot, nodeclaims=claims), closed)


def _is_late(claim: NodeClaim, limit: datetime) -> bool:
    created = claim.metadata.creation_timestamp
    return not claim.is_condition_true("Initialized") and created is not None and created <= limit


def _closed(snapshot: Snapshot, provider_ids: Collection[str]) -> Snapshot:
    """With these nodes cordoned."""
    nodes = tuple(
        msgspec.structs.replace(node, unschedulable=True) if node.provider_id in provider_ids else node
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodes=nodes)


def simulate(settled: Snapshot, candidates: Sequence[Candidate], catalog: Catalog) -> Simulation:
    """Plan for the pods of the candidates as if these were being deleted. ``settled``: see ``settle``."""
    instances = {instance_id(candidate.claim.provider_id) for candidate in candidates}
    snapshot = mark_deleting(settled, instances)
    return of_marked(snapshot, decide(snapshot, catalog), candidates)


def of_marked(snapshot: Snapshot, plan: Plan, candidates: Sequence[Candidate]) -> Simulation:
    """The simulation of a snapshot in which the candidates are marked, and what was decided for it."""
    nodes = {candidate.node.name: candidate for candidate in candidates}
    homes = {pod.key: nodes[pod.node_name] for pod in snapshot.pods if pod.node_name in nodes}
    failures = dict(_failures(snapshot, plan, {key: home.name for key, home in homes.items()}))
    return Simulation(snapshot, plan, tuple(_groups(candidates, plan, homes)), failures)


def _failures(snapshot: Snapshot, plan: Plan, homes: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Pods without a place, and pods that would wait for a node that has not started."""
    for unplaced in plan.unschedulable_pods:
        if unplaced.pod in homes:
            yield homes[unplaced.pod], f"pod {unplaced.pod} would have no place: {unplaced.reasons[0]}"
    starting = _starting_nodes(snapshot)
    for assignment in plan.existing_nodes:
        if assignment.name in starting:
            for pod in assignment.pods:
                if pod in homes:
                    yield homes[pod], f"would schedule against uninitialized {starting[assignment.name]}"


def _starting_nodes(snapshot: Snapshot) -> dict[str, str]:
    """Nodes of NodePools that are not initialized, and NodeClaims without a node: name → what to call them."""
    by_provider: dict[str, Node] = blockers.nodes_by_provider_id(snapshot.nodes)
    starting = {node.nodeclaim.name: f"nodeclaim/{node.nodeclaim.name}" for node in snapshot.in_flight}
    # One without a NodeClaim may be that of an instance that is about to be terminated.
    starting |= {
        node.name: f"node/{node.name}"
        for node in snapshot.nodes
        if labels.NODEPOOL in node.metadata.labels and not node.is_initialized
    }
    for claim in snapshot.nodeclaims:
        node = by_provider.get(claim.provider_id)
        if node is None:
            starting[claim.name] = f"nodeclaim/{claim.name}"
        elif not (node.is_initialized and claim.is_condition_true("Initialized")):
            starting[node.name] = f"node/{node.name}"
    return starting


def _groups(candidates: Sequence[Candidate], plan: Plan, homes: Mapping[str, Candidate]) -> Iterable[Group]:
    """Candidates and new nodes, connected by pods. A new node without any of these pods belongs to all of them."""
    leaders = {candidate.name: candidate.name for candidate in candidates}

    def leader(name: str) -> str:
        while leaders[name] != name:
            leaders[name] = leaders[leaders[name]]
            name = leaders[name]
        return name

    owners = list[str]()
    for node in plan.new_nodes:
        joined = sorted({homes[pod].name for pod in node.pods if pod in homes}) or sorted(leaders)
        for name in joined[1:]:
            leaders[leader(name)] = leader(joined[0])
        owners.append(joined[0] if joined else "")
    new_nodes: dict[str, list[NewNode]] = {}
    for node, owner in zip(plan.new_nodes, owners, strict=True):
        new_nodes.setdefault(leader(owner), []).append(node)
    members: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.name):
        members.setdefault(leader(candidate.name), []).append(candidate)
    for first, members_of_group in members.items():
        yield Group(tuple(members_of_group), tuple(new_nodes.get(first, ())))


def without(candidates: Iterable[Candidate], names: Collection[str]) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.name not in names]
