"""Planning: nobody is planned for twice, and of two planners one decision becomes true."""

from spotwright.simulation import given
from spotwright.simulation.world import World
from spotwright.workflows import decisions
from spotwright.workflows.provision import commit_plan, decide, gather, provision
from spotwright.workflows.replay import replay


def planned(world: World) -> int:
    """How many nodes one invocation decides."""
    served = provision(world, clock=world.clock.now)
    return sum(len(launch.claims) for decision in served.decisions for launch in decision.launches)


def test_a_repeated_doorbell_buys_nothing_again(world: World) -> None:
    world.deploy(given.pod("web"), 3)
    world.kubelets.look()
    assert planned(world) >= 1
    assert planned(world) == 0


def test_of_two_planners_on_one_version_the_second_plans_on_what_the_first_decided(world: World) -> None:
    world.deploy(given.pod("web"), 3)
    world.kubelets.look()
    snapshot = gather(
        cluster=world.cluster, state=world.state, blobs=world.blobs, settings=world.settings, now=world.clock.now()
    )
    version = world.state.cluster().version
    assert planned(world) >= 1
    late = commit_plan(
        state=world.state, blobs=world.blobs, snapshot=snapshot, based_on=version,
        plan=decide(snapshot, world.catalogs.read("")), kind="provision", why="late",
    )  # fmt: skip
    assert late is None
    assert len(world.state.cluster().unacted) == 1


def test_a_paused_cluster_is_not_planned_for(world: World) -> None:
    world.deploy(given.pod("web"), 1)
    world.kubelets.look()
    world.state.row = type(world.state.row)(world.cluster.name, paused=True)
    assert planned(world) == 0


def test_a_pod_without_a_place_is_told_why(world: World) -> None:
    world.deploy(given.pod("huge", cpu_millicores=10_000_000), 1)
    world.kubelets.look()
    assert planned(world) == 0
    told = [event for event in world.cluster.events if event.reason == "FailedScheduling"]
    assert told
    assert "cpu" in told[0].message


def test_a_stored_decision_is_replayed_bit_for_bit(world: World) -> None:
    world.deploy(given.pod("web"), 5)
    world.kubelets.look()
    planned(world)
    replayed = replay(world.state.cluster().head, blobs=world.blobs, catalogs=world.catalogs)
    assert replayed.agrees
    assert replayed.same_code
    assert decisions.encode(replayed.decision) == world.blobs.get(world.state.cluster().head)
