"""Bodies in S3: what was written is read, and what is written of it again are the same bytes under the same key."""

import msgspec
import pytest

from spotwright.adapters.aws.s3.account_prices import AccountPrices
from spotwright.aws.instance_types import catalog_codec
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.decisions.decision import decode_decision, encode_decision
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders
from spotwright.workflows.catalog import instance_types
from tests.stored.recorded import (
    DIRECTORY,
    empty_bucket,
    is_region,
    list_keys,
    parse_decision,
    parse_snapshot,
    read_body,
    read_bucket,
    read_json,
    read_stores,
)


def test_a_body_has_the_key_under_which_it_was_stored() -> None:
    stored = {key for store in read_stores().values() for key in store.bucket}
    assert stored == set(read_bucket().bodies)


@pytest.mark.parametrize("key", list_keys("decisions"))
def test_a_decision_is_written_as_it_was(key: str) -> None:
    assert parse_decision(encode_decision(decode_decision(read_body(key)))) == parse_decision(read_body(key))


def test_there_are_decisions_of_every_kind() -> None:
    kinds = {read_json(key)["kind"] for key in list_keys("decisions")}
    assert kinds == {"provision", "interrupt", "disrupt", "scale-down"}


@pytest.mark.parametrize("key", list_keys("snapshots"))
def test_a_snapshot_is_written_as_it_was(key: str) -> None:
    snapshot = msgspec.json.decode(read_body(key), type=Snapshot)
    assert parse_snapshot(msgspec.json.encode(snapshot, order="deterministic")) == parse_snapshot(read_body(key))


@pytest.mark.parametrize("key", list_keys("catalogs"))
def test_a_catalog_or_a_region_is_written_as_it_was(key: str) -> None:
    body = read_body(key)
    if is_region(key):
        assert msgspec.json.encode(msgspec.json.decode(body, type=RegionFacts)) == body
    else:
        assert catalog_codec.encode(catalog_codec.decode(body), catalog_codec.read_header(body)) == body


def test_the_function_catalog_goes_on_from_what_it_read_of_the_region() -> None:
    """A catalog or a region that it did not know would have it read the whole region anew."""
    (region,) = filter(is_region, list_keys("catalogs"))
    (key,) = (key for key in list_keys("catalogs") if read_json(key).get("source") == region)
    stored = instance_types.read_catalog(read_bucket(), key)
    assert stored.body == read_body(key)
    read = instance_types.region_of(read_bucket(), stored)
    assert read is not None
    assert sorted(read.on_demand) == sorted(read_json(region)["on_demand"])


def test_every_table_of_a_catalog_holds_something() -> None:
    """The type of these bodies is private to the module that writes them, so they are looked at as text."""
    stated = {name for key in list_keys("catalogs") for name, value in read_json(key).items() if value}
    assert stated >= {
        "requirements", "sets", "amounts", "offerings", "kubelets", "types", "by_class", "source", "signatures",
        "shifted", "memory", "attachable", "schema",
    }  # fmt: skip


def test_the_price_file_is_read() -> None:
    """Users write it, and leave it where it is when a new version comes."""
    blobs = empty_bucket()
    blobs.bodies[f"prices/{builders.CLUSTER}.yaml"] = (DIRECTORY / "prices.yaml").read_bytes()
    file, complaint = AccountPrices(blobs, cluster=builders.CLUSTER).read()
    assert complaint == ""
    assert len(file.rules) == 4
