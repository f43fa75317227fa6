"""What is laid over a cluster state: rows that it does not show yet, and what is read besides."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from spotwright.disruption.rollouts import REPLACEMENT_TIMEOUT
from spotwright.lifecycle.liveness import LAUNCH_TIMEOUT
from spotwright.model.cluster_state import ClusterState, KindState
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import DaemonSet
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim
from spotwright.model.snapshot import NODE_OVERLAY, Snapshot
from spotwright.scheduling.plan import NewNode
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.launch.phases import STALE_AFTER
from spotwright.workflows.lifecycle.status.nodepools import update_nodepools
from spotwright.workflows.planning import overlay
from spotwright.workflows.planning.cluster_state import FRESH, IN_CONTACT
from spotwright.workflows.planning.overlay import SHOWN_AFTER, BehindError, lay_over, to_snapshot
from spotwright.workflows.planning.snapshot import instances_going
from spotwright.workflows.ports.rows import CommandRow, LaunchRow, epoch_ms
from tests.scenarios.lifecycle.conftest import fresh_world

POD = builders.pod("inflate", cpu_millicores=1800)


@pytest.fixture
def world() -> World:
    """Two nodes with a pod each; the state is the cluster's until a test lies."""
    world = fresh_world()
    world.cluster_state.lag_seconds = 0
    world.deploy(POD, 2)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    world.run(60)
    return world


def state_of(world: World) -> ClusterState:
    shipped = world.cluster_state.head(now=world.clock.now())
    assert shipped is not None
    return world.cluster_state.load(shipped.head)


def laid_over(
    world: World,
    state: ClusterState,
    *,
    launches: Iterable[LaunchRow] = (),
    commands: Iterable[CommandRow] = (),
    nodes_read: Iterable[str] = (),
) -> Snapshot:
    snapshot = to_snapshot(state, world.cluster, world.settings, world.clock.now())
    return lay_over(snapshot, state, world.cluster, launches, commands, frozenset(nodes_read))


def launch_rows(world: World) -> tuple[LaunchRow, ...]:
    return world.state.launches(created_after=0)


def hide(state: ClusterState, **kinds: tuple[object, ...]) -> ClusterState:
    return msgspec.structs.replace(state, objects=msgspec.structs.replace(state.objects, **kinds))


def test_a_state_that_shows_everything_stays_as_it_is(world: World) -> None:
    state = state_of(world)
    snapshot = laid_over(world, state, launches=launch_rows(world))
    objects = state.objects
    assert (snapshot.nodeclaims, snapshot.nodes, snapshot.pods) == (objects.nodeclaims, objects.nodes, objects.pods)


def test_claims_that_launches_created_are_read_where_they_are_not_shown(world: World) -> None:
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=()), launches=launch_rows(world))
    assert snapshot.nodeclaims == world.claims()


def test_a_claim_that_was_deleted_since_is_not_brought_back(world: World) -> None:
    gone, stays = world.claims()
    world.cluster.remove("nodeclaims", gone.name)
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=()), launches=launch_rows(world))
    assert snapshot.nodeclaims == (stays,)


def test_a_claim_that_somebody_else_gave_the_name_is_shown_as_it_is(world: World) -> None:
    theirs, _ = world.claims()
    metadata = msgspec.structs.replace(theirs.metadata, uid="another")
    world.cluster.put("nodeclaims", msgspec.structs.replace(theirs, metadata=metadata))
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=()), launches=launch_rows(world))
    assert snapshot.nodeclaims == world.claims()


def test_claims_of_a_launch_that_just_ended_count_by_its_row_where_they_are_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 1)
    first, second = world.claims()
    larger = {"cpu": 1800}
    rows = [
        msgspec.structs.replace(row, created=epoch_ms(world.clock.now()), requests={second.name: larger})
        for row in launch_rows(world)
    ]
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=()), launches=rows)
    in_flight = [(planned.nodeclaim.name, planned.nodeclaim.requests) for planned in snapshot.in_flight]
    assert in_flight == [(first.name, first.requests), (second.name, larger)]


