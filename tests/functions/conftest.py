"""The environment that the stack gives a function, with the fakes in place of the composition root."""

import json
import logging
from collections.abc import Iterator

import pytest

from spotwright.composition import cluster_clients, interrupt_clients
from spotwright.simulation import builders
from spotwright.simulation.world import World


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
    said = logging.getLogger("spotwright.lifecycle")
    monkeypatch.setattr(said, "propagate", said.propagate)
    monkeypatch.setattr(said, "handlers", list(said.handlers))
    monkeypatch.setattr(cluster_clients, "ports", lambda cluster: {made.cluster.name: made.ports}[cluster])
    monkeypatch.setattr(interrupt_clients, "ports", lambda environment: {made.cluster.name: made.ports})
    monkeypatch.setattr(interrupt_clients, "instances", lambda: made.ports.ec2)
    yield made
    cluster_clients._environment.cache_clear()
