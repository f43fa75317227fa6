"""The environment that the stack gives a function, with the fakes in place of the composition root."""

import json
import logging
from collections.abc import Iterator

import pytest

from spotwright.composition import cluster_clients, interrupt_clients
from spotwright.log_metrics import SHARED_LOGGERS
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.campaign.serial import serial_calls


@pytest.fixture(autouse=True)
def library_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that is loaded takes the library's loggers for its own; after the test they are as before."""
    for name in (*SHARED_LOGGERS, "spotwright.interrupt", "spotwright.lifecycle", "spotwright.planning"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "propagate", logger.propagate)
        monkeypatch.setattr(logger, "handlers", list(logger.handlers))
        monkeypatch.setattr(logger, "level", logger.level)


@pytest.fixture(autouse=True)
def one_after_the_other() -> Iterator[None]:
    """Calls and steps that functions make side by side, so that what happens is the same in every run."""
    with serial_calls():
        yield


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster of fakes that handlers reach through the composition root."""
    made = World()
    made.cluster.put("ec2nodeclasses", builders.nodeclass())
    made.cluster.put("nodepools", builders.nodepool())
    clusters = {made.cluster.name: {"readRoleArn": "arn:read", "actRoleArn": "arn:act"}}
    monkeypatch.setenv("SPOTWRIGHT_CELL", "main")
    monkeypatch.setenv("SPOTWRIGHT_TABLE", "table")
    monkeypatch.setenv("SPOTWRIGHT_BUCKET", "bucket")
    monkeypatch.setenv("SPOTWRIGHT_CLUSTERS", json.dumps(clusters))
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Spotwright")
    cluster_clients._environment.cache_clear()
    monkeypatch.setattr(cluster_clients, "ports", lambda cluster: {made.cluster.name: made.ports}[cluster])
    monkeypatch.setattr(interrupt_clients, "ports", lambda environment: {made.cluster.name: made.ports})
    monkeypatch.setattr(interrupt_clients, "instances", lambda: made.ports.ec2)
    yield made
    cluster_clients._environment.cache_clear()
