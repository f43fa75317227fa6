"""A zone that traffic is shifted away from: nothing there is ended, named or taken for gone until the shift is over."""

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclass import Subnet
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.zonal_shifts import shifted_zones
from tests.scenarios.lifecycle.conftest import fresh_world

IDS = {zone: f"az-{number}" for number, zone in enumerate(builders.ZONES)}


@pytest.fixture
def world() -> World:
    """Two nodes that run a pod each, in different zones."""
    made = fresh_world()
    subnets = tuple(Subnet(f"subnet-{zone[-1]}", zone, IDS[zone]) for zone in builders.ZONES)
    made.cluster.put("ec2nodeclasses", builders.nodeclass(subnets=subnets))
    for number, zone in enumerate(builders.ZONES[:2]):
        made.deploy(builders.pod(f"in{number}", cpu_millicores=1800, node_selector={labels.ZONE: zone}), 1)
    assert made.run(60, until=lambda: len(made.running_pods()) == 2)
    made.run(20)
    return made


def shift(world: World, *zones: str) -> None:
    shifted = tuple(IDS[zone] for zone in zones)
    world.catalogs.catalog = msgspec.structs.replace(world.catalogs.catalog, shifted_zone_ids=shifted)


def instance_in(world: World, zone: str) -> str:
    (claim,) = (nodeclaim for nodeclaim in world.claims() if nodeclaim.metadata.labels[labels.ZONE] == zone)
    return instance_id(claim.provider_id)


def delete_all(world: World) -> None:
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)


def test_a_shift_may_be_known_seconds_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog learns of it within minutes; the key is not read for each invocation."""
    shift(world, builders.ZONES[0])
    read: list[str] = []
    monkeypatch.setattr(world.state, "catalog_key", lambda: read.append("newest"))
    assert shifted_zones(world.ports) == {builders.ZONES[0]}
    assert not read


def test_instances_there_are_kept_until_the_shift_is_over(world: World) -> None:
    kept = instance_in(world, builders.ZONES[0])
    shift(world, builders.ZONES[0])
    delete_all(world)
    world.run(400)
    assert [instance.id for instance in world.ec2.live_instances()] == [kept]
    assert [instance_id(claim.provider_id) for claim in world.claims()] == [kept]
    assert not world.running_pods(), "the node is drained all the same"
    shift(world)
    assert world.run(200, until=lambda: not world.claims() and not world.ec2.live_instances())


@pytest.mark.parametrize("says", ["NotFound", "terminated"])
def test_an_instance_that_ec2_does_not_show_there_is_not_taken_for_gone(world: World, says: str) -> None:
    zone = builders.ZONES[0]
    shift(world, zone)
    if says == "NotFound":
        world.ec2.forget_instance(instance_in(world, zone))
    else:
        world.ec2.stop(instance_in(world, zone), after_seconds=0)
    delete_all(world)
    world.run(400)
    assert [nodeclaim.metadata.labels[labels.ZONE] for nodeclaim in world.claims()] == [zone]
    shift(world)
    assert world.run(400, until=lambda: not world.claims())


def test_instances_there_are_named_when_the_shift_is_over(world: World) -> None:
    zone = builders.ZONES[2]
    shift(world, zone)
    world.deploy(builders.pod("late", cpu_millicores=1800, node_selector={labels.ZONE: zone}), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    world.run(120)
    late = world.ec2.instance(instance_in(world, zone))
    assert late is not None
    assert labels.NODECLAIM not in late.tags
    shift(world)
    assert world.run(
        700, until=lambda: all(labels.NODECLAIM in instance.tags for instance in world.ec2.live_instances())
    )


def test_orphans_there_are_left_until_the_shift_is_over(world: World) -> None:
    shift(world, builders.ZONES[0])
    kept = instance_in(world, builders.ZONES[0])
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.remove("nodeclaims", claim.name)
    world.state.rows.clear()
    world.run(1300)
    assert [instance.id for instance in world.ec2.live_instances()] == [kept]
    shift(world)
    assert world.run(1300, until=lambda: not world.ec2.live_instances())


def test_ec2_is_not_asked_about_instances_there(world: World) -> None:
    zone = builders.ZONES[0]
    there = instance_in(world, zone)
    shift(world, zone)
    world.ec2.listed_ids = frozenset()
    asked = list[str]()
    usual = world.ec2.instance

    def instance(instance_id: str) -> Instance | None:
        asked.append(instance_id)
        return usual(instance_id)

    world.ec2.instance = instance  # type: ignore[method-assign]
    world.run(300)
    delete_all(world)
    world.run(60)
    assert asked
    assert there not in asked
