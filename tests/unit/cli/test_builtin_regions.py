"""The built-in regions: what EC2 answered, as it was recorded, and list prices that are known."""

import gzip
import json
from pathlib import Path
from typing import Any

import moto
import pytest

from spotwright.cli import InputError
from spotwright.cli.inputs.builtin_regions import describe, load_region, region_names, zone_ids
from spotwright.model.ec2.instance_type import PICOUSD

OFFERINGS = Path(moto.__file__).parent / "ec2" / "resources" / "instance_type_offerings"
RECORDED = sorted(path.name.removesuffix(".json.gz") for path in (OFFERINGS / "region").iterdir())


def offered(kind: str, region: str) -> dict[str, set[str]]:
    """Location → types, as EC2 answered."""
    found: dict[str, set[str]] = {}
    answers: list[dict[str, Any]] = json.loads(gzip.decompress((OFFERINGS / kind / f"{region}.json.gz").read_bytes()))
    for answer in answers:
        found.setdefault(answer["Location"], set()).add(answer["InstanceType"])
    return found


def test_every_recorded_region_is_built_in() -> None:
    assert set(RECORDED) <= set(region_names())


@pytest.mark.parametrize("region", RECORDED)
def test_a_zone_and_its_id_sell_what_ec2_answered(region: str) -> None:
    """If it fails after an update of moto: tools/builtin_catalog.py writes the facts again."""
    facts, by_zone, by_id = (
        load_region(region),
        offered("availability-zone", region),
        offered("availability-zone-id", region),
    )
    described = {info.name for info in facts.types}
    for zone, zone_id in zone_ids(region).items():
        sold = {name for name, zones in facts.zones.items() if zone in zones}
        assert sold == by_zone[zone] & described == by_id[zone_id] & described


@pytest.mark.parametrize(
    ("region", "name", "usd"),
    [
        ("us-east-1", "m5.large", 0.096),
        ("us-west-2", "c7g.xlarge", 0.145),
        ("eu-west-1", "m5.large", 0.107),
        ("eu-central-1", "m5.large", 0.115),
        ("ap-northeast-1", "m5.large", 0.124),
        ("sa-east-1", "m5.large", 0.153),
        ("eu-north-1", "t3.medium", 0.0432),
    ],
)
def test_on_demand_prices_are_list_prices(region: str, name: str, usd: float) -> None:
    assert load_region(region).on_demand[name] == pytest.approx(usd * PICOUSD, rel=0.001)


def test_what_is_assumed_is_said() -> None:
    assert "35 to 45 %" in describe("us-east-1")
    assert "what eu-west-1 asked more or less" in describe("eu-west-1")


@pytest.mark.parametrize("name", ["", "us-east-1a", "eu-west", "xx", "EU-WEST-1"])
def test_a_region_that_is_not_built_in_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no facts of this region are built in"):
        load_region(name)
