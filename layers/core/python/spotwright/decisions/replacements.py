"""Which NodeClaims must be Initialized before a node goes: those that take its pods, and the next of its pool."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from spotwright.decisions.decision import DRIFTED, Disruption, Launch
from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan


def with_replacements(
    disruptions: Sequence[Disruption], snapshot: Snapshot, plan: Plan, launches: Sequence[Launch]
) -> tuple[Disruption, ...]:
    """Each disruption with its replacements, those of this decision's launches first.

    A node that is Initialized already need not be waited for. The snapshot shows pods that earlier decisions seated
    elsewhere (``moving_pods``), and NodeClaims in flight. A drifted node of a static NodePool goes when one of the
    NodePool's new nodes is there, each for another.
    """
    hosts = _hosts_by_pod(plan, launches)
    pods_by_node = _pods_by_node(snapshot, hosts)
    own = {name for launch in launches for name in launch.claims}
    starting = _starting_claims(snapshot)
    claims = {claim.name: claim for claim in snapshot.nodeclaims}
    nodes = nodes_of_claims(snapshot.nodeclaims, snapshot.nodes)
    takers = dict[str, set[str]]()
    for name in (name for disruption in disruptions for name in disruption.candidates if name in claims):
        node_names = [node.name for node in nodes.get(name, ())] or [claims[name].node_name]
        takers[name] = {taker for node_name in node_names for taker in pods_by_node.get(node_name, ())}
    drifted = [name for disruption in disruptions if disruption.reason == DRIFTED for name in disruption.candidates]
    _pair_static_nodes([claims[name] for name in drifted if name in claims], takers, snapshot, launches)
    completed = []
    for disruption in disruptions:
        awaited = {host for name in disruption.candidates for host in takers.get(name, ())}
        in_flight = {starting[host] for host in awaited if host in starting} - own
        replacements = (*sorted(awaited & own), *sorted(in_flight))
        completed.append(msgspec.structs.replace(disruption, replacements=replacements))
    return tuple(completed)


def _pair_static_nodes(
    going: Iterable[NodeClaim], takers: dict[str, set[str]], snapshot: Snapshot, launches: Iterable[Launch]
) -> None:
    """Add a new NodeClaim of its NodePool to each, another for each; where one takes its pods, that."""
    free: dict[str, list[str]] = {pool.name: [] for pool in snapshot.nodepools if pool.replicas is not None}
    for launch in launches:
        if launch.node.nodepool in free:
            free[launch.node.nodepool] += launch.claims
    for claim in sorted(going, key=lambda claim: not takers[claim.name]):
        left = free.get(claim.nodepool)
        if left:
            chosen = next((name for name in left if name in takers[claim.name]), left[0])
            left.remove(chosen)
            takers[claim.name].add(chosen)


def _hosts_by_pod(plan: Plan, launches: Iterable[Launch]) -> dict[str, str]:
    """Where the plan puts pods that run elsewhere now: key → a NodeClaim to make, or a node or NodeClaim there is."""
    hosts = {pod: node.name for node in plan.existing_nodes for pod in node.pods}
    for launch in launches:
        for claim, pods in zip(launch.claims, launch.moving_pods, strict=False):
            hosts |= dict.fromkeys(pods, claim)
    return hosts


def _pods_by_node(snapshot: Snapshot, hosts: Mapping[str, str]) -> dict[str, set[str]]:
    """Node → where its pods go."""
    takers: dict[str, set[str]] = {}
    pods = snapshot.pods_by_key()
    for key in pods.keys() & (snapshot.moving_pods.keys() | hosts.keys()):
        node, pod = snapshot.moving_pods.get(key), pods[key]
        if node is not None:
            takers.setdefault(node, set()).add(pod.node_name)
        elif pod.node_name:
            takers.setdefault(pod.node_name, set()).add(hosts[key])
    return takers


def _starting_claims(snapshot: Snapshot) -> dict[str, str]:
    """NodeClaims that are not Initialized: their name, and that of their Node → their name."""
    nodes = nodes_of_claims(snapshot.nodeclaims, snapshot.nodes)
    starting = {node.nodeclaim.name: node.nodeclaim.name for node in snapshot.in_flight}
    for claim in snapshot.nodeclaims:
        if not claim.is_condition_true("Initialized"):
            node_names = (node.name for node in nodes.get(claim.name, ()))
            starting |= dict.fromkeys((claim.name, claim.node_name or claim.name, *node_names), claim.name)
    return starting
