"""Offerings become dearer by what they count of a limit that has a price."""

import pytest

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.limit_prices import add_limit_prices
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from tests.unit.scheduling.builders import TYPES, pool, snapshot


@pytest.mark.parametrize("name", [resources.NODES, resources.CPU, resources.MEMORY])
def test_an_offering_costs_more_by_what_it_counts(name: str) -> None:
    """A node counts as 1 against a limit on nodes, whatever its type."""
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": TYPES}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    priced = add_limit_prices(index, (), {"default": {name: 7.0}}, {})
    assert len(priced.offerings) == len(index.offerings)
    for offering, pool_type, price in zip(priced.offerings, priced.pool_type_of, priced.prices, strict=True):
        counted = 1 if name == resources.NODES else pool_type.instance_type.capacity[name]
        assert price == offering.price_picousd_per_hour + 7 * counted


def test_nodepools_without_a_price_cost_what_they_do() -> None:
    templates, _ = build_templates(snapshot(pools=(pool("a"), pool("b"))), Catalog({"": TYPES}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    priced = add_limit_prices(index, (), {"a": {resources.NODES: 7.0}}, {})
    surcharges = {
        (priced.templates[pool_type.template_index].nodepool.name, price - offering.price_picousd_per_hour)
        for offering, pool_type, price in zip(priced.offerings, priced.pool_type_of, priced.prices, strict=True)
    }
    assert surcharges == {("a", 7), ("b", 0)}
