"""One page, six widgets, and no line or alarm for a metric that nobody writes."""

import json
from typing import Any

import pytest

from infra.alarms import ALARMED_METRICS
from infra.dashboard import DASHBOARD_METRICS
from tests.infra.conftest import ROOT
from tests.infra.template import Template


def _widgets(template: Template) -> list[dict[str, Any]]:
    (page,) = template.of("AWS::CloudWatch::Dashboard").values()
    widgets: list[dict[str, Any]] = json.loads(page["DashboardBody"])["widgets"]
    return widgets


def test_there_are_six_widgets_each_with_lines(plain: Template) -> None:
    widgets = _widgets(plain)
    assert len(widgets) == 6
    assert all(widget["properties"]["metrics"] for widget in widgets)
    places = {(widget["x"], widget["y"]) for widget in widgets}
    assert len(places) == 6


def test_the_page_is_named_by_cell_and_region(full: Template) -> None:
    (page,) = full.of("AWS::CloudWatch::Dashboard").values()
    assert page["DashboardName"] == "Spotwright-blue-<AWS::Region>"


def test_every_queue_and_function_is_on_it(plain: Template) -> None:
    said = json.dumps(_widgets(plain))
    for kind in ("AWS::SQS::Queue", "AWS::Lambda::Function"):
        assert all(f"<{id}" in said for id in plain.of(kind))


@pytest.mark.parametrize("metric", [*DASHBOARD_METRICS, *ALARMED_METRICS])
def test_every_metric_shown_or_watched_is_written_by_a_function(metric: str) -> None:
    code = [*(ROOT / "functions").rglob("*.py"), *(ROOT / "layers/core/python").rglob("*.py")]
    assert any(f'"{metric}"' in path.read_text() for path in code)
