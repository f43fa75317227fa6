"""Rows, bodies and messages of a schema, or with fields, that this version does not know: a deployment is rolled back.

Rows, decisions and snapshots are read as if they were of the present schema; a field that is unknown is lost when its
row is written again. The planner reads catalogs in the same way, and the function ``catalog`` makes them and the
region that they are made of anew. A message of another schema is refused, an unknown field in a message is not.
"""

import json

import msgspec
import pytest

from spotwright import sqs_batch
from spotwright.adapters.aws.dynamodb.items import decode_timer_row, encode_row
from spotwright.adapters.aws.s3.catalogs import Catalogs
from spotwright.errors import InvalidRequest
from spotwright.simulation import builders
from spotwright.workflows.catalog import instance_types
from tests.stored import aws
from tests.stored.outcome import count, find_unfinished, run_to_end
from tests.stored.recorded import (
    copy_bucket,
    is_region,
    list_keys,
    parse_row,
    read_json,
    read_messages,
    read_rows,
    read_stores,
    restore,
    set_state,
)
from tests.stored.replays import replay_from, replay_recorded
from tests.stored.versions import LATER, UNKNOWN_FIELD, make_later

# Between them a row of every kind waits.
MOMENTS = (
    "decision-committed", "launch-requested", "nomination-nominated", "notice-new", "command-waiting-for-replacement",
    "command-proposed", "scale-down-planned",
)  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_rows_of_a_later_schema_are_acted_on(name: str) -> None:
    world = restore(name)
    set_state(world, aws.read([make_later(row) for row in read_stores()[name].rows]))
    run_to_end(world)
    assert count(world) == read_stores()[name].ends
    assert find_unfinished(world) == []


def test_a_row_keeps_its_schema_and_loses_what_is_unknown() -> None:
    for row in (row for row in read_rows() if "phase" in row):
        again = encode_row(decode_timer_row(make_later(row)), builders.CLUSTER)
        assert again["schema"] == {"N": "99"}
        assert parse_row(again)["body"] == parse_row(row)["body"] | {"schema": 99}
        assert again.keys() == row.keys()


@pytest.mark.parametrize("key", list_keys("decisions"))
def test_a_decision_and_a_snapshot_of_a_later_schema_are_replayed(key: str) -> None:
    blobs, decision = copy_bucket(), read_json(key)
    snapshot = blobs.put("snapshots", json.dumps(read_json(decision["snapshot"]) | LATER).encode())
    later = blobs.put("decisions", json.dumps(decision | LATER | {"snapshot": snapshot}).encode())
    assert replay_from(blobs, later).plan == replay_recorded(key).plan


def test_a_catalog_of_a_later_schema_is_planned_with_and_made_anew() -> None:
    blobs = copy_bucket()
    for key in (key for key in list_keys("catalogs") if not is_region(key)):
        later = blobs.put("catalogs", json.dumps(read_json(key) | LATER).encode())
        catalogs = Catalogs(blobs)  # type: ignore[arg-type]
        assert catalogs.read(later) == catalogs.read(key)
        assert instance_types.read_catalog(blobs, later).body == b""


def test_a_region_of_a_later_schema_is_read_anew() -> None:
    blobs = copy_bucket()
    (region,) = filter(is_region, list_keys("catalogs"))
    later = blobs.put("catalogs", json.dumps(read_json(region) | LATER).encode())
    (key,) = (key for key in list_keys("catalogs") if read_json(key).get("source") == region)
    changed = blobs.put("catalogs", json.dumps(read_json(key) | {"source": later}).encode())
    assert instance_types.region_of(blobs, instance_types.read_catalog(blobs, key)) is not None
    assert instance_types.region_of(blobs, instance_types.read_catalog(blobs, changed)) is None


def test_a_message_of_a_later_schema_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="doorbell schema: 99 is not one of"):
        sqs_batch.parse_doorbell(json.dumps(first_message() | LATER), kinds={"pods"}, clusters={builders.CLUSTER})


def test_an_unknown_field_in_a_message_is_passed_over() -> None:
    bell = sqs_batch.parse_doorbell(
        json.dumps(first_message() | UNKNOWN_FIELD), kinds={"pods"}, clusters={builders.CLUSTER}
    )
    assert msgspec.to_builtins(bell) == first_message()


def first_message() -> dict[str, object]:
    """A doorbell for pods that the forwarder sent."""
    message: dict[str, object] = json.loads(read_messages()["forwarder"][0]["body"])
    return message
