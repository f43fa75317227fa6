"""The subnets, security groups, images, reservations and placement groups that a class selects (SelectorPort)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spotwright.adapters.aws import ssm
from spotwright.adapters.aws.ec2.codecs.selection import (
    decode_capacity_reservation,
    decode_image,
    decode_placement_group,
    decode_security_group,
    decode_subnet,
)
from spotwright.adapters.aws.errors import translate_errors
from spotwright.aws.images.amis import Image
from spotwright.aws.nodeclass.readiness import DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.errors import NotFound
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    CapacityReservationSelectorTerm,
    PlacementGroup,
    PlacementGroupSelector,
    SelectorTerm,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef
    from mypy_boto3_ssm.client import SSMClient

PAGE_SIZE: Final = 500
IMAGES_PAGE_SIZE: Final = 1000


class Selection:
    """See SelectorPort."""

    def __init__(self, ec2: "EC2Client", parameters: "SSMClient") -> None:
        self._ec2, self._ssm = ec2, parameters

    def subnets(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSubnet, ...]:
        subnets_by_id: dict[str, DiscoveredSubnet] = {}
        with translate_errors("DescribeSubnets"):
            for filters in _filters(terms, "subnet-id"):
                pages = self._ec2.get_paginator("describe_subnets").paginate(
                    Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
                )
                subnets_by_id |= {
                    subnet["SubnetId"]: decode_subnet(subnet) for page in pages for subnet in page["Subnets"]
                }
        return tuple(subnets_by_id[key] for key in sorted(subnets_by_id))

    def security_groups(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSecurityGroup, ...]:
        groups_by_id: dict[str, DiscoveredSecurityGroup] = {}
        with translate_errors("DescribeSecurityGroups"):
            for filters in _filters(terms, "group-id"):
                pages = self._ec2.get_paginator("describe_security_groups").paginate(
                    Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
                )
                groups_by_id |= {
                    security_group["GroupId"]: decode_security_group(security_group)
                    for page in pages
                    for security_group in page["SecurityGroups"]
                }
        return tuple(groups_by_id[key] for key in sorted(groups_by_id))

    def capacity_reservations(
        self, terms: Sequence[CapacityReservationSelectorTerm]
    ) -> tuple[CapacityReservation, ...]:
        reservations = self._reservations_by_id(sorted(term.id for term in terms if term.id))
        with translate_errors("DescribeCapacityReservations"):
            for filters in _reservation_filters(terms):
                pages = self._ec2.get_paginator("describe_capacity_reservations").paginate(
                    Filters=filters, PaginationConfig={"PageSize": IMAGES_PAGE_SIZE}
                )
                reservations |= {
                    reservation["CapacityReservationId"]: reservation
                    for page in pages
                    for reservation in page["CapacityReservations"]
                }
        return tuple(
            decode_capacity_reservation(reservations[key])
            for key in sorted(reservations)
            if reservations[key].get("State") == "active"
        )

    def _reservations_by_id(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """A missing reservation fails the call for all ids; then every id has a call of its own."""
        if not ids:
            return {}
        try:
            with translate_errors("DescribeCapacityReservations"):
                answer = self._ec2.describe_capacity_reservations(CapacityReservationIds=list(ids))
        except NotFound:
            return (
                {}
                if len(ids) == 1
                else {key: reservation for id in ids for key, reservation in self._reservations_by_id([id]).items()}
            )
        return {reservation["CapacityReservationId"]: reservation for reservation in answer["CapacityReservations"]}

    def placement_group(self, selector: PlacementGroupSelector) -> PlacementGroup | None:
        selected: dict[str, Any] = {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
        available: FilterTypeDef = {"Name": "state", "Values": ["available"]}
        try:
            with translate_errors("DescribePlacementGroups"):
                placement_groups = self._ec2.describe_placement_groups(**selected, Filters=[available])[
                    "PlacementGroups"
                ]
        except NotFound:
            return None
        return next((decode_placement_group(placement_group) for placement_group in placement_groups), None)

    def parameters(self, names: Sequence[str]) -> Mapping[str, str]:
        return ssm.get_parameters(self._ssm, names)

    def images(self, ids: Sequence[str], terms: Sequence[SelectorTerm]) -> tuple[Image, ...]:
        images_by_id: dict[str, Image] = {}
        with translate_errors("DescribeImages"):
            for arguments in _image_queries(ids, terms):
                pages = self._ec2.get_paginator("describe_images").paginate(
                    **arguments, IncludeDeprecated=True, PaginationConfig={"PageSize": IMAGES_PAGE_SIZE}
                )
                images_by_id |= {image["ImageId"]: decode_image(image) for page in pages for image in page["Images"]}
        return tuple(images_by_id[key] for key in sorted(images_by_id))


def _filters(terms: Sequence[SelectorTerm], id_filter: str) -> "Iterator[list[FilterTypeDef]]":
    """A query for all ids together, and a query for every other term, whose fields all have to match."""
    ids = sorted(term.id for term in terms if term.id)
    if ids:
        yield [{"Name": id_filter, "Values": ids}]
    for term in terms:
        if not term.id:
            name_filters: list[FilterTypeDef] = [{"Name": "group-name", "Values": [term.name]}] if term.name else []
            yield [*name_filters, *_tag_filters(term.tags)]


def _tag_filters(tags: Mapping[str, str]) -> "Iterator[FilterTypeDef]":
    """``*`` means that the key exists."""
    for key, value in sorted(tags.items()):
        if value == "*":
            yield {"Name": "tag-key", "Values": [key]}
        else:
            yield {"Name": f"tag:{key}", "Values": [value]}


def _reservation_filters(terms: Sequence[CapacityReservationSelectorTerm]) -> "Iterator[list[FilterTypeDef]]":
    """A query for every term without an id."""
    for term in terms:
        if term.id:
            continue
        filters: list[FilterTypeDef] = [{"Name": "state", "Values": ["active"]}, *_tag_filters(term.tags)]
        for name, value in (("owner-id", term.owner_id), ("instance-match-criteria", term.instance_match_criteria)):
            if value:
                filters.append({"Name": name, "Values": [value]})
        yield filters


def _image_queries(ids: Sequence[str], terms: Sequence[SelectorTerm]) -> Iterator[dict[str, Any]]:
    """Arguments of DescribeImages. A name without owner selects images of the account and of Amazon, tags alone of all
    owners."""
    available: FilterTypeDef = {"Name": "state", "Values": ["available"]}
    if ids:
        yield {"Filters": [available, {"Name": "image-id", "Values": sorted(ids)}]}
    for term in terms:
        name_filters: list[FilterTypeDef] = [{"Name": "name", "Values": [term.name]}] if term.name else []
        owners = [term.owner] if term.owner else ["amazon", "self"] if term.name else []
        query: dict[str, Any] = {"Filters": [available, *name_filters, *_tag_filters(term.tags)]}
        yield query | ({"Owners": owners} if owners else {})
