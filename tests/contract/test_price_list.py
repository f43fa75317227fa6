"""The Price List does not answer: classes become ready and nodes are bought, at the prices we bring along."""

from collections.abc import Callable

import pytest
import urllib3

from spotwright.adapters.aws.ec2 import published_data
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import SelectorTerm
from spotwright.simulation import builders
from spotwright.simulation import world as simulated
from tests.contract.conftest import REGION, LocalAws
from tests.functions.catalog import fakes

LISTED = 96_000_000_000


class World(fakes.CatalogWorld):
    """Classes whose region is that of the local AWS."""

    def __init__(self, aws: LocalAws) -> None:
        super().__init__()
        self.aws = aws
        self.region_source = Ec2Region(aws.client("ec2"), aws.prices(), region=REGION)  # type: ignore[assignment,arg-type]

    def price(self, nodeclass: str) -> int:
        (instance_type,) = (
            candidate for candidate in self.catalog().instance_types(nodeclass) if candidate.name == "m5.large"
        )
        return next(
            offering.price_picousd_per_hour
            for offering in instance_type.offerings
            if offering.capacity_type == labels.ON_DEMAND
        )


@pytest.fixture
def world(local_aws: LocalAws, fault: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> World:
    """Two classes, and no answer from the Price List; what we bring along is dearer by a tenth than the list."""
    dearer = {name: price * 11 // 10 for name, price in published_data.on_demand_picousd(REGION).items()}
    monkeypatch.setattr(published_data, "on_demand_picousd", lambda _: dearer)
    built = World(local_aws)
    built.apply()
    built.apply("other", ami_selector_terms=(SelectorTerm(id="ami-standard-x86_64"),), ami_family="AL2023")
    fault("pricing", "GetProducts", "InternalErrorException")
    return built


def test_classes_are_ready_and_pods_run(world: World) -> None:
    catalog_result = world.refresh()
    assert set(catalog_result.ready_classes) == {"default", "other"}
    (note,) = catalog_result.notes
    assert note.startswith("on-demand prices are the shipped table")
    assert world.price("default") == world.price("other") == LISTED * 11 // 10
    cluster = simulated.World(world.catalog())
    cluster.cluster.put("ec2nodeclasses", builders.nodeclass())
    cluster.cluster.put("nodepools", builders.nodepool(requirements=builders.capacity_types("on-demand")))
    cluster.deploy(builders.pod("web", cpu_millicores=1800), 3)
    assert cluster.run(60, until=lambda: len(cluster.running_pods()) == 3)
    overrides = cluster.ec2.requests[0]["LaunchTemplateConfigs"][0]["Overrides"]
    priorities = {override["InstanceType"]: override["Priority"] for override in overrides}
    assert priorities == dict(sorted(priorities.items(), key=lambda item: item[1]))


def test_the_list_is_used_again_when_it_answers(world: World) -> None:
    world.refresh()
    urllib3.request("DELETE", f"{world.aws.endpoint}/_local/faults")
    catalog_result = world.refresh()
    assert catalog_result.changed
    assert catalog_result.notes == ()
    assert world.price("default") == world.price("other") == LISTED


def test_prices_of_last_time_stand_when_the_list_falls_silent(world: World, fault: Callable[..., None]) -> None:
    urllib3.request("DELETE", f"{world.aws.endpoint}/_local/faults")
    world.refresh()
    fault("pricing", "GetProducts", "InternalErrorException")
    catalog_result = world.refresh()
    assert catalog_result.notes[0].startswith("on-demand prices are the last known ones")
    assert world.price("default") == LISTED
