"""Small simulated clusters whose catalog is stored and read as the functions store and read it."""

from typing import Final

import msgspec

from spotwright.aws.instance_types import catalog_codec
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import PlacementGroup
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_labels
from spotwright.settings import decision_settings
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.stored.recorded import read_catalogs_from

# A pod that fills a small node.
POD: Final = builders.pod("inflate", cpu_millicores=1800)
RESERVATION: Final = {
    labels.RESERVATION_ID: "cr-1", labels.RESERVATION_TYPE: "default", labels.RESERVATION_INTERRUPTIBLE: "false",
}  # fmt: skip
PARTITIONS: Final = ("1", "2")


def start(catalog: Catalog) -> World:
    """A cluster with a ready class and a pool."""
    body = catalog_codec.encode(catalog)
    world = World(catalog_codec.decode(body))
    world.state.set_catalog_key(world.blobs.put("catalogs", body), world.clock.milliseconds())
    read_catalogs_from(world)
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    world.cluster.put("nodepools", builders.nodepool())
    return world


def start_pending() -> World:
    """Two pods wait, each for a node; a single launch will make both."""
    world = start(builders.small_catalog())
    world.deploy(POD, 2)
    return world


def start_running() -> World:
    """Two pods run on a spot node each, and what led there is done."""
    world = start_pending()
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    world.run(40)
    return world


def start_static() -> World:
    """A static NodePool of three nodes, all of them there."""
    world = start(builders.small_catalog())
    world.settings = decision_settings({"FEATURE_GATES": "StaticCapacity=true"})
    small = (NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("c5.large",)),)
    world.cluster.put("nodepools", builders.nodepool("fixed", replicas=3, requirements=small))
    assert world.run(180, until=lambda: sum(claim.is_condition_true("Initialized") for claim in world.claims()) == 3)
    world.run(70)
    return world


def start_reserved() -> World:
    """Two instances are reserved, nodes start in a placement group, and a pod asks for its second partition."""
    types = tuple(_reserve(_partition(instance_type)) for instance_type in builders.small_catalog().instance_types(""))
    world = start(Catalog({"": types}))
    group = PlacementGroup("pg-1", "kafka", "partition", len(PARTITIONS))
    world.cluster.put("ec2nodeclasses", builders.nodeclass(placement_group=group))
    world.ec2.reservations["cr-1"], world.ec2.partitions["pg-1"] = 2, len(PARTITIONS)
    world.deploy(msgspec.structs.replace(POD, node_selector={labels.PLACEMENT_GROUP_PARTITION: "2"}), 1)
    return world


def _partition(instance_type: InstanceType) -> InstanceType:
    """The type with each of its offerings once for each partition."""
    offerings = tuple(
        msgspec.structs.replace(
            offering, requirements=_narrow(offering.requirements, labels.PLACEMENT_GROUP_PARTITION, partition)
        )
        for offering in instance_type.offerings
        for partition in PARTITIONS
    )
    requirements = _narrow(instance_type.requirements, labels.PLACEMENT_GROUP_ID, "pg-1")
    requirements = _narrow(requirements, labels.PLACEMENT_GROUP_PARTITION, *PARTITIONS)
    return msgspec.structs.replace(instance_type, requirements=requirements, offerings=offerings)


def _reserve(instance_type: InstanceType) -> InstanceType:
    """The type m5.large with an offering of two reserved instances; any type but that as it is."""
    if instance_type.name != "m5.large":
        return instance_type
    stated = from_labels(RESERVATION | {labels.PLACEMENT_GROUP_PARTITION: "2"})
    offering = Offering(builders.ZONES[1], labels.RESERVED, 11_800, True, stated, 2)
    requirements = Requirements(instance_type.requirements.by_key | from_labels(RESERVATION).by_key)
    requirements = _narrow(requirements, labels.CAPACITY_TYPE, labels.ON_DEMAND, labels.SPOT, labels.RESERVED)
    return msgspec.structs.replace(
        instance_type, requirements=requirements, offerings=(*instance_type.offerings, offering)
    )


def _narrow(requirements: Requirements, key: str, *values: str) -> Requirements:
    """The requirements, of which the label has these values."""
    return Requirements(requirements.by_key | {key: Requirement(key, False, frozenset(values))})
