"""A planned node whose limits or prices change becomes the cheapest that counts no more than what was planned."""

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.capacity.weight_groups import ENFORCED, WeightGroup
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.packing.known_packings import KnownPackings
from tests.unit.scheduling.builders import instance, pool, snapshot

PLANNED = instance("planned", 8, 16, 0.80)
LEAN = instance("lean", 8, 8, 0.60)
WIDE = instance("wide", 8, 32, 0.40)
LARGE = instance("large", 16, 16, 0.20)


def type_after(limits: dict[str, str]) -> str:
    """The type of a node planned for the dearest type that may become any, under the limits of its NodePool."""
    types = (PLANNED, LEAN, WIDE, LARGE)
    templates, _ = build_templates(snapshot(pools=(pool(limits=limits),)), Catalog({"": types}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    group = WeightGroup(index, (), {}, (), {}, ENFORCED, KnownPackings())
    node = PlannedNode(group, 0, OfferingOptions(index.all_offerings), "node")
    node.offering = next(n for n, each in enumerate(index.pool_type_of) if each.instance_type is PLANNED)
    moved = node.moved_to(group, range(len(index.offerings)))
    return index.pool_type_of[moved.offering].instance_type.name


def test_the_cheapest_type_that_counts_no_more_is_taken() -> None:
    assert type_after({"cpu": "100"}) == "wide"
    assert type_after({"memory": "100Gi"}) == "large"
    assert type_after({"cpu": "100", "memory": "100Gi"}) == "lean"


def test_only_limited_resources_count() -> None:
    assert type_after({}) == "large"
    assert type_after({"nodes": "9"}) == "large"
