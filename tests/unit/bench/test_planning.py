"""The benchmark of what `provision` itself needs: both ways come to the same plan, and store it."""

from pathlib import Path

from bench.planning import WAYS, measure, write_cluster


def test_a_pod_that_fits_nowhere_gets_a_node_whatever_is_read(tmp_path: Path) -> None:
    write_cluster(tmp_path, 40)
    planned = {way: measure(way, tmp_path) for way in WAYS}
    assert all(way.seconds > 0 and way.megabytes > 0 for way in planned.values())
    assert all(way.stored_bytes > 1_000 for way in planned.values())
