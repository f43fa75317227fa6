"""What the selector terms of an EC2NodeClass match in the account."""

from datetime import UTC, datetime
from typing import Any

import pytest

from spotwright.adapters.aws.ec2.selection import Selection
from spotwright.aws.images import amis
from spotwright.model.karpenter.nodeclass import (
    AMI,
    CapacityReservationSelectorTerm,
    PlacementGroupSelector,
    SelectorTerm,
)
from tests.contract.conftest import LocalAws
from tests.unit.aws.samples import CLUSTER, ZONES

NOW = datetime.now(UTC)
DISCOVERY = (SelectorTerm(tags={"karpenter.sh/discovery": CLUSTER}),)


@pytest.fixture
def selection(local_aws: LocalAws) -> Selection:
    ec2: Any = local_aws.client("ec2")
    ssm: Any = local_aws.client("ssm")
    return Selection(ec2, ssm)


def test_subnets_are_found_by_tags_and_by_id(selection: Selection) -> None:
    subnets = selection.subnets(DISCOVERY)
    assert sorted(subnet.zone for subnet in subnets) == list(ZONES)
    assert all(
        subnet.vpc_id.startswith("vpc-") and subnet.zone_id and subnet.available_ip_address_count > 1000
        for subnet in subnets
    )
    assert selection.subnets((SelectorTerm(id=subnets[0].id), SelectorTerm(id=subnets[1].id))) == subnets[:2]
    assert selection.subnets((SelectorTerm(id=subnets[0].id), *DISCOVERY)) == subnets
    assert selection.subnets((SelectorTerm(tags={"karpenter.sh/discovery": "*"}),)) == subnets
    both = {"karpenter.sh/discovery": CLUSTER, "Name": f"{CLUSTER}-private-a"}
    assert [subnet.zone for subnet in selection.subnets((SelectorTerm(tags=both),))] == [ZONES[0]]
    assert selection.subnets((SelectorTerm(tags={"karpenter.sh/discovery": "other"}),)) == ()
    assert selection.subnets((SelectorTerm(id="subnet-0123456789abcdef0"),)) == ()


def test_groups_are_found_by_tags_id_and_name(selection: Selection) -> None:
    (security_group,) = selection.security_groups(DISCOVERY)
    assert security_group.name == f"{CLUSTER}-node"
    assert selection.security_groups((SelectorTerm(id=security_group.id),)) == (security_group,)
    assert selection.security_groups((SelectorTerm(name=security_group.name),)) == (security_group,)
    owned = (SelectorTerm(tags={f"kubernetes.io/cluster/{CLUSTER}": "owned"}),)
    assert len(selection.security_groups(owned)) == 2


def resolved(selection: Selection, *terms: SelectorTerm) -> tuple[AMI, ...]:
    query = amis.image_query(terms, "1.35")
    assert isinstance(query, amis.ImageQuery)
    values = selection.parameters([parameter.path for parameter in query.parameters])
    ids = sorted({*query.ids, *values.values()})
    return amis.resolve_amis(query, values, selection.images(ids, query.terms), now=NOW)


def test_an_alias_finds_the_images_that_aws_publishes(selection: Selection) -> None:
    images = resolved(selection, SelectorTerm(alias="al2023@latest"))
    assert len(images) == 5
    assert all(image.name.startswith("amazon-eks-node-al2023-") for image in images)
    pinned = resolved(selection, SelectorTerm(alias="al2023@v20250821"))
    assert {image.name.rpartition("-")[2] for image in pinned} == {"v20250821"}
    assert not {image.id for image in pinned} & {image.id for image in images}
    assert resolved(selection, SelectorTerm(alias="al2023@v19990101")) == ()


def test_images_are_found_by_name_and_id(selection: Selection) -> None:
    name = "amazon-eks-node-al2023-arm64-standard-1.35-*"
    (by_name,) = resolved(selection, SelectorTerm(name=name))
    assert by_name.name.endswith("v20261104")
    assert resolved(selection, SelectorTerm(id=by_name.id)) == (by_name,)
    assert resolved(selection, SelectorTerm(name=name, owner="self")) == ()


