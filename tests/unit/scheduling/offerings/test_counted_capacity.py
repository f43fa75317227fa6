"""Near limits a type of a NodePool with minValues counts and holds what a few types of about its size do."""

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.counted_capacity import build_bundles
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import Vector
from tests.unit.scheduling.builders import GIB, instance, pool, snapshot

TYPE = instance("type", 4, 16, 0.2)


def room_beside(*others: InstanceType) -> Vector:
    """The room (cpu, memory, pods) of the bundle of the type, where two types are to be listed."""
    two_types = NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", min_values=2)
    pools = (pool("default", two_types, limits={"cpu": "100"}),)
    templates, _ = build_templates(snapshot(pools=pools), Catalog({"": (TYPE, *others)}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    bundles = build_bundles(index)
    return next(bundles[each.key].free_capacity for each in index.pool_types if each.instance_type is TYPE)


def test_a_type_is_bundled_with_the_type_that_has_room_for_most_of_its_pods() -> None:
    little, more = instance("a-little", 4, 8, 0.1), instance("b-more", 4, 12, 0.3)
    assert room_beside(little, more) == (4000, 12 * GIB, 110)


def test_the_resource_that_a_type_has_least_of_decides() -> None:
    """The type with less cpu has twice the memory."""
    lopsided, even = instance("a-lopsided", 3, 32, 0.1), instance("b-even", 4, 14, 0.3)
    assert room_beside(lopsided, even) == (4000, 14 * GIB, 110)


def test_cpu_and_memory_come_before_slots_for_pods() -> None:
    few_slots = instance("b-few-slots", 4, 14, 0.1, capacity={"pods": 55})
    assert room_beside(instance("a-little", 4, 12, 0.1), few_slots) == (4000, 14 * GIB, 55)


def test_of_types_with_the_same_cpu_and_memory_more_slots_for_pods_count() -> None:
    few_slots = instance("a-few-slots", 4, 16, 0.1, capacity={"pods": 29})
    assert room_beside(few_slots, instance("b-many-slots", 4, 16, 0.1)) == (4000, 16 * GIB, 110)
