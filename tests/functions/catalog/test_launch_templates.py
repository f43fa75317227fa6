"""Launch templates go when nothing has started from them for a day, and not before."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.model.ec2.fleet import Instance
from spotwright.workflows.catalog.launch_templates import TEMPLATE_ID_TAG
from spotwright.workflows.ports.rows import LaunchRow
from tests.functions.catalog.fakes import CatalogWorld

HOURS = timedelta(hours=1)


@pytest.fixture
def world() -> CatalogWorld:
    """A template from thirty hours ago, and one from today."""
    catalog_world = CatalogWorld()
    catalog_world.launch_templates.templates = {"lt-1": "default", "lt-11": "default"}
    now = catalog_world.clock.now()
    catalog_world.launch_templates.created = {"lt-1": now - 30 * HOURS, "lt-11": now - HOURS}
    return catalog_world


def kept(world: CatalogWorld) -> set[str]:
    world.refresh()
    return set(world.launch_templates.templates)


def started(world: CatalogWorld, template: str, hours: int) -> Instance:
    at = world.clock.now() - hours * HOURS
    return Instance("i-1", "m5.large", "z", "spot", "running", launch_time=at, tags={TEMPLATE_ID_TAG: template})


def launching(template: str, phase: str = "claimed") -> LaunchRow:
    request = msgspec.json.encode({"LaunchTemplateSpecification": {"LaunchTemplateId": template}}).decode()
    return LaunchRow("l1", "dev-eks-cluster", "d1", ("claim",), "{}", request=request, phase=phase)


def test_what_nothing_uses_goes_with_the_next_reading_of_the_region(world: CatalogWorld) -> None:
    world.run()
    assert set(world.launch_templates.templates) == {"lt-1", "lt-11"}
    assert kept(world) == {"lt-11"}


@pytest.mark.parametrize(("template", "hours", "stays"), [("lt-1", 20, True), ("lt-1", 25, False), ("lt-11", 1, False)])
def test_what_an_instance_was_started_from_lately_stays(
    world: CatalogWorld, template: str, hours: int, stays: bool
) -> None:
    world.launch_templates.instances = [started(world, template, hours)]
    assert ("lt-1" in kept(world)) == stays


@pytest.mark.parametrize(
    ("template", "phase", "stays"), [("lt-1", "claimed", True), ("lt-1", "done", False), ("lt-11", "claimed", False)]
)
def test_what_a_launch_on_its_way_names_stays(world: CatalogWorld, template: str, phase: str, stays: bool) -> None:
    assert world.state.create(launching(template, phase))
    assert ("lt-1" in kept(world)) == stays
