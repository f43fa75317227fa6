"""Recorded decisions, replayed from the bodies that were stored with them."""

from functools import cache
from typing import Any, cast

from spotwright.adapters.aws.s3.catalogs import Catalogs
from spotwright.simulation.state import FakeBlobs
from spotwright.workflows.planning.replay import ReplayResult, replay
from tests.stored.recorded import read_bucket


@cache
def replay_recorded(key: str) -> ReplayResult:
    return replay_from(read_bucket(), key)


def replay_from(blobs: FakeBlobs, key: str) -> ReplayResult:
    """Replay a decision of this bucket, which catalogs are read from as well."""
    return replay(key, blobs=blobs, catalogs=Catalogs(cast("Any", blobs)))