def test_aliases_of_every_family_find_what_aws_publishes(selection: Selection) -> None:
    def names(alias: str, version: str) -> list[str]:
        query = amis.image_query((SelectorTerm(alias=alias),), version)
        assert isinstance(query, amis.ImageQuery)
        values = selection.parameters([parameter.path for parameter in query.parameters])
        images = selection.images(sorted(set(values.values())), ())
        return [ami.name for ami in amis.resolve_amis(query, values, images, now=NOW)]

    assert len(names("bottlerocket@latest", "1.35")) == 5
    assert len(names("al2@latest", "1.32")) == 4
    for year in (2019, 2022, 2025):
        (name,) = names(f"windows{year}@latest", "1.35")
        assert name.startswith(f"Windows_Server-{year}-English-Core-EKS_Optimized-1.35")


def test_an_image_may_be_named_by_a_parameter(selection: Selection) -> None:
    path = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/arm64/standard/recommended/image_id"
    (image,) = resolved(selection, SelectorTerm(ssm_parameter=path))
    assert "arm64-standard" in image.name
    assert resolved(selection, SelectorTerm(ssm_parameter="/aws/service/eks/no-such")) == ()


def test_reservations_are_found_by_id_tags_owner_and_criteria(local_aws: LocalAws, selection: Selection) -> None:
    client: Any = local_aws.client("ec2")

    def make(criteria: str, team: str) -> str:
        reservation = client.create_capacity_reservation(
            InstanceType="m5.large", InstancePlatform="Linux/UNIX", AvailabilityZone=ZONES[0], InstanceCount=4,
            InstanceMatchCriteria=criteria,
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": [{"Key": "team", "Value": team}]}],
        )  # fmt: skip
        return str(reservation["CapacityReservation"]["CapacityReservationId"])

    targeted, open_reservation = sorted((make("targeted", "a"), make("open", "b")))
    assert selection.capacity_reservations(()) == ()

    def selected_ids(*terms: CapacityReservationSelectorTerm) -> list[str]:
        return [reservation.id for reservation in selection.capacity_reservations(terms)]

    assert selected_ids(
        CapacityReservationSelectorTerm(id=targeted), CapacityReservationSelectorTerm(id=open_reservation)
    ) == [targeted, open_reservation]
    assert selected_ids(
        CapacityReservationSelectorTerm(id=targeted), CapacityReservationSelectorTerm(id="cr-0123456789abcdef0")
    ) == [targeted]
    assert selected_ids(
        CapacityReservationSelectorTerm(tags={"team": "*"}), CapacityReservationSelectorTerm(id=targeted)
    ) == [
        targeted,
        open_reservation,
    ]
    assert (
        len(selected_ids(CapacityReservationSelectorTerm(tags={"team": "a"}, instance_match_criteria="targeted"))) == 1
    )
    assert selected_ids(CapacityReservationSelectorTerm(tags={"team": "a"}, owner_id="999999999999")) == []
    (read,) = selection.capacity_reservations((CapacityReservationSelectorTerm(id=targeted),))
    assert (read.instance_type, read.zone, read.available_instance_count, read.end_time) == (
        "m5.large",
        ZONES[0],
        4,
        None,
    )
    client.cancel_capacity_reservation(CapacityReservationId=targeted)
    assert selected_ids(
        CapacityReservationSelectorTerm(id=targeted), CapacityReservationSelectorTerm(id=open_reservation)
    ) == [open_reservation]


def test_a_placement_group_is_found_by_name_and_id(local_aws: LocalAws, selection: Selection) -> None:
    client: Any = local_aws.client("ec2")
    client.create_placement_group(GroupName="near", Strategy="partition", PartitionCount=3)
    placement_group = selection.placement_group(PlacementGroupSelector(name="near"))
    assert placement_group is not None
    assert (placement_group.name, placement_group.strategy, placement_group.partition_count) == ("near", "partition", 3)
    assert selection.placement_group(PlacementGroupSelector(id=placement_group.id)) == placement_group
    assert selection.placement_group(PlacementGroupSelector(name="far")) is None