def test_many_claims_that_a_state_should_show_are_those_of_the_api_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their watch had contact long after the launch was decided; its NodeClaims are gone, or it was late itself."""
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 1)
    decided = epoch_ms(world.clock.now() - SHOWN_AFTER)
    rows = [msgspec.structs.replace(row, created=decided) for row in launch_rows(world)]
    state, reads = hide(state_of(world), nodeclaims=()), world.effects.reads.copy()
    snapshot = laid_over(world, state, launches=rows)
    assert (snapshot.nodeclaims, snapshot.in_flight) == (world.claims(), ())
    assert (world.effects.reads - reads)["cluster", "nodeclaim"] == 0, "they are listed"
    silent = {**state.kinds, "NodeClaim": KindState("1", world.clock.now() - timedelta(seconds=1))}
    snapshot = laid_over(world, msgspec.structs.replace(state, kinds=silent), launches=rows)
    assert (snapshot.nodeclaims, len(snapshot.in_flight)) == ((), 2), "they may still come"


def test_of_many_claims_that_are_not_shown_those_that_should_be_are_read_and_the_others_count_by_their_rows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are too many to be read, all of them, and those that should be shown are few."""
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 1)
    (first, second), now = world.claims(), world.clock.now()
    (row,) = launch_rows(world)
    uids, instances = row.uids, row.instances
    earlier, later = (
        msgspec.structs.replace(
            row, id=name, uids={name: uids[name]}, instances={name: instances[name]}, created=epoch_ms(at)
        )
        for name, at in ((first.name, now - SHOWN_AFTER), (second.name, now - SHOWN_AFTER + timedelta(seconds=1)))
    )
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=()), launches=(earlier, later))
    assert snapshot.nodeclaims == (first,)
    assert [coming.nodeclaim.name for coming in snapshot.in_flight] == [second.name]


def test_a_state_that_says_its_watch_had_contact_at_the_beginning_of_time_is_laid_over(world: World) -> None:
    """Nobody who may write a state can keep planners from planning."""
    state = state_of(world)
    kinds = {**state.kinds, "NodeClaim": KindState("1", datetime.min.replace(tzinfo=UTC))}
    snapshot = laid_over(world, msgspec.structs.replace(state, kinds=kinds), launches=launch_rows(world))
    assert snapshot.nodeclaims == world.claims()


@pytest.mark.parametrize("silence", [timedelta(), IN_CONTACT])
def test_a_state_without_many_claims_of_old_launches_is_not_used(
    silence: timedelta, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 1)
    world.run(45)
    state = hide(state_of(world), nodeclaims=())
    kinds = {**state.kinds, "NodeClaim": KindState("1", world.clock.now() - silence)}
    with pytest.raises(BehindError, match="does not show 2 NodeClaims"):
        laid_over(world, msgspec.structs.replace(state, kinds=kinds), launches=launch_rows(world))


def test_a_claim_that_its_launch_gave_up_is_left_out(world: World) -> None:
    state = state_of(world)
    unlaunched = tuple(msgspec.structs.replace(claim, provider_id="") for claim in state.objects.nodeclaims)
    rows = [msgspec.structs.replace(row, phase="done", instances={}) for row in launch_rows(world)]
    assert not laid_over(world, hide(state, nodeclaims=unlaunched), launches=rows).nodeclaims
    assert laid_over(world, state, launches=rows).nodeclaims == world.claims(), "with an instance they are nodes"


@pytest.mark.parametrize(
    ("phase", "leaves"), [("planned", False), ("waiting", True), ("done", True), ("aborted", False)]
)
def test_the_claim_of_a_disruption_that_began_is_on_its_way_out(world: World, phase: str, leaves: bool) -> None:
    claim, _ = world.claims()
    command = CommandRow(
        "c", world.cluster.name, "d", "Empty", (claim.name,), {claim.name: claim.metadata.uid}, phase=phase
    )
    snapshot = laid_over(world, state_of(world), commands=[command])
    leaving = [claim.name for claim in snapshot.nodeclaims if claim.metadata.deletion_timestamp]
    assert leaving == ([claim.name] if leaves else [])


