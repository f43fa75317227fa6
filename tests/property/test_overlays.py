"""Laws of plans under NodeOverlays: what one states for some offerings is there, and nowhere else."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import NewNode, to_in_flight_nodeclaim
from tests.property.plans import CATALOG, LAWS, clusters, left, planned, unlimited
from tests.unit.scheduling.builders import GIB, TYPES, ZONES, launchable

FUSE, HUGE = "example.com/fuse", "hugepages-2Mi"
KINDS = (labels.ON_DEMAND, labels.SPOT)
NAMES = tuple(instance_type.name for instance_type in TYPES)

places = st.builds(
    lambda zones, kinds, names: tuple(
        NodeSelectorRequirement(key, "In", tuple(sorted(values)))
        for key, values in ((labels.ZONE, zones), (labels.CAPACITY_TYPE, kinds), (labels.INSTANCE_TYPE, names))
        if values
    ),
    st.sets(st.sampled_from(ZONES), max_size=2),
    st.sets(st.sampled_from(KINDS), max_size=1),
    st.sets(st.sampled_from(NAMES), max_size=2),
)
amounts = st.sampled_from(({FUSE: 1}, {FUSE: 3}, {FUSE: 0}, {HUGE: GIB}, {HUGE: 3 * GIB}, {FUSE: 2, HUGE: GIB}))
# Of different weights, so that none conflicts with another.
several = st.lists(st.tuples(places, amounts), min_size=1, max_size=3).map(
    lambda given_: tuple(
        NodeOverlay(ObjectMeta(f"o{weight}"), where, capacity=capacity, weight=weight + 1)
        for weight, (where, capacity) in enumerate(given_)
    )
)


@st.composite
def overlaid_clusters(draw: st.DrawFn) -> Snapshot:
    """Clusters in which some pods ask for what overlays add, and some NodePools limit it."""
    cluster, asks = draw(clusters), draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    limit = draw(st.sampled_from(({}, {}, {FUSE: 2}, {FUSE: 5})))
    waiting = [
        msgspec.structs.replace(pod, requests=pod.requests | {FUSE: count}) if count else pod
        for pod, count in zip(cluster.pods, asks * len(cluster.pods), strict=False)
    ]
    pools = [msgspec.structs.replace(nodepool, limits=nodepool.limits | limit) for nodepool in cluster.nodepools]
    return msgspec.structs.replace(cluster, pods=tuple(waiting), nodepools=tuple(pools), nodeoverlays=draw(several))


def stated(overlays: tuple[NodeOverlay, ...], bought: tuple[str, str, str]) -> dict[str, int]:
    """What overlays say of an offering, the lightest first, so that the heaviest has the last word."""
    told = dict(zip((labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE), bought, strict=True))
    found: dict[str, int] = {}
    for overlay in sorted(overlays, key=lambda each: each.weight):
        if all(told[expression.key] in expression.values for expression in overlay.requirements):
            found |= overlay.capacity
    return found


def room(overlays: tuple[NodeOverlay, ...], bought: tuple[str, str, str]) -> dict[str, int]:
    """What an instance has for pods, worked out from the overlays alone."""
    own, extra = (
        next(instance_type for instance_type in TYPES if instance_type.name == bought[0]).allocatable,
        stated(overlays, bought),
    )
    return own | extra | {"memory": max(0, own["memory"] - extra.get(HUGE, 0))}


def launches(cluster: Snapshot, node: NewNode) -> set[tuple[str, str, str]]:
    sold = apply_overlays(CATALOG, cluster.nodeoverlays, cluster.nodepools).catalog
    return launchable(node, sold.instance_types(node.nodeclass, node.nodepool))


@LAWS
@given(overlaid_clusters())
def test_whatever_is_launched_has_room_for_all_pods_and_daemons(cluster: Snapshot) -> None:
    by_key = {pod.key: pod for pod in cluster.pods}
    untainted = {nodepool.name: not nodepool.taints for nodepool in cluster.nodepools}
    for new_node in planned(cluster).new_nodes:
        daemons = [daemonset.template.requests for daemonset in cluster.daemonsets if untainted[new_node.nodepool]]
        total = resources.add(*(by_key[key].requests for key in new_node.pods), *daemons)
        found = launches(cluster, new_node)
        assert found
        assert [one for one in found if not resources.fits(total, room(cluster.nodeoverlays, one))] == []


@LAWS
@given(overlaid_clusters())
def test_limits_of_what_overlays_add_hold_whichever_offering_is_launched(cluster: Snapshot) -> None:
    plan = planned(cluster)
    for pool in cluster.nodepools:
        new_nodes = [new for new in plan.new_nodes if new.nodepool == pool.name]
        worst = sum(
            max(stated(cluster.nodeoverlays, launch).get(FUSE, 0) for launch in launches(cluster, new))
            for new in new_nodes
        )
        assert worst <= pool.limits.get(FUSE, worst)


@LAWS
@given(overlaid_clusters())
def test_a_pod_is_left_for_want_of_it_only_where_nothing_has_as_much(cluster: Snapshot) -> None:
    """Of pods without other demands, in a pool without limits and taints: an offering with room is found."""
    pods = [
        msgspec.structs.replace(
            one, **dict.fromkeys(("topology_spread_constraints", "pod_anti_affinity", "pod_affinity"), ())
        )
        for one in cluster.pods
    ]
    pools = [msgspec.structs.replace(nodepool, limits={}, taints=()) for nodepool in cluster.nodepools]
    free = msgspec.structs.replace(
        cluster, pods=tuple(pods), nodepools=tuple(pools), nodes=(), daemonsets=(), nodeoverlays=cluster.nodeoverlays
    )
    refused = {unplaced_pod.pod for unplaced_pod in planned(free).unschedulable_pods}
    allowed = {labels.ON_DEMAND} if {nodepool.name for nodepool in pools} == {"on-demand"} else set(KINDS)
    every = [(name, zone, kind) for name in NAMES for zone in ZONES for kind in allowed]
    for pod in pods:
        zones = {value for term in pod.node_affinity for demand in term for value in demand.values} or set(ZONES)
        zones &= {pod.node_selector.get(labels.ZONE, zone) for zone in ZONES}
        kind = pod.node_selector.get(labels.CAPACITY_TYPE)
        open_ = [each for each in every if each[1] in zones and each[2] == (kind or each[2])]
        holds = any(resources.fits(pod.requests, room(free.nodeoverlays, each)) for each in open_)
        assert (pod.key in refused) is not holds


@LAWS
@given(overlaid_clusters())
def test_a_decided_node_holds_its_pods_in_the_next_plan(cluster: Snapshot) -> None:
    """Pods with rules about others, or with alternatives of zones that no node in flight is sure to meet, aside."""
    plain = tuple(
        pod
        for pod in cluster.pods
        if not (pod.topology_spread_constraints or pod.pod_anti_affinity or pod.pod_affinity or pod.node_affinity)
    )
    cluster = msgspec.structs.replace(cluster, pods=plain, nodes=())
    first = planned(cluster)
    coming = tuple(to_in_flight_nodeclaim(node, f"claim-{number:03d}") for number, node in enumerate(first.new_nodes))
    for claim, node in zip(coming, first.new_nodes, strict=True):
        pods = tuple(pod for pod in plain if pod.key in node.pods)
        again = planned(msgspec.structs.replace(cluster, pods=pods, in_flight=(claim,)))
        assert not again.new_nodes
        assert {key for assignment in again.existing_nodes for key in assignment.pods} == set(node.pods)


@LAWS
@given(clusters, amounts)
def test_an_overlay_of_all_offerings_is_as_if_the_types_had_it(cluster: Snapshot, capacity: dict[str, int]) -> None:
    stating = msgspec.structs.replace(cluster, nodeoverlays=(NodeOverlay(ObjectMeta("o"), capacity=capacity),))
    memory = {"memory": -capacity.get(HUGE, 0)}
    native = tuple(
        msgspec.structs.replace(
            instance_type,
            capacity=instance_type.capacity | capacity,
            allocatable=resources.add(instance_type.allocatable, memory) | capacity,
        )
        for instance_type in TYPES
    )
    plan = planned(stating)
    unmarked = tuple(msgspec.structs.replace(new_node, capacity_overlay_applied=False) for new_node in plan.new_nodes)
    assert msgspec.structs.replace(plan, new_nodes=unmarked) == planned(cluster, Catalog({"": native}))


@LAWS
@given(clusters, places.filter(bool), st.sampled_from(({}, {"price_adjustment": "+0%"}, {"capacity": {}})))
def test_an_overlay_that_changes_nothing_changes_no_plan(
    cluster: Snapshot, where: tuple[NodeSelectorRequirement, ...], fields: dict[str, Any]
) -> None:
    idle = msgspec.structs.replace(cluster, nodeoverlays=(NodeOverlay(ObjectMeta("o"), where, **fields),))
    assert planned(idle) == planned(cluster)


@LAWS
@given(clusters, places.filter(bool))
def test_what_nobody_asks_for_strands_nobody(cluster: Snapshot, where: tuple[NodeSelectorRequirement, ...]) -> None:
    free = unlimited(cluster)
    idle = msgspec.structs.replace(free, nodeoverlays=(NodeOverlay(ObjectMeta("o"), where, capacity={FUSE: 4}),))
    assert left(planned(idle)) == left(planned(free))
