"""Pending pods and the instance catalog in, a plan out.

The order of things: pods of equal demands form classes; nodes that exist or are in flight are filled first; then
NodePools by weight make nodes, priced shape by shape; what still has no place gives up one preference and tries
again. Nothing here depends on the order in which pods, nodes or pools are listed.
"""

from collections.abc import Iterable, Sequence

import msgspec

from spotwright.model.instancetype import PICOUSD, Catalog
from spotwright.model.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import eligibility, reasons, reservations
from spotwright.scheduling.attempts import placed
from spotwright.scheduling.blast import bounded
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.drafts import finished
from spotwright.scheduling.hosts import Fleet, fleet
from spotwright.scheduling.overlays import Verdict, overlaid
from spotwright.scheduling.placement import Placement, World
from spotwright.scheduling.plan import ExistingNode, Plan
from spotwright.scheduling.templates import daemons, open_pools
from spotwright.scheduling.zones import balanced


def plan(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """Where every pending pod goes: existing nodes, new nodes, or nowhere, and why."""
    catalog = reservations.counted(catalog, snapshot.settings.feature_gates)
    sold = overlaid(catalog, snapshot.overlays, snapshot.nodepools)
    catalog = sold.catalog
    every_daemon = daemons(snapshot)
    standing = fleet(snapshot, catalog, every_daemon)
    disks = Disks(snapshot.storage)
    intake = eligibility.sort_out(snapshot, frozenset(one.name for one in standing.leaving), disks)
    templates, closed = open_pools(snapshot, catalog)
    world = World(snapshot, standing, templates, every_daemon, disks, frozenset(pod.key for pod in intake.candidates))
    refused = [why for pod in intake.candidates if (why := reasons.beyond(pod, snapshot)) is not None]
    told = {one.pod for one in refused}
    planned = [pod for pod in intake.candidates if not told or pod.key not in told]
    placement, bounds = _within_bounds(world, disks.alike(planned, snapshot.pods))
    refused += reasons.refused(placement.waiting, placement.tiers, placement.rooms, placement.topology, disks, closed)
    refused += [reasons.following(pod) for pod in placement.held_back]
    made = [node for tier in placement.tiers for draft in tier.settle() for node in finished(draft)]
    barren, unread = reasons.barren(placement.tiers), _unread(snapshot)
    capped = balanced(made, standing.hosts, catalog, snapshot.settings.largest_zone_share)
    return Plan(
        new_nodes=capped.nodes,
        existing_nodes=tuple(
            ExistingNode(room.host.name, tuple(sorted(room.given)))
            for room in sorted(placement.rooms, key=lambda one: one.host.name)
            if room.given
        ),
        unschedulable=tuple(sorted(refused, key=lambda one: one.pod)),
        ignored=tuple(sorted(intake.ignored, key=lambda one: one.pod)),
        notes=(
            *_notes(snapshot, closed | barren, sold.verdicts),
            *_told(unread),
            *_unheeded(snapshot),
            *bounds,
            *capped.notes,
        ),
        units=placement.units,
        bound_picousd_per_hour=sum(tier.bound(placement.topology) for tier in placement.tiers),
        barren=barren,
        unread=unread,
    )


def _within_bounds(world: World, pods: Sequence[Pod]) -> tuple[Placement, tuple[str, ...]]:
    """Everybody's placement with no node above the setting's share of the plan, and what that costs.

    Whoever would be left for it gets a node as large as needed: then the bound does not hold, which is said.
    """
    share, free = world.settings.largest_node_share, _placed(world, pods)
    if share >= 100:
        return free, ()
    smaller = msgspec.structs.replace(world, templates=bounded(world.templates, pods, share))
    held = _placed(smaller, pods)
    held.units += free.units
    bound = f"at most {share} % of the plan on one node"
    if _left(held) > _left(free):
        return free, (f"{bound} cannot be kept: {_left(held) - _left(free)} pods would be left without a node",)
    more = held.price() - free.price()
    return held, (f"{bound} costs ${more / PICOUSD:.4f} an hour more" if more > 0 else f"{bound} costs nothing",)


def _left(placement: Placement) -> int:
    return sum(len(one.keys) for one in placement.waiting)


def _placed(world: World, pods: Sequence[Pod]) -> Placement:
    """Everybody's placement; followers are left out of it where they would cause the first node."""
    following = {pod.key for pod in pods if eligibility.is_follower(pod, world.settings)}
    if not following:
        return placed(world, pods, world.templates)
    pods = [_modest(pod) if pod.key in following else pod for pod in pods]
    if _busy(world.standing, world.snapshot):
        return placed(world, pods, world.templates)
    followers = [pod for pod in pods if pod.key in following]
    leaders = [pod for pod in pods if pod.key not in following]
    led = placed(world, leaders, world.templates)
    if led.places_any:
        return placed(world, pods, world.templates)
    seated = placed(world, followers, ())
    left = {key for one in seated.waiting for key in one.keys}
    led.held_back = [pod for pod in followers if pod.key in left]
    led.rooms = seated.rooms
    led.units += seated.units
    return led


def _modest(follower: Pod) -> Pod:
    """A follower without its preferences: it goes along with others, and its wishes buy nothing."""
    return msgspec.structs.replace(
        follower,
        node_preferences=(),
        rather_near=(),
        rather_apart=(),
        spreads=tuple(one for one in follower.spreads if one.hard),
    )


def _busy(standing: Fleet, snapshot: Snapshot) -> bool:
    """True when the cluster is not at zero: a node that is nobody's, or one that runs more than followers."""
    return any(not host.pool or any(_leads(pod, snapshot) for pod in host.pods) for host in standing.hosts)


def _leads(pod: Pod, snapshot: Snapshot) -> bool:
    return not pod.mirror and not pod.owned_by("DaemonSet") and not eligibility.is_follower(pod, snapshot.settings)


def _unread(snapshot: Snapshot) -> dict[str, str]:
    """Nodes and claims that cannot be read, and why: they take no pods."""
    claims = {f"nodeclaims/{one.name}": one.unreadable for one in snapshot.nodeclaims}
    nodes = {f"nodes/{one.name}": one.unreadable for one in snapshot.nodes}
    return {key: why for key, why in sorted((claims | nodes).items()) if why}


def _unheeded(snapshot: Snapshot) -> tuple[str, ...]:
    """What else cannot be read, and what that means; volumes are named by the pods that need them."""
    budgets = (
        f"PodDisruptionBudget {one.metadata.key} cannot be read, so nothing in its namespace is evicted:"
        f" {one.unreadable}"
        for one in snapshot.budgets
        if one.unreadable
    )
    daemonsets = (
        f"DaemonSet {one.metadata.key} cannot be read, so nodes are sized without it: {one.template.problem}"
        for one in snapshot.daemonsets
        if one.template.problem
    )
    drivers = (
        f"CSINode {one.metadata.name} cannot be read, so its volumes are not counted: {one.unreadable}"
        for one in snapshot.storage.nodes
        if one.unreadable
    )
    return tuple(sorted((*budgets, *daemonsets, *drivers)))


def _told(unread: dict[str, str]) -> tuple[str, ...]:
    words = {"nodes": "Node", "nodeclaims": "NodeClaim"}
    return tuple(
        f"{words[kind]} {name} takes no pods, for it cannot be read: {why}"
        for kind, _, name, why in ((*key.partition("/"), why) for key, why in unread.items())
    )


def _notes(snapshot: Snapshot, closed: dict[str, str], verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """What is wrong with NodePools, classes and overlays, by name."""
    notes: list[str] = []
    for pool in sorted(snapshot.nodepools, key=lambda one: one.name):
        notes += [f"NodePool {pool.name}: {problem}" for problem in pool.problems]
        if pool.name in closed:
            none = "no nodes" if pool.replicas is None else "no nodes for pods"
            notes.append(f"NodePool {pool.name} makes {none}: {closed[pool.name]}")
    for nodeclass in sorted(snapshot.nodeclasses, key=lambda one: one.name):
        notes += [f"EC2NodeClass {nodeclass.name}: {problem}" for problem in nodeclass.problems]
    notes += [f"NodeOverlay {one.name} is not applied ({one.reason}): {one.message}" for one in verdicts if one.reason]
    return tuple(notes)
