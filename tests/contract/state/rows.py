"""Rows that the tests of a state write, and the times that they say."""

import itertools
from datetime import UTC, datetime
from typing import Any

import msgspec

from spotwright.workflows.ports.rows import LaunchRow
from spotwright.workflows.ports.state import StatePort

NAMES = (f"cluster-{number}" for number in itertools.count())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def launch(state: StatePort, id: str = "one", **changes: Any) -> LaunchRow:
    row = LaunchRow(id=id, cluster=state.cluster().cluster, decision="d", claims=("a", "b"), node="{}", created=1)
    return msgspec.structs.replace(row, **changes)
