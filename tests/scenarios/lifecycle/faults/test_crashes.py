"""Dying between any two changes, and being woken again: one instance and one claim, whatever was lost."""

import pytest

from spotwright.model import labels
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world

# More than the changes from pending pods to initialized nodes.
FURTHEST = 90


def run_with_crash_after(changes: int, *, table_lost: bool = False) -> tuple[World, bool]:
    """A world in which the function that made the ``changes``-th change died there; whether it came that far."""
    world = fresh_world()
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    world.effects.crash_after(changes)
    crashed = False
    for _ in range(400):
        try:
            world.run(1)
        except Crash:
            crashed = True
            if table_lost:
                world.state.clear()
                world.state.current_catalog_key = "catalogs/given"
        if len(world.running_pods()) == 2 and world.effects.select("state", "save"):
            break
    world.effects.crash_after(None)
    return world, crashed


@pytest.mark.parametrize("changes", range(1, FURTHEST))
def test_a_crash_after_any_change_costs_time_but_buys_nothing_twice(changes: int) -> None:
    world, crashed = run_with_crash_after(changes)
    world.run(150)
    assert len(world.running_pods()) == 2
    assert len(world.claims()) == 2
    assert len(world.ec2.all_instances()) == 2, f"after {world.effects.log[changes - 1]}"
    assert {instance_id(claim.provider_id) for claim in world.claims()} == {
        instance.id for instance in world.ec2.live_instances()
    }
    assert all(claim.is_condition_true("Initialized") for claim in world.claims())
    assert crashed, "a whole run makes more changes"


@pytest.mark.parametrize("changes", range(1, FURTHEST, 2))
def test_losing_the_table_at_any_change_leaks_nothing_and_hurts_no_running_node(changes: int) -> None:
    world, _ = run_with_crash_after(changes, table_lost=True)
    ready = {claim.name for claim in world.claims() if claim.is_condition_true("Initialized")}
    world.run(900, until=lambda: len(world.running_pods()) == 2 and _tidy(world))
    assert len(world.running_pods()) == 2
    assert _tidy(world), f"after {world.effects.log[changes - 1]}"
    assert len(world.ec2.all_instances()) <= 4
    # Instances that were bought a second time are too many, and two of all that are ready stay.
    assert len(ready & {claim.name for claim in world.claims()}) >= min(2, len(ready))


def _tidy(world: World) -> bool:
    """Every live instance has exactly one claim and the other way round."""
    live = sorted(instance.id for instance in world.ec2.live_instances())
    return sorted(instance_id(claim.provider_id) for claim in world.claims()) == live


def test_a_claim_that_the_user_deleted_before_the_launch_was_saved_is_not_made_again() -> None:
    world = fresh_world()
    world.deploy(builders.pod("inflate"), 1)
    world.effects.crash_at("cluster", "create_nodeclaim")
    with pytest.raises(Crash):
        world.run(10)
    (claim,) = world.claims()
    world.deploy(builders.pod("inflate"), 0)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(200)
    assert not world.claims()
    assert not world.ec2.all_instances()
    created = [effect.subject for effect in world.effects.select("cluster", "create_nodeclaim")]
    assert created.count(claim.name) == 1


def test_a_claim_deleted_while_its_fleet_is_asked_for_takes_its_instance_along() -> None:
    world = fresh_world()
    world.deploy(builders.pod("inflate"), 1)
    world.effects.crash_at("ec2", "create_fleet")
    with pytest.raises(Crash):
        world.run(10)
    (claim,) = world.claims()
    (instance,) = world.ec2.live_instances()
    assert not claim.provider_id
    world.deploy(builders.pod("inflate"), 0)
    world.cluster.delete("nodeclaims", claim.metadata)
    held = []
    for _ in range(120):
        world.run(1)
        if any(one.id == instance.id and one.state != "terminated" for one in world.ec2.all_instances()):
            held.append(claim.name in {nodeclaim.name for nodeclaim in world.claims()})
    assert all(held)
    assert not world.claims()
    assert not world.ec2.live_instances()


