"""What a class can buy, and how the catalog is written down."""

from typing import Any

import msgspec
import pytest

from spotwright.aws.images import families
from spotwright.aws.instance_types import capacity, catalog_codec, offerings, unavailable_offerings
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.cli.inputs.builtin_catalog import load_builtin_catalog
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, Offering
from spotwright.model.karpenter.nodeclass import CapacityReservation, PlacementGroup, Subnet
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import UnavailableOffering
from tests.unit.aws.samples import ZONES, nodeclass, region, types


def test_an_offering_is_a_zone_and_a_capacity_type_at_a_price() -> None:
    (instance_type,) = types("m5.large")
    prices = {
        (offering.capacity_type, offering.zone): offering.price_picousd_per_hour for offering in instance_type.offerings
    }
    assert set(prices) == {(kind, zone) for kind in ("on-demand", "spot") for zone in ZONES}
    assert prices["on-demand", ZONES[0]] == 96_000_000_000
    assert prices["spot", ZONES[0]] == 38_400_000_000
    assert all(offering.available for offering in instance_type.offerings)
    assert instance_type.requirements.get(labels.ZONE).values == frozenset(ZONES)
    assert instance_type.requirements.get(labels.CAPACITY_TYPE).values == {"spot", "on-demand"}


def test_only_zones_where_the_class_has_a_subnet_and_ec2_the_type() -> None:
    one_zone = nodeclass(subnets=(Subnet("subnet-b", ZONES[1], "apne2-az2"),))
    (instance_type,) = types("m5.large", of=one_zone)
    assert {offering.zone for offering in instance_type.offerings} == {ZONES[1]}
    assert types("t3a.large", of=one_zone) == ()
    assert types("m5.large", of=nodeclass(subnets=())) == ()


def test_an_offering_knows_its_zones_id() -> None:
    (instance_type,) = types("m5.large")
    ids = {offering.zone: offering.requirements.get(labels.ZONE_ID).sole_value for offering in instance_type.offerings}
    assert ids == {ZONES[0]: "apne2-az1", ZONES[1]: "apne2-az2", ZONES[2]: "apne2-az3"}


def test_without_a_price_an_offering_is_not_available() -> None:
    sells = msgspec.structs.replace(region("m5.large"), spot={"m5.large": {ZONES[0]: 1}})
    (instance_type,) = types(sells=sells)
    assert {
        (offering.capacity_type, offering.zone) for offering in instance_type.offerings if not offering.available
    } == {
        ("spot", ZONES[1]),
        ("spot", ZONES[2]),
    }


def test_spot_costs_on_demand_until_its_prices_are_known() -> None:
    sells = msgspec.structs.replace(region("m5.large"), spot=None)
    (instance_type,) = types(sells=sells)
    assert {offering.price_picousd_per_hour for offering in instance_type.offerings} == {96_000_000_000}
    assert all(offering.available for offering in instance_type.offerings)


@pytest.mark.parametrize("name", ["a1.large", "g4dn.xlarge"])
def test_a_type_that_the_class_cannot_run_has_nothing_available(name: str) -> None:
    """Amazon Linux 2023 does not boot on a1; the class here has no image for GPUs."""
    of = nodeclass(amis=nodeclass().amis[:2])
    sells = msgspec.structs.replace(region("m5.large", "g4dn.xlarge"))
    if name == "a1.large":
        facts = region("m5.large")
        described = msgspec.structs.replace(facts.types[0], name=name, architectures=("arm64",))
        sells = msgspec.structs.replace(
            facts, types=(described,), zones={name: ZONES}, on_demand={name: 1}, spot={name: {ZONES[0]: 1}}
        )
    (instance_type,) = (candidate for candidate in types(of=of, sells=sells) if candidate.name == name)
    assert instance_type.offerings
    assert not any(offering.available for offering in instance_type.offerings)


def reservation(**changes: Any) -> CapacityReservation:
    built = CapacityReservation("cr-1", "m5.large", ZONES[1], available_instance_count=3)
    return msgspec.structs.replace(built, **changes)


def reserved(capacity_reservation: CapacityReservation) -> Offering:
    (instance_type,) = types("m5.large", of=nodeclass(capacity_reservations=(capacity_reservation,)))
    (offering,) = (candidate for candidate in instance_type.offerings if candidate.capacity_type == "reserved")
    return offering


