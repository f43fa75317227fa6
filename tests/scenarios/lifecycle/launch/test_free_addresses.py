"""Subnets with few free addresses: they are not asked for again and again, and pods land where there is room."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from spotwright.aws.nodeclass.readiness import DiscoveredSubnet
from spotwright.errors import Unavailable
from spotwright.model.ec2.fleet import FleetResult
from spotwright.model.karpenter.nodeclass import Subnet
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.account import offering_health_store

FIRST = builders.ZONES[0]
SMALL = f"subnet-{FIRST[-1]}"


def described(world: World, **free: int) -> World:
    """EC2 describes these subnets of the first zone, and has as many addresses."""
    found = [DiscoveredSubnet(name.replace("_", "-"), FIRST, "", count, "vpc-1") for name, count in free.items()]
    offering_health_store.record_subnets(world.state, found, now_ms=world.clock.milliseconds())
    world.ec2.free_addresses |= {subnet.id: subnet.available_ip_address_count for subnet in found}
    return world


def pods_one_after_another(world: World, count: int) -> Counter[str]:
    """The subnets of the nodes, each of which has a pod that came by itself."""
    for number in range(1, count + 1):
        world.deploy(builders.pod("inflate", cpu_millicores=1800), number)
        assert world.run(120, until=lambda number=number: len(world.running_pods()) == number)  # type: ignore[misc]
    return Counter(instance.subnet_id for instance in world.ec2.live_instances())


@pytest.fixture
def first_zone_is_cheapest(world: World) -> World:
    """EC2 takes the first offering that it can start."""
    world.cluster.put("nodepools", builders.nodepool(requirements=builders.capacity_types("spot")))
    return world


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_nodes_that_join_take_the_addresses_for_their_pods(world: World) -> None:
    assert pods_one_after_another(described(world, subnet_a=11), 3)[SMALL] == 1


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_a_subnet_whose_addresses_are_taken_is_not_asked_for(world: World) -> None:
    """EC2 is not even asked for what a node took for sure."""
    used = pods_one_after_another(described(world, subnet_a=1), 3)
    assert used[SMALL] == 1
    assert not any(health.code for health in world.state.health.values())


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_what_is_needed_in_the_zone_is_launched_there_while_an_address_may_be_left(world: World) -> None:
    """With custom networking pods take no address of the node's subnet."""
    only = tuple(subnet for subnet in builders.nodeclass().subnets if subnet.zone == FIRST)
    world.cluster.put("ec2nodeclasses", builders.nodeclass(subnets=only))
    assert pods_one_after_another(described(world, subnet_a=11), 3) == {SMALL: 3}


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_of_two_subnets_the_fuller_is_left_alone(world: World) -> None:
    """The status of the class names the first, whose addresses a launch has taken meanwhile."""
    two = (Subnet("subnet-x", FIRST), Subnet("subnet-y", FIRST))
    world.cluster.put("ec2nodeclasses", builders.nodeclass(subnets=two))
    used = pods_one_after_another(described(world, subnet_x=80, subnet_y=60), 2)
    assert used == {"subnet-x": 1, "subnet-y": 1}


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_a_description_shows_what_earlier_launches_really_took(world: World) -> None:
    described(world, subnet_a=11)
    assert pods_one_after_another(world, 1)[SMALL] == 1
    world.run(180)
    assert pods_one_after_another(described(world, subnet_a=10), 2)[SMALL] == 2


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_a_launch_that_ec2_has_not_answered_yet_counts(world: World) -> None:
    """Another launch looks for a subnet beside it."""
    usual, tokens = described(world, subnet_a=11).ec2.create_fleet, list[str]()

    def answer_the_second(request: Mapping[str, Any]) -> FleetResult:
        tokens.append(request["ClientToken"])
        if tokens[-1] == tokens[0] and not world.ec2.requests:
            raise Unavailable("no answer")
        return usual(request)

    world.ec2.create_fleet = answer_the_second  # type: ignore[method-assign]
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    world.run(2)
    assert not world.ec2.requests
    world.deploy(builders.pod("other", cpu_millicores=1800), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    named = [
        {option["SubnetId"] for config in request["LaunchTemplateConfigs"] for option in config["Overrides"]}
        for request in world.ec2.requests
    ]
    assert [SMALL in subnets for subnets in named] == [False, True]


@pytest.mark.usefixtures("first_zone_is_cheapest")
def test_an_old_description_counts_no_more(world: World) -> None:
    """Nobody resolves the class: what EC2 said long ago says nothing of now."""
    described(world, subnet_a=0)
    world.ec2.free_addresses.clear()
    world.run(1300)
    assert pods_one_after_another(world, 1)[SMALL] == 1


def test_a_subnet_that_says_it_is_full_is_left_alone_for_a_while(world: World) -> None:
    described(world, subnet_a=500)
    world.ec2.free_addresses[SMALL] = 0
    world.cluster.put("nodepools", builders.nodepool(requirements=builders.capacity_types("spot")))
    assert pods_one_after_another(world, 2)[SMALL] == 0
    refused = [health for health in world.state.health.values() if health.code]
    assert [(health.key, health.failures) for health in refused] == [(f"subnet:{SMALL}:{FIRST}", 1)]