def test_a_claim_deleted_while_another_worker_is_inside_the_call_outlives_it() -> None:
    """The other worker stored its request and has not sent it yet when the claim goes."""
    world = fresh_world()
    world.deploy(builders.pod("inflate"), 1)

    def delete_and_work() -> None:
        (claim,) = world.claims()
        world.deploy(builders.pod("inflate"), 0)
        world.cluster.delete("nodeclaims", claim.metadata)
        for _ in range(3):
            rows = [Doorbell(world.cluster.name, "launch", key.removeprefix("launch#")) for key in world.state.rows]
            lifecycle(world, [*rows, Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
        assert world.claims(), "it may still be given an instance"

    template = _changes_until(world, "ec2", "ensure_launch_template")
    # After the template its instances are counted, then the request is stored.
    world.effects.interject(template + 2, delete_and_work)
    world.run(1)
    assert len(world.ec2.all_instances()) == 1, "the call was made all the same"
    for _ in range(150):
        world.run(1)
        assert world.claims() or not world.ec2.live_instances()
    assert not world.claims()


def _changes_until(world: World, port: str, action: str) -> int:
    """How many changes a world like this makes up to and with that one."""
    twin = fresh_world()
    twin.deploy(builders.pod("inflate"), 1)
    twin.run(1)
    (first, *_) = twin.effects.select(port, action)
    return first.number - len(world.effects.log)


def test_losing_the_table_after_the_purchase_adopts_what_was_bought() -> None:
    world = fresh_world()
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    world.effects.crash_at("ec2", "create_fleet")
    with pytest.raises(Crash):
        world.run(10)
    world.state.clear()
    world.state.current_catalog_key = "catalogs/given"
    assert world.run(200, until=lambda: len(world.running_pods()) == 2)
    world.run(120)
    assert len(world.ec2.all_instances()) == 2
    assert _tidy(world)


def test_losing_the_table_while_instances_are_written_gives_no_instance_to_two_claims() -> None:
    """The first claim of the launch has its instance; the second one adopts what is left of what was bought."""
    world = fresh_world()
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    world.effects.crash_at("cluster", "write_nodeclaim_status")
    with pytest.raises(Crash):
        world.run(10)
    assert [bool(claim.provider_id) for claim in world.claims()] == [True, False]
    world.state.clear()
    world.state.current_catalog_key = "catalogs/given"
    assert world.run(200, until=lambda: all(claim.provider_id for claim in world.claims()))
    assert len({claim.provider_id for claim in world.claims()}) == len(world.claims()) == 2


def test_every_instance_carries_its_launch() -> None:
    world, _ = run_with_crash_after(10_000)
    rows = {row.id for key in world.state.rows if (row := world.state.launch(key.removeprefix("launch#")))}
    assert {instance.tags[labels.LAUNCH_TAG] for instance in world.ec2.all_instances()} <= rows


def test_an_instance_whose_claim_was_torn_out_is_terminated() -> None:
    """Somebody removed the finalizer by hand between the purchase and the hand-over."""
    world = fresh_world()
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    world.effects.crash_at("ec2", "create_fleet")
    with pytest.raises(Crash):
        world.run(10)
    launch = next(iter(world.state.rows)).removeprefix("launch#")
    world.effects.crash_at("state", "save")
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "launch", launch)])
    with pytest.raises(Crash):
        world.run(10)
    row = world.state.launch(launch)
    assert row is not None
    assert row.phase == "launched"
    world.deploy(builders.pod("inflate"), 0)
    torn, _ = world.claims()
    world.cluster.remove("nodeclaims", torn.name)
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "launch", launch)])
    world.run(5)
    assert row.instances[torn.name] not in {instance.id for instance in world.ec2.live_instances()}
