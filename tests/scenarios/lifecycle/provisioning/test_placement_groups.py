"""Nodes in placement groups: they say in which partition they are, and a full group does not stop other classes."""

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclass import PlacementGroup
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.pod_constraints import TopologySpreadConstraint
from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirement, Requirements
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.real_forwarder import RealForwarder

KEY = labels.PLACEMENT_GROUP_PARTITION
GROUP = PlacementGroup("pg-1", "kafka", "partition", 3)


def partitioned() -> World:
    """The one class starts its nodes in a group with three partitions."""
    world = World(
        forwarder=RealForwarder,
        catalog=Catalog(
            {"": tuple(_in_partitions(instance_type) for instance_type in builders.small_catalog().instance_types(""))}
        ),
    )
    world.cluster.put("ec2nodeclasses", builders.nodeclass(placement_group=GROUP))
    world.cluster.put("nodepools", builders.nodepool())
    world.ec2.partitions["pg-1"] = 3
    return world


def _in_partitions(instance_type: InstanceType) -> InstanceType:
    told = {
        labels.PLACEMENT_GROUP_ID: Requirement(labels.PLACEMENT_GROUP_ID, False, frozenset(("pg-1",))),
        KEY: Requirement(KEY, False, frozenset(GROUP.partition_names)),
    }
    offerings = tuple(
        msgspec.structs.replace(
            offering,
            requirements=Requirements(
                offering.requirements.by_key | {KEY: Requirement(KEY, False, frozenset((name,)))}
            ),
        )
        for offering in instance_type.offerings
        for name in GROUP.partition_names
    )
    stated = Requirements(instance_type.requirements.by_key | told)
    return msgspec.structs.replace(instance_type, requirements=stated, offerings=offerings)


def test_pods_are_spread_over_partitions_on_nodes_that_are_in_them() -> None:
    world = partitioned()
    every = (NodeSelectorRequirement("app", Operator.IN, ("kafka",)),)
    broker = builders.pod(
        "kafka",
        cpu_millicores=1500,
        labels={"app": "kafka"},
        topology_spread_constraints=(TopologySpreadConstraint(KEY, 1, every),),
    )
    world.deploy(broker, 6)
    assert world.run(200, until=lambda: len(world.running_pods()) == 6)
    nodes = {node.name: node.metadata.labels for node in world.cluster.nodes()}
    per_partition = sorted(nodes[pod.node_name][KEY] for pod in world.running_pods())
    assert per_partition == ["1", "1", "2", "2", "3", "3"]
    for claim in world.claims():
        asked = next(expression for expression in claim.requirements if expression.key == KEY)
        (instance,) = (one for one in world.ec2.live_instances() if claim.provider_id.endswith(one.id))
        assert asked.values == (str(instance.partition_number),)
        assert claim.metadata.labels[labels.PLACEMENT_GROUP_ID] == "pg-1"


def test_a_node_is_let_in_when_ec2_says_in_which_partition_it_is() -> None:
    world = partitioned()
    world.ec2.partition_lag_seconds = 90
    world.deploy(builders.pod("inflate"), 1)
    world.run(80)
    (claim,), (node,) = world.claims(), world.cluster.nodes()
    registered = find_condition(claim.conditions, "Registered")
    assert claim.metadata.labels[KEY] == ""
    assert registered is not None
    assert (registered.status, registered.reason) == ("Unknown", "RegistrationHookPending")
    assert not node.is_registered
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,), (node,) = world.claims(), world.cluster.nodes()
    (instance,) = world.ec2.live_instances()
    assert instance.partition_number
    assert claim.metadata.labels[KEY] == node.metadata.labels[KEY] == str(instance.partition_number)


def test_a_partition_without_capacity_is_left_alone_and_the_others_are_not() -> None:
    world = partitioned()
    world.ec2.capacity[("*", "*", "*")] = 0
    world.deploy(builders.pod("two", node_selector={KEY: "2"}), 1)
    world.run(20)
    assert {row.scope for row in world.state.health.values()} == {"pg-1/2"}
    world.ec2.capacity.clear()
    world.deploy(builders.pod("three", node_selector={KEY: "3"}), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