@pytest.mark.parametrize(
    ("changes", "leaves"),
    [
        ({}, False),
        ({"forced": True}, True),
        ({"initialized": True}, True),
        ({"is_initialized": True}, True),
        ({"phase": "done"}, True),
    ],
    ids=["waits", "EC2 takes it anyway", "was initialized", "is initialized, unnoticed", "went on"],
)
def test_a_node_whose_replacement_goes_itself_stays_and_counts_in_limits(
    world: World, changes: dict[str, object], leaves: bool
) -> None:
    """Else what is launched for the pods of the replacement could exceed the limits, when its command is given up."""
    claim, replacement = world.claims()
    command = CommandRow(
        "c", world.cluster.name, "d", "Drifted", (claim.name,), {claim.name: claim.metadata.uid},
        phase=str(changes.get("phase", "waiting")), forced="forced" in changes, replacements=(replacement.name,),
        initialized_replacements=(replacement.name,) if "initialized" in changes else (),
    )  # fmt: skip
    state = state_of(world)
    deleted = msgspec.structs.replace(replacement.metadata, deletion_timestamp=world.clock.now())
    conditions = (Condition("Initialized", "True" if "is_initialized" in changes else "False"),)
    going = msgspec.structs.replace(replacement, metadata=deleted, conditions=conditions)
    state = hide(state, nodeclaims=(claim, going))
    snapshot = laid_over(world, state, commands=[command])
    leaving = {claim.name for claim in snapshot.nodeclaims if claim.metadata.deletion_timestamp}
    assert (claim.name in leaving) is leaves
    instances = instances_going(state_snapshot(world, state), (), [command], ("Drifted",))
    assert bool(instances) is (leaves and command.phase == "waiting")


@pytest.mark.parametrize("is_coming", [True, False])
def test_a_node_whose_replacement_is_gone_stays_and_one_whose_replacement_is_to_be_created_goes(
    world: World, *, is_coming: bool
) -> None:
    """A NodeClaim without an instance is gone as soon as it is deleted."""
    claim, replacement = world.claims()
    uids = {claim.name: claim.metadata.uid}
    command = CommandRow(
        "c", world.cluster.name, "d", "Drifted", (claim.name,), uids, phase="waiting", replacements=(replacement.name,)
    )
    (launch,) = (row for row in launch_rows(world) if replacement.name in row.claims)
    if is_coming:
        launch = msgspec.structs.replace(launch, phase="planned", uids={}, instances={})
    world.cluster.remove("nodeclaims", replacement.name)
    state = hide(state_of(world), nodeclaims=(claim,))
    snapshot = laid_over(world, state, launches=[launch], commands=[command])
    (left,) = (left for left in snapshot.nodeclaims if left.name == claim.name)
    assert (left.metadata.deletion_timestamp is not None) is is_coming
    coming = {replacement.name} if is_coming else set()
    plain = state_snapshot(world, state)
    assert bool(instances_going(plain, (), [command], ("Drifted",), uncreated=coming)) is is_coming


def state_snapshot(world: World, state: ClusterState) -> Snapshot:
    return to_snapshot(state, world.cluster, world.settings, world.clock.now())


def test_a_pod_that_was_bound_since_is_on_its_node_and_a_pod_that_is_gone_is_not_there(world: World) -> None:
    bound, gone = state_of(world).objects.pods
    world.cluster.remove("pods", gone.key)
    late = hide(state_of(world), pods=tuple(msgspec.structs.replace(pod, node_name="") for pod in (bound, gone)))
    assert laid_over(world, late).pods == (bound,)


