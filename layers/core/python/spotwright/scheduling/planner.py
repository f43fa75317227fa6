"""Pending pods and the instance catalog in, a plan out.

The order of things: pods of equal demands form classes; nodes that exist or are in flight are filled first; then
NodePools by weight make nodes, priced shape by shape; what still has no place gives up one preference and tries
again. Nothing here depends on the order in which pods, nodes or pools are listed.
"""

from collections.abc import Iterable, Sequence

import msgspec

from spotwright.model.instancetype import Catalog
from spotwright.model.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import eligibility, reasons
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.drafts import finished
from spotwright.scheduling.hosts import Fleet, fleet
from spotwright.scheduling.overlays import Verdict, overlaid
from spotwright.scheduling.placement import Placement, World, placed
from spotwright.scheduling.plan import ExistingNode, Plan
from spotwright.scheduling.templates import daemons, open_pools


def plan(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """Where every pending pod goes: existing nodes, new nodes, or nowhere, and why."""
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
    placement = _placed(world, [pod for pod in intake.candidates if not told or pod.key not in told])
    refused += reasons.refused(placement.waiting, placement.tiers, placement.rooms, placement.topology, disks, closed)
    refused += [reasons.following(pod) for pod in placement.held_back]
    return Plan(
        new_nodes=tuple(node for tier in placement.tiers for draft in tier.settle() for node in finished(draft)),
        existing_nodes=tuple(
            ExistingNode(room.host.name, tuple(sorted(room.given)))
            for room in sorted(placement.rooms, key=lambda one: one.host.name)
            if room.given
        ),
        unschedulable=tuple(sorted(refused, key=lambda one: one.pod)),
        ignored=tuple(sorted(intake.ignored, key=lambda one: one.pod)),
        notes=_notes(snapshot, closed, sold.verdicts),
        units=placement.units,
        bound_picousd_per_hour=sum(tier.bound(placement.topology) for tier in placement.tiers),
    )


def _placed(world: World, pods: Sequence[Pod]) -> Placement:
    """Everybody's placement; followers are left out of it where they would cause the first node."""
    pods = [_modest(pod) if eligibility.is_follower(pod, world.settings) else pod for pod in pods]
    followers = [pod for pod in pods if eligibility.is_follower(pod, world.settings)]
    if not followers or _busy(world.standing, world.snapshot):
        return placed(world, pods, world.templates)
    following = {pod.key for pod in followers}
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


def _notes(snapshot: Snapshot, closed: dict[str, str], verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """What is wrong with NodePools, classes and overlays, by name."""
    notes: list[str] = []
    for pool in sorted(snapshot.nodepools, key=lambda one: one.name):
        notes += [f"NodePool {pool.name}: {problem}" for problem in pool.problems]
        if pool.name in closed:
            notes.append(f"NodePool {pool.name} makes no nodes: {closed[pool.name]}")
    for nodeclass in sorted(snapshot.nodeclasses, key=lambda one: one.name):
        notes += [f"EC2NodeClass {nodeclass.name}: {problem}" for problem in nodeclass.problems]
    notes += [f"NodeOverlay {one.name} is not applied ({one.reason}): {one.message}" for one in verdicts if one.reason]
    return tuple(notes)