def test_a_reservation_is_an_offering_at_a_ten_millionth_of_on_demand() -> None:
    offering = reserved(reservation())
    assert (offering.zone, offering.available, offering.reservation_capacity) == (ZONES[1], True, 3)
    assert offering.price_picousd_per_hour == 9_600
    offering_labels = offering.requirements.labels()
    assert offering_labels[labels.RESERVATION_ID] == "cr-1"
    assert (offering_labels[labels.RESERVATION_TYPE], offering_labels[labels.RESERVATION_INTERRUPTIBLE]) == (
        "default",
        "false",
    )


@pytest.mark.parametrize("changes", [{"available_instance_count": 0}, {"state": "expiring"}])
def test_a_reservation_that_is_used_up_or_ends_is_not_available(changes: dict[str, Any]) -> None:
    assert not reserved(reservation(**changes)).available


def test_only_the_reservations_own_offering_has_its_labels() -> None:
    of = nodeclass(capacity_reservations=(reservation(), reservation(id="cr-2", zone="elsewhere")))
    (instance_type, other_instance_type) = types("m5.large", "r5.large", of=of)
    assert instance_type.requirements.get(labels.CAPACITY_TYPE).values == {"on-demand", "spot", "reserved"}
    assert instance_type.requirements.get(labels.RESERVATION_ID).values == {"cr-1"}
    assert other_instance_type.requirements.get(labels.RESERVATION_ID).values == frozenset()
    bought = [offering for offering in instance_type.offerings if offering.capacity_type != "reserved"]
    assert all(offering.requirements.get(labels.RESERVATION_ID).values == frozenset() for offering in bought)
    assert len(instance_type.offerings) - len(bought) == 1


def test_nothing_is_available_in_a_zone_that_is_shifted_away_from() -> None:
    of = nodeclass(capacity_reservations=(reservation(),))
    offering_context = offerings.offering_context(
        of, families.FAMILIES["AL2023"], shifted_zone_ids=frozenset({"apne2-az2"})
    )
    (instance_type,) = offerings.instance_types(region("m5.large"), offering_context, capacity.Overheads())
    assert {offering.zone for offering in instance_type.offerings if offering.available} == {ZONES[0], ZONES[2]}
    assert {offering.zone for offering in instance_type.offerings} == set(ZONES)


def test_memory_is_that_of_the_image_the_type_would_start_from() -> None:
    image = nodeclass().amis[0].id
    offering_context = offerings.offering_context(
        nodeclass(),
        families.FAMILIES["AL2023"],
        discovered_memory={("m5.large", image): 2**32, ("m5.large", "ami-old"): 1},
    )
    (instance_type,) = offerings.instance_types(region("m5.large"), offering_context, capacity.Overheads())
    assert instance_type.capacity["memory"] == 2**32


def test_types_stand_by_name_whatever_order_ec2_lists_them_in() -> None:
    assert [instance_type.name for instance_type in types("r5.large", "c5.large", "m5.large")] == [
        "c5.large",
        "m5.large",
        "r5.large",
    ]


MANY = ("c5.large", "m5.large", "g4dn.xlarge", "t4g.small", "m5.metal", "inf1.xlarge", "i3.large", "t3a.large")


def catalog() -> Catalog:
    small = nodeclass(kubelet={"maxPods": 10}, subnets=(Subnet("subnet-a", ZONES[0]),))
    return Catalog({"default": types(*MANY), "same": types(*MANY), "small": types(*MANY, of=small)}, "catalogs/x.json")


def test_a_catalog_survives_being_written() -> None:
    body = catalog_codec.encode(catalog())
    assert catalog_codec.decode(body) == catalog()
    assert catalog_codec.read_header(body).source == "catalogs/x.json"
    assert catalog_codec.encode(catalog_codec.decode(body)) == body


def test_every_built_in_type_survives_being_written() -> None:
    whole = load_builtin_catalog()
    assert catalog_codec.decode(catalog_codec.encode(whole)) == whole


@pytest.mark.parametrize("present", [True, False])
def test_whether_a_label_must_be_there_survives_being_written(present: bool) -> None:
    (instance_type,) = types("m5.large")
    excluded = Requirement("example.com/rack", True, frozenset({"a"}), must_exist=present)
    other_requirement = msgspec.structs.replace(excluded, must_exist=not present)
    labelled = Requirements({requirement.key: requirement for requirement in (*instance_type.requirements, excluded)})
    offering = msgspec.structs.replace(
        instance_type.offerings[0], requirements=Requirements({other_requirement.key: other_requirement})
    )
    written = Catalog(
        {"": (msgspec.structs.replace(instance_type, requirements=labelled, offerings=(offering,)),)},
        shifted_zone_ids=("az-1",),
    )
    assert catalog_codec.decode(catalog_codec.encode(written)) == written