def test_a_pod_that_was_made_again_by_its_name_is_on_its_node(world: World) -> None:
    """As a StatefulSet does."""
    before, other = state_of(world).objects.pods
    earlier = msgspec.structs.replace(before.metadata, uid="earlier")
    late = hide(state_of(world), pods=(msgspec.structs.replace(before, metadata=earlier, node_name=""), other))
    assert laid_over(world, late).pods == (before, other)


def test_a_pod_that_came_since_waits(world: World) -> None:
    late = state_of(world)
    new = world.cluster.put("pods", builders.pod("new", unschedulable=True, phase="Pending"))
    assert new in laid_over(world, late).pods


def test_many_waiting_pods_are_believed_while_their_watch_is_in_contact(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MAXIMUM_WAITING", 1)
    monkeypatch.setattr(overlay, "FIRST_WAITING", 1)
    state = state_of(world)
    waiting = tuple(msgspec.structs.replace(pod, node_name="") for pod in state.objects.pods)
    hidden = tuple(builders.pod(name, unschedulable=True, phase="Pending") for name in ("a", "b"))
    hidden = tuple(world.cluster.put("pods", pod) for pod in hidden)
    assert laid_over(world, hide(state, pods=waiting)).pods == (hidden[0], *waiting), "those and the first that wait"
    silent = {
        kind: msgspec.structs.replace(at, contacted=at.contacted - timedelta(seconds=6))
        for kind, at in state.kinds.items()
    }
    late = msgspec.structs.replace(hide(state, pods=waiting), kinds=silent)
    assert laid_over(world, late).pods == (*hidden, *state.objects.pods), "all are read"
    for pod in hidden:
        world.cluster.remove("pods", pod.key)
    assert laid_over(world, hide(state, pods=waiting)).pods == state.objects.pods, "fewer wait: these are all"


def test_a_state_in_which_many_pods_wait_that_run_is_not_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "MAXIMUM_BOUND_READS", 1)
    state = state_of(world)
    waiting = tuple(msgspec.structs.replace(pod, node_name="") for pod in state.objects.pods)
    with pytest.raises(BehindError, match="2 pods that wait in it"):
        laid_over(world, hide(state, pods=waiting))


def test_the_pods_of_a_node_that_is_read_are_those_of_the_api_server(world: World) -> None:
    claim, _ = world.claims()
    late = hide(state_of(world), pods=(), nodes=())
    snapshot = laid_over(world, late, nodes_read=[claim.node_name])
    assert [pod.node_name for pod in snapshot.pods] == [claim.node_name]
    assert [node.name for node in snapshot.nodes] == [claim.node_name]


@pytest.mark.parametrize("longest", [STALE_AFTER, REPLACEMENT_TIMEOUT, LAUNCH_TIMEOUT])
def test_rows_are_looked_at_for_longer_than_a_state_may_lack_what_they_did(longest: timedelta) -> None:
    assert longest + IN_CONTACT + FRESH < overlay.RECENT


def test_the_volume_claim_of_a_pod_that_came_since_is_read(world: World) -> None:
    late = state_of(world)
    metadata = msgspec.structs.replace(POD.metadata, name="data", namespace="default")
    volume = world.cluster.put("persistentvolumeclaims", PersistentVolumeClaim(metadata, "", "zonal"))
    world.cluster.put("pods", builders.pod("new", phase="Pending", volume_claim_names=("data",)))
    assert laid_over(world, late).storage.persistent_volume_claims == (volume,)


def test_where_many_volume_claims_are_not_shown_all_are_known(world: World) -> None:
    late, names = state_of(world), [f"data-{number:03}" for number in range(overlay.MAXIMUM_READS + 10)]
    for name in names:
        metadata = builders.pod(name).metadata
        world.cluster.put("persistentvolumeclaims", PersistentVolumeClaim(metadata, "", "zonal"))
        world.cluster.put("pods", builders.pod(f"of-{name}", phase="Pending", volume_claim_names=(name,)))
    shown = laid_over(world, late).storage.persistent_volume_claims
    assert sorted(claim.metadata.name for claim in shown) == names


