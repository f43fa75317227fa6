"""One page with six widgets, and the lines that the table of metrics asks for."""

import json
import re
from typing import Any

from spotwright.telemetry.tables import metric_rows
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


def test_it_shows_each_metric_that_names_a_graph_and_no_other(plain: Template) -> None:
    shown = re.findall(r'MetricName=\\"(\w+)\\"', json.dumps(_widgets(plain)))
    assert sorted(shown) == sorted(metric.name for metric in metric_rows().values() if metric.line)