def test_a_catalog_written_before_volumes_were_counted_limits_none() -> None:
    body = msgspec.json.decode(catalog_codec.encode(catalog()))
    del body["attachable"]
    read = catalog_codec.decode(msgspec.json.encode(body))
    assert {instance_type.name for instance_type in read.instance_types("default")} == set(MANY)
    assert all(instance_type.attachable_volumes == {} for instance_type in read.instance_types("default"))


def test_equal_catalogs_are_equal_bytes() -> None:
    turned = Catalog(dict(reversed(catalog().by_nodeclass.items())), "catalogs/x.json")
    assert catalog_codec.encode(turned) == catalog_codec.encode(catalog())


def test_classes_that_agree_cost_their_names_only() -> None:
    single = Catalog({"default": catalog().instance_types("default")})
    both = Catalog({"default": catalog().instance_types("default"), "same": catalog().instance_types("same")})
    assert len(catalog_codec.encode(both)) - len(catalog_codec.encode(single)) < 60


def test_equal_parts_are_one_object_when_read() -> None:
    decoded = catalog_codec.decode(catalog_codec.encode(catalog()))
    assert decoded.instance_types("default")[0] is decoded.instance_types("same")[0]
    first, second = decoded.instance_types("default")[:2]
    assert first.requirements.get(labels.OS) is second.requirements.get(labels.OS)


def test_what_is_sold_out_everywhere_is_taken_out_of_a_catalog() -> None:
    sold_out = (UnavailableOffering("spot", "*", "*"), UnavailableOffering("on-demand", "m5.large", ZONES[0]))
    applied = unavailable_offerings.apply_to_catalog(catalog(), (), unavailable_offerings.from_snapshot(sold_out))
    available = {
        (instance_type.name, o.capacity_type, o.zone)
        for instance_type in applied.instance_types("default")
        for o in instance_type.offerings
        if o.available
    }
    assert not any(kind == "spot" for _, kind, _ in available)
    assert ("m5.large", "on-demand", ZONES[0]) not in available
    assert ("m5.large", "on-demand", ZONES[1]) in available


def test_a_region_survives_being_stored() -> None:
    facts = region(*MANY)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=RegionFacts) == facts


IN_PARTITIONS = PlacementGroup("pg-1", "kafka", "partition", 3)


def test_in_a_partition_group_each_offering_is_had_in_every_partition() -> None:
    (instance_type,) = types("m5.large", of=nodeclass(placement_group=IN_PARTITIONS))
    key = labels.PLACEMENT_GROUP_PARTITION
    partitions = [
        (offering.capacity_type, offering.zone, offering.requirements.get(key).sole_value)
        for offering in instance_type.offerings
    ]
    assert len(partitions) == 2 * len(ZONES) * 3
    assert set(partitions) == {
        (kind, zone, name) for kind in ("on-demand", "spot") for zone in ZONES for name in ("1", "2", "3")
    }
    assert instance_type.requirements.get(labels.PLACEMENT_GROUP_ID).sole_value == "pg-1"
    assert instance_type.requirements.get(key).values == {"1", "2", "3"}


@pytest.mark.parametrize("strategy", ["cluster", "spread"])
def test_other_placement_groups_have_no_partitions(strategy: str) -> None:
    (instance_type,) = types("m5.large", of=nodeclass(placement_group=PlacementGroup("pg-1", "one", strategy)))
    assert len(instance_type.offerings) == 2 * len(ZONES)
    assert instance_type.requirements.get(labels.PLACEMENT_GROUP_ID).sole_value == "pg-1"
    assert instance_type.requirements.get(labels.PLACEMENT_GROUP_PARTITION).allows_absence


def test_a_class_without_a_placement_group_is_in_none() -> None:
    (instance_type,) = types("m5.large")
    for key in (labels.PLACEMENT_GROUP_ID, labels.PLACEMENT_GROUP_PARTITION):
        assert instance_type.requirements.get(key).allows_absence
        assert not instance_type.requirements.get(key).has("1")


def test_a_type_that_does_not_go_into_the_group_has_nothing_available() -> None:
    """Burstable types go into no cluster group."""
    cluster, spread = (PlacementGroup("pg-1", "one", kind) for kind in ("cluster", "spread"))
    (burstable,) = types("t3.large", of=nodeclass(placement_group=cluster))
    assert not any(offering.available for offering in burstable.offerings)
    (burstable,) = types("t3.large", of=nodeclass(placement_group=spread))
    assert all(offering.available for offering in burstable.offerings)
