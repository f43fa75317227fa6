"""Messages of the catalog function: worked off, refused alone, or left to come back."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model.karpenter.nodeclass import SelectorTerm
from spotwright.telemetry import log_lines
from tests.functions.catalog.fakes import CatalogWorld
from tests.functions.handlers import Context
from tests.unit.aws.samples import CLUSTER


@pytest.fixture
def world() -> CatalogWorld:
    return CatalogWorld()


def handler_module() -> ModuleType:
    path = Path(__file__).parents[3] / "functions" / "catalog" / "handler.py"
    spec = importlib.util.spec_from_file_location("catalog_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def handler(world: CatalogWorld, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The handler with this world behind its composition."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Spotwright")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "catalog")
    module = handler_module()
    environment = SimpleNamespace(clusters={CLUSTER: None})
    monkeypatch.setattr(module.cluster_clients, "environment", lambda _: environment)
    monkeypatch.setattr(module.catalog_clients, "ports", lambda cluster, _: world)
    return lambda *bodies, left_seconds=60: module.handler(
        {"Records": [{"messageId": str(number), "body": body} for number, body in enumerate(bodies)]},
        Context(left_seconds),
    )


def bell(kind: str, key: str = "", cluster: str = CLUSTER) -> str:
    return json.dumps({"schema": 1, "cluster": cluster, "kind": kind, "key": key, "epoch": 0})


def test_the_handler_settles_what_its_doorbells_name(world: CatalogWorld, handler: Any) -> None:
    world.apply()
    assert handler(bell("nodeclasses", "default"), bell("region", cluster="*")) == {"batchItemFailures": []}
    assert world.condition("Ready").status == "True"
    assert world.state.catalog_key()
    assert world.region_source.reads == 2


def test_what_could_not_be_read_anew_is_counted(
    world: CatalogWorld, handler: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    world.apply()
    world.region_source.sells = msgspec.structs.replace(
        world.region_source.sells, notes=("on-demand prices are the shipped table",)
    )
    handler(bell("region"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["FactsNotRefreshed"] for line in lines if "FactsNotRefreshed" in line] == [[1.0]]


def test_a_message_that_is_not_ours_fails_alone(world: CatalogWorld, handler: Any) -> None:
    world.apply()
    answer = handler("{", bell("pods"), bell("nodeclasses"), bell("nodeclasses", cluster="foreign"))
    assert answer == {"batchItemFailures": [{"itemIdentifier": number} for number in ("0", "1", "3")]}
    assert world.condition("Ready").status == "True"


def test_when_the_region_cannot_be_read_the_message_comes_back(world: CatalogWorld, handler: Any) -> None:
    world.apply()
    world.region_source.fails = Unavailable("no answer")
    assert handler(bell("region")) == {"batchItemFailures": [{"itemIdentifier": "0"}]}


def test_a_class_that_aws_does_not_answer_about_is_named_and_counted(
    world: CatalogWorld, handler: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    world.apply(subnet_selector_terms=(SelectorTerm(id="subnet-x"),))
    world.selectors.fails["subnet-x"] = Unavailable("EC2 does not answer")
    assert handler(bell("nodeclasses", "default")) == {"batchItemFailures": []}
    (failed,) = [vars(line) for line in caplog.records if line.message == log_lines.NODECLASS_FAILED.message]
    assert failed["nodeclass"] == "default"
    assert "EC2 does not answer" in failed["error"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["ClassResolutionFailed"] for line in lines if "ClassResolutionFailed" in line] == [[1.0]]


def test_when_time_is_short_the_region_is_rung_for_and_classes_are_tried_again(
    world: CatalogWorld, handler: Any
) -> None:
    world.apply()
    assert handler(bell("nodeclasses"), bell("region"), left_seconds=19) == {"batchItemFailures": []}
    assert world.region_source.reads == 1, "classes alone take the last region facts, or the first ones"
    assert {("catalog", "region", ""), ("catalog", "nodeclasses", "default")} <= world.rung()
    assert world.nodeclass().metadata.finalizers == ()
    assert handler(bell("nodeclasses", "default")) == {"batchItemFailures": []}
    assert world.condition("Ready").status == "True"
