"""What the catalog reads from AWS (here the local one): the market, a class' selections, profiles, the cluster."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import urllib3

from spotwright import data
from spotwright.adapters import eks, pricing
from spotwright.adapters.ec2_network import Selection
from spotwright.adapters.ec2_region import Ec2Region
from spotwright.adapters.iam import InstanceProfiles
from spotwright.adapters.zonal_shift import ZonalShifts
from spotwright.aws.images import amis
from spotwright.aws.instance_types.offerings import RegionFacts
from spotwright.aws.nodeclass import readiness
from spotwright.errors import Denied, InvalidRequest, NotFound, Unavailable
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import (
    AMI,
    CapacityReservationSelectorTerm,
    PlacementGroupSelector,
    SelectorTerm,
)
from spotwright.model.kubernetes.meta import ObjectMeta
from tests.contract.conftest import REGION, LocalAws
from tests.unit.aws.samples import CLUSTER, ZONES, node_class, type_of

DISCOVERY = (SelectorTerm(tags={"karpenter.sh/discovery": CLUSTER}),)
NOW = datetime.now(UTC)


@pytest.fixture(scope="session")
def market(local_aws: LocalAws) -> RegionFacts:
    client: Any = local_aws.client("ec2")
    return Ec2Region(client, local_aws.prices(), region=REGION).read(NOW)


@pytest.fixture
def selection(local_aws: LocalAws) -> Selection:
    ec2: Any = local_aws.client("ec2")
    ssm: Any = local_aws.client("ssm")
    return Selection(ec2, ssm)


def test_every_type_of_the_region_is_read_past_the_first_page(market: RegionFacts) -> None:
    assert market.notes == ()
    assert len(market.types) > 700
    assert [one.name for one in market.types] == sorted(one.name for one in market.types)
    assert next(one for one in market.types if one.name == "m5.large") == type_of("m5.large")
    assert all({"x86_64", "arm64"} & set(one.architectures) for one in market.types)


def test_zones_and_prices_are_those_of_the_region(market: RegionFacts) -> None:
    assert market.zones["m5.large"] == (*ZONES, f"{REGION}d")
    assert market.zones["t3a.large"] == (ZONES[0], ZONES[2])
    assert market.on_demand["m5.large"] == 96_000_000_000
    assert market.on_demand["m5.metal"] == 4_608_000_000_000
    assert market.spot is not None
    for zone, price in market.spot["m5.large"].items():
        assert zone in market.zones["m5.large"]
        assert 0 < price < market.on_demand["m5.large"] // 2


def test_published_prices_stand_in_for_a_price_list_that_does_not_answer(local_aws: LocalAws) -> None:
    client: Any = local_aws.client("ec2")
    wrong: Any = local_aws.client("pricing")
    found = Ec2Region(client, wrong, region=REGION).read(NOW)
    assert found.on_demand == data.on_demand_picousd(REGION)
    assert any("Price List" in note or "GetProducts" in note for note in found.notes)
    silent = Ec2Region(client, None, region=REGION).read(NOW)
    assert silent.on_demand == found.on_demand
    assert len(silent.notes) == 1


def test_without_spot_prices_the_region_says_so(local_aws: LocalAws, fault: Callable[..., None]) -> None:
    fault("ec2", "DescribeSpotPriceHistory", "UnauthorizedOperation")
    client: Any = local_aws.client("ec2")
    found = Ec2Region(client, None, region=REGION).read(NOW)
    assert found.spot is None
    assert any("UnauthorizedOperation" in note for note in found.notes)


def test_spot_prices_are_asked_for_with_and_without_a_vpc(local_aws: LocalAws) -> None:
    client: Any = local_aws.client("ec2")
    asked: list[list[str]] = []
    client.meta.events.register(
        "provide-client-params.ec2.DescribeSpotPriceHistory",
        lambda params, **_: asked.append(params["ProductDescriptions"]),
    )
    Ec2Region(client, None, region=REGION).read(NOW)
    assert asked
    assert all(sorted(one) == ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"] for one in asked)


def test_types_that_cannot_be_read_are_no_types(local_aws: LocalAws, fault: Callable[..., None]) -> None:
    fault("ec2", "DescribeInstanceTypes", "UnauthorizedOperation")
    client: Any = local_aws.client("ec2")
    with pytest.raises(Denied):
        Ec2Region(client, None, region=REGION).read(NOW)


def test_subnets_are_found_by_tags_and_by_id(selection: Selection) -> None:
    found = selection.subnets(DISCOVERY)
    assert sorted(one.zone for one in found) == list(ZONES)
    assert all(one.vpc_id.startswith("vpc-") and one.zone_id and one.available_ip_address_count > 1000 for one in found)
    assert selection.subnets((SelectorTerm(id=found[0].id), SelectorTerm(id=found[1].id))) == found[:2]
    assert selection.subnets((SelectorTerm(id=found[0].id), *DISCOVERY)) == found
    assert selection.subnets((SelectorTerm(tags={"karpenter.sh/discovery": "*"}),)) == found
    both = {"karpenter.sh/discovery": CLUSTER, "Name": f"{CLUSTER}-private-a"}
    assert [one.zone for one in selection.subnets((SelectorTerm(tags=both),))] == [ZONES[0]]
    assert selection.subnets((SelectorTerm(tags={"karpenter.sh/discovery": "other"}),)) == ()
    assert selection.subnets((SelectorTerm(id="subnet-0123456789abcdef0"),)) == ()


def test_groups_are_found_by_tags_id_and_name(selection: Selection) -> None:
    (one,) = selection.security_groups(DISCOVERY)
    assert one.name == f"{CLUSTER}-node"
    assert selection.security_groups((SelectorTerm(id=one.id),)) == (one,)
    assert selection.security_groups((SelectorTerm(name=one.name),)) == (one,)
    owned = (SelectorTerm(tags={f"kubernetes.io/cluster/{CLUSTER}": "owned"}),)
    assert len(selection.security_groups(owned)) == 2


def resolved(selection: Selection, *terms: SelectorTerm) -> tuple[AMI, ...]:
    asked = amis.image_query(terms, "1.35")
    assert isinstance(asked, amis.ImageQuery)
    values = selection.parameters([one.path for one in asked.parameters])
    ids = sorted({*asked.ids, *values.values()})
    return amis.resolve_amis(asked, values, selection.images(ids, asked.terms), now=NOW)


def test_an_alias_finds_the_images_that_aws_publishes(selection: Selection) -> None:
    found = resolved(selection, SelectorTerm(alias="al2023@latest"))
    assert len(found) == 5
    assert all(one.name.startswith("amazon-eks-node-al2023-") for one in found)
    pinned = resolved(selection, SelectorTerm(alias="al2023@v20250821"))
    assert {one.name.rpartition("-")[2] for one in pinned} == {"v20250821"}
    assert not {one.id for one in pinned} & {one.id for one in found}
    assert resolved(selection, SelectorTerm(alias="al2023@v19990101")) == ()


def test_images_are_found_by_name_and_id(selection: Selection) -> None:
    name = "amazon-eks-node-al2023-arm64-standard-1.35-*"
    (by_name,) = resolved(selection, SelectorTerm(name=name))
    assert by_name.name.endswith("v20261104")
    assert resolved(selection, SelectorTerm(id=by_name.id)) == (by_name,)
    assert resolved(selection, SelectorTerm(name=name, owner="self")) == ()


def test_aliases_of_every_family_find_what_aws_publishes(selection: Selection) -> None:
    def names(alias: str, version: str) -> list[str]:
        asked = amis.image_query((SelectorTerm(alias=alias),), version)
        assert isinstance(asked, amis.ImageQuery)
        values = selection.parameters([one.path for one in asked.parameters])
        images = selection.images(sorted(set(values.values())), ())
        return [one.name for one in amis.resolve_amis(asked, values, images, now=NOW)]

    assert len(names("bottlerocket@latest", "1.35")) == 5
    assert len(names("al2@latest", "1.32")) == 4
    for year in (2019, 2022, 2025):
        (name,) = names(f"windows{year}@latest", "1.35")
        assert name.startswith(f"Windows_Server-{year}-English-Core-EKS_Optimized-1.35")


def test_an_image_may_be_named_by_a_parameter(selection: Selection) -> None:
    path = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/arm64/standard/recommended/image_id"
    (found,) = resolved(selection, SelectorTerm(ssm_parameter=path))
    assert "arm64-standard" in found.name
    assert resolved(selection, SelectorTerm(ssm_parameter="/aws/service/eks/no-such")) == ()


def test_reservations_are_found_by_id_tags_owner_and_criteria(local_aws: LocalAws, selection: Selection) -> None:
    client: Any = local_aws.client("ec2")

    def make(criteria: str, team: str) -> str:
        made = client.create_capacity_reservation(
            InstanceType="m5.large", InstancePlatform="Linux/UNIX", AvailabilityZone=ZONES[0], InstanceCount=4,
            InstanceMatchCriteria=criteria,
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": [{"Key": "team", "Value": team}]}],
        )  # fmt: skip
        return str(made["CapacityReservation"]["CapacityReservationId"])

    one, other = sorted((make("targeted", "a"), make("open", "b")))
    assert selection.capacity_reservations(()) == ()

    def found(*terms: CapacityReservationSelectorTerm) -> list[str]:
        return [each.id for each in selection.capacity_reservations(terms)]

    assert found(CapacityReservationSelectorTerm(id=one), CapacityReservationSelectorTerm(id=other)) == [one, other]
    assert found(
        CapacityReservationSelectorTerm(id=one), CapacityReservationSelectorTerm(id="cr-0123456789abcdef0")
    ) == [one]
    assert found(CapacityReservationSelectorTerm(tags={"team": "*"}), CapacityReservationSelectorTerm(id=one)) == [
        one,
        other,
    ]
    assert len(found(CapacityReservationSelectorTerm(tags={"team": "a"}, instance_match_criteria="targeted"))) == 1
    assert found(CapacityReservationSelectorTerm(tags={"team": "a"}, owner_id="999999999999")) == []
    (read,) = selection.capacity_reservations((CapacityReservationSelectorTerm(id=one),))
    assert (read.instance_type, read.zone, read.available_instance_count, read.end_time) == (
        "m5.large",
        ZONES[0],
        4,
        None,
    )
    client.cancel_capacity_reservation(CapacityReservationId=one)
    assert found(CapacityReservationSelectorTerm(id=one), CapacityReservationSelectorTerm(id=other)) == [other]


def test_a_placement_group_is_found_by_name_and_id(local_aws: LocalAws, selection: Selection) -> None:
    client: Any = local_aws.client("ec2")
    client.create_placement_group(GroupName="near", Strategy="partition", PartitionCount=3)
    found = selection.placement_group(PlacementGroupSelector(name="near"))
    assert found is not None
    assert (found.name, found.strategy, found.partition_count) == ("near", "partition", 3)
    assert selection.placement_group(PlacementGroupSelector(id=found.id)) == found
    assert selection.placement_group(PlacementGroupSelector(name="far")) is None


def wanted(uid: str) -> readiness.DesiredProfile:
    one = node_class(metadata=ObjectMeta("default", uid=uid))
    found = readiness.desired_profile(one, region=REGION, cluster=CLUSTER, node_roles=(f"KarpenterNodeRole-{CLUSTER}",))
    assert isinstance(found, readiness.DesiredProfile)
    return found


@pytest.fixture
def profiles(local_aws: LocalAws) -> InstanceProfiles:
    client: Any = local_aws.client("iam")
    return InstanceProfiles(client)


def test_a_profile_is_made_once_and_goes_with_its_class(profiles: InstanceProfiles) -> None:
    one, other = wanted("uid-1"), wanted("uid-2")
    assert profiles.role_of(one.name) is None
    for _ in range(2):
        profiles.ensure(name=one.name, path=one.path, role=one.role, tags=one.tags)
    profiles.ensure(name=other.name, path=other.path, role=other.role, tags=other.tags)
    assert profiles.role_of(one.name) == one.role
    assert profiles.names_under(one.path) == (one.name,)
    for _ in range(2):
        profiles.delete(one.name)
    assert profiles.names_under(one.path) == ()
    assert profiles.names_under(other.path) == (other.name,)


def test_a_profile_with_another_role_is_put_right(profiles: InstanceProfiles) -> None:
    one = wanted("uid-3")
    profiles.ensure(name=one.name, path=one.path, role="dev-eks-node-group-role", tags=one.tags)
    profiles.ensure(name=one.name, path=one.path, role=one.role, tags=one.tags)
    assert profiles.role_of(one.name) == one.role


def test_a_role_that_does_not_exist_leaves_no_profile_behind(profiles: InstanceProfiles) -> None:
    one = wanted("uid-4")
    with pytest.raises(NotFound):
        profiles.ensure(name=one.name, path=one.path, role="nobody", tags=one.tags)
    assert profiles.names_under(one.path) == ()


def test_a_cluster_tells_where_it_is(local_aws: LocalAws) -> None:
    body = {
        "name": "told", "endpoint": "https://127.0.0.1:6443", "certificateAuthority": "Q0E=", "version": "1.35",
        "serviceIpv4Cidr": "10.96.0.0/16", "vpcId": "vpc-1",
    }  # fmt: skip
    answer = urllib3.request("POST", f"{local_aws.endpoint}/_local/clusters", body=json.dumps(body))
    assert answer.status == 200, answer.data
    client: Any = local_aws.client("eks")
    found = eks.cluster_facts(client, "told")
    assert isinstance(found, ClusterFacts)
    assert (found.endpoint, found.certificate_authority, found.version) == ("https://127.0.0.1:6443", "Q0E=", "1.35")
    assert (found.service_cidr, found.dns_ip) == ("10.96.0.0/16", "10.96.0.10")
    with pytest.raises(NotFound):
        eks.cluster_facts(client, "nobody")


@pytest.mark.parametrize(("cidr", "address"), [("172.20.0.0/16", "172.20.0.10"), ("fd00::/108", "fd00::a"), ("", "")])
def test_the_dns_service_has_the_tenth_address(cidr: str, address: str) -> None:
    assert eks.dns_address(cidr) == address


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("ap-northeast-2", "ap-south-1"),
        ("eu-west-1", "eu-central-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("us-west-2", "us-east-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_the_price_list_is_asked_where_it_answers(region: str, endpoint: str) -> None:
    assert pricing.endpoint_region(region) == endpoint


def test_half_a_price_list_is_none(local_aws: LocalAws) -> None:
    with pytest.raises((Unavailable, InvalidRequest)):
        pricing.on_demand(local_aws.prices(), "mars-north-1")


def test_prices_of_last_time_stand_where_nobody_answers(local_aws: LocalAws, fault: Any, market: RegionFacts) -> None:
    fault("pricing", "GetProducts", "AccessDeniedException")
    fault("ec2", "DescribeSpotPriceHistory", "UnauthorizedOperation")
    before = msgspec.structs.replace(
        market,
        on_demand=market.on_demand | {"m5.large": 7, "x99.large": 9},
        spot={"m5.large": {ZONES[0]: 5}},
    )
    client: Any = local_aws.client("ec2")
    found = Ec2Region(client, local_aws.prices(), region=REGION).read(NOW, before)
    assert (found.on_demand["m5.large"], found.on_demand["x99.large"]) == (7, 9)
    assert found.spot == before.spot
    assert [note.partition(":")[0] for note in found.notes] == [
        "on-demand prices are those of last time",
        "spot prices are those of last time",
    ]


def test_a_newer_answer_replaces_only_the_prices_that_it_states(local_aws: LocalAws, market: RegionFacts) -> None:
    before = msgspec.structs.replace(market, on_demand={"m5.large": 7, "x99.large": 9}, spot={"gone": {ZONES[0]: 5}})
    client: Any = local_aws.client("ec2")
    found = Ec2Region(client, local_aws.prices(), region=REGION).read(NOW, before)
    assert found.on_demand["m5.large"] == market.on_demand["m5.large"]
    assert found.on_demand["x99.large"] == 9
    assert found.spot == market.spot


def test_a_zonal_shift_names_the_zone_until_it_ends(local_aws: LocalAws) -> None:
    shifts = ZonalShifts(local_aws.client("arc-zonal-shift"), f"arn:aws:eks:{REGION}:123456789012:cluster/{CLUSTER}")

    def shift(**body: Any) -> None:
        answer = urllib3.request("POST", f"{local_aws.endpoint}/_local/shift", body=json.dumps(body))
        assert answer.status == 200, answer.data

    now = datetime.now(UTC)
    assert shifts.shifted_zone_ids(now) == frozenset()
    shift(zones=["apne2-az1", "apne2-az3"])
    assert shifts.shifted_zone_ids(now) == {"apne2-az1", "apne2-az3"}
    assert shifts.shifted_zone_ids(now + timedelta(hours=2)) == frozenset()
    shift(zones=[])
    assert shifts.shifted_zone_ids(now) == frozenset()
