"""What a plan of a deployment decides with."""

from typing import cast

import msgspec
import pytest

from spotwright.cli.inputs.live_cluster import deployed_settings
from spotwright.model.snapshot import STATIC_CAPACITY, Settings
from spotwright.simulation.state import FakeBlobs
from spotwright.workflows.ports.rows import ClusterRow
from spotwright.workflows.ports.state import BlobPort
from tests.stored.recorded import copy_bucket, list_keys, read_json

DEFAULTS = Settings(feature_gates=(STATIC_CAPACITY,))


@pytest.fixture
def decided() -> tuple[ClusterRow, FakeBlobs]:
    """A cluster whose newest decision was made with another PREFERENCE_POLICY."""
    blobs, key = copy_bucket(), list_keys("decisions")[0]
    decision = read_json(key)
    snapshot = read_json(decision["snapshot"])
    changed = snapshot | {"settings": snapshot.get("settings", {}) | {"preference_policy": "Ignore"}}
    head = blobs.put(
        "decisions",
        msgspec.json.encode(decision | {"snapshot": blobs.put("snapshots", msgspec.json.encode(changed))}),
    )
    return ClusterRow("main", head=head), blobs


def settings_of(row: ClusterRow, blobs: FakeBlobs, *, keeps_gates: bool) -> Settings:
    return deployed_settings(row, cast("BlobPort", blobs), DEFAULTS, keeps_gates=keeps_gates)


def test_the_settings_are_those_of_the_newest_decision(decided: tuple[ClusterRow, FakeBlobs]) -> None:
    settings = settings_of(*decided, keeps_gates=True)
    assert settings.preference_policy == "Ignore"
    assert settings.feature_gates != DEFAULTS.feature_gates


def test_feature_gates_that_were_given_count(decided: tuple[ClusterRow, FakeBlobs]) -> None:
    settings = settings_of(*decided, keeps_gates=False)
    assert (settings.preference_policy, settings.feature_gates) == ("Ignore", DEFAULTS.feature_gates)


def test_a_cluster_that_decided_nothing_has_the_defaults() -> None:
    assert settings_of(ClusterRow("main"), copy_bucket(), keeps_gates=True) == DEFAULTS
    assert settings_of(ClusterRow("main", head="decisions/gone"), copy_bucket(), keeps_gates=True) == DEFAULTS