def test_a_state_is_used_though_the_status_of_a_pool_with_limits_still_counts_a_node_that_goes(world: World) -> None:
    """A status is some seconds behind, and in a large cluster a minute; there nodes go all the time."""
    world.cluster.update("nodepools", "default", limits={"cpu": 10**6})
    update_nodepools(world.ports, now=world.clock.now())
    going, _ = world.claims()
    world.cluster.delete("nodeclaims", going.metadata)
    (pool,) = world.cluster.nodepools()
    assert pool.node_count == 2
    snapshot = laid_over(world, state_of(world))
    assert [claim.name for claim in snapshot.nodeclaims if claim.metadata.deletion_timestamp is not None] == [
        going.name
    ]


def test_new_claims_of_a_pool_with_limits_are_read_beside_many_of_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the other pool are taken from their launches, without a size."""
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 2)
    (pool,) = world.cluster.nodepools()
    world.cluster.put("nodepools", msgspec.structs.replace(pool, limits={"cpu": 10**6}))
    rows = [msgspec.structs.replace(row, created=epoch_ms(world.clock.now())) for row in launch_rows(world)]
    node = msgspec.structs.replace(msgspec.json.decode(rows[0].node, type=NewNode), nodepool="other")
    names = ("other-1", "other-2", "other-3")
    uids = {name: f"uid of {name}" for name in names}
    other = msgspec.structs.replace(
        rows[0], id="other", node=msgspec.json.encode(node).decode(), claims=names, uids=uids, instances={},
        phase="launching",
    )  # fmt: skip
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=(), nodes=()), launches=(*rows, other))
    assert snapshot.nodeclaims == world.claims()
    assert tuple(node.nodeclaim.name for node in snapshot.in_flight) == names


@pytest.mark.parametrize(
    ("changes", "is_read"),
    [
        ({"limits": {"cpu": 10**6}}, False),
        ({"limits": {"cpu": 10**6}, "node_count": 20_000}, True),
        ({"replicas": 2, "node_count": 20_000}, True),
        ({"node_count": 20_000}, False),
    ],
    ids=["few nodes", "many nodes", "static", "without limits"],
)
def test_new_claims_are_read_for_as_long_as_a_status_may_not_count_them(
    world: World, changes: dict[str, object], is_read: bool
) -> None:
    world.cluster.update("nodepools", "default", **changes)
    created = epoch_ms(world.clock.now() - timedelta(seconds=150))
    rows = [msgspec.structs.replace(row, created=created, due=0) for row in launch_rows(world)]
    small = tuple(msgspec.structs.replace(claim, capacity={"cpu": 1}) for claim in world.claims())
    snapshot = laid_over(world, hide(state_of(world), nodeclaims=small), launches=rows)
    assert snapshot.nodeclaims == (world.claims() if is_read else small)


def test_daemonsets_are_those_of_the_api_server(world: World) -> None:
    def daemonset(name: str) -> DaemonSet:
        return DaemonSet(ObjectMeta(name, "kube-system"), builders.daemonset_pod(name, ""))

    world.cluster.put("daemonsets", daemonset("agent"))
    state = hide(state_of(world), daemonsets=(daemonset("lie"),))
    assert [each.metadata.name for each in laid_over(world, state).daemonsets] == ["agent"]


@pytest.mark.parametrize(("gates", "names"), [((), []), ((NODE_OVERLAY,), ["stated"])])
def test_nodeoverlays_are_those_of_the_api_server_where_their_gate_is_on(
    world: World, gates: tuple[str, ...], names: list[str]
) -> None:
    world.settings = msgspec.structs.replace(world.settings, feature_gates=gates)
    world.cluster.put("nodeoverlays", NodeOverlay(ObjectMeta("stated"), price="1"))
    state = hide(state_of(world), nodeoverlays=(NodeOverlay(ObjectMeta("lie"), price="0"),))
    assert [overlay.name for overlay in laid_over(world, state).nodeoverlays] == names
