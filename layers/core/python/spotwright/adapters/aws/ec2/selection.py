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
        found: dict[str, DiscoveredSubnet] = {}
        with translate_errors("DescribeSubnets"):
            for filters in _filters(terms, "subnet-id"):
                pages = self._ec2.get_paginator("describe_subnets").paginate(
                    Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
                )
                found |= {subnet["SubnetId"]: decode_subnet(subnet) for page in pages for subnet in page["Subnets"]}
        return tuple(found[key] for key in sorted(found))

    def security_groups(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSecurityGroup, ...]:
        found: dict[str, DiscoveredSecurityGroup] = {}
        with translate_errors("DescribeSecurityGroups"):
            for filters in _filters(terms, "group-id"):
                pages = self._ec2.get_paginator("describe_security_groups").paginate(
                    Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
                )
                found |= {
                    security_group["GroupId"]: decode_security_group(security_group)
                    for page in pages
                    for security_group in page["SecurityGroups"]
                }
        return tuple(found[key] for key in sorted(found))

    def capacity_reservations(
        self, terms: Sequence[CapacityReservationSelectorTerm]
    ) -> tuple[CapacityReservation, ...]:
        found = self._reservations_by_id(sorted(term.id for term in terms if term.id))
        with translate_errors("DescribeCapacityReservations"):
            for filters in _reservation_filters(terms):
                pages = self._ec2.get_paginator("describe_capacity_reservations").paginate(
                    Filters=filters, PaginationConfig={"PageSize": IMAGES_PAGE_SIZE}
                )
                found |= {
                    reservation["CapacityReservationId"]: reservation
                    for page in pages
                    for reservation in page["CapacityReservations"]
                }
        return tuple(
            decode_capacity_reservation(found[key]) for key in sorted(found) if found[key].get("State") == "active"
        )

    def _reservations_by_id(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """One that is gone is an error for all; then each is asked for alone."""
        if not ids:
            return {}
        try:
            with translate_errors("DescribeCapacityReservations"):
                answer = self._ec2.describe_capacity_reservations(CapacityReservationIds=list(ids))
        except NotFound:
            return {} if len(ids) == 1 else {k: one for id in ids for k, one in self._reservations_by_id([id]).items()}
        return {reservation["CapacityReservationId"]: reservation for reservation in answer["CapacityReservations"]}

    def placement_group(self, selector: PlacementGroupSelector) -> PlacementGroup | None:
        named: dict[str, Any] = {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
        available: FilterTypeDef = {"Name": "state", "Values": ["available"]}
        try:
            with translate_errors("DescribePlacementGroups"):
                placement_groups = self._ec2.describe_placement_groups(**named, Filters=[available])["PlacementGroups"]
        except NotFound:
            return None
        return next((decode_placement_group(placement_group) for placement_group in placement_groups), None)

    def parameters(self, names: Sequence[str]) -> Mapping[str, str]:
        return ssm.get_parameters(self._ssm, names)

    def images(self, ids: Sequence[str], terms: Sequence[SelectorTerm]) -> tuple[Image, ...]:
        found: dict[str, Image] = {}
        with translate_errors("DescribeImages"):
            for arguments in _image_queries(ids, terms):
                pages = self._ec2.get_paginator("describe_images").paginate(
                    **arguments, IncludeDeprecated=True, PaginationConfig={"PageSize": IMAGES_PAGE_SIZE}
                )
                found |= {image["ImageId"]: decode_image(image) for page in pages for image in page["Images"]}
        return tuple(found[key] for key in sorted(found))


def _filters(terms: Sequence[SelectorTerm], id_filter: str) -> "Iterator[list[FilterTypeDef]]":
    """One query for all ids together, and one for every other term, whose fields all have to hold."""
    ids = sorted(term.id for term in terms if term.id)
    if ids:
        yield [{"Name": id_filter, "Values": ids}]
    for term in terms:
        if not term.id:
            named: list[FilterTypeDef] = [{"Name": "group-name", "Values": [term.name]}] if term.name else []
            yield [*named, *_tag_filters(term.tags)]


def _tag_filters(tags: Mapping[str, str]) -> "Iterator[FilterTypeDef]":
    """``*`` means that the key exists."""
    for key, value in sorted(tags.items()):
        if value == "*":
            yield {"Name": "tag-key", "Values": [key]}
        else:
            yield {"Name": f"tag:{key}", "Values": [value]}


def _reservation_filters(terms: Sequence[CapacityReservationSelectorTerm]) -> "Iterator[list[FilterTypeDef]]":
    """One query for every term that names no id."""
    for term in terms:
        if term.id:
            continue
        filters: list[FilterTypeDef] = [{"Name": "state", "Values": ["active"]}, *_tag_filters(term.tags)]
        for name, value in (("owner-id", term.owner_id), ("instance-match-criteria", term.instance_match_criteria)):
            if value:
                filters.append({"Name": name, "Values": [value]})
        yield filters


def _image_queries(ids: Sequence[str], terms: Sequence[SelectorTerm]) -> Iterator[dict[str, Any]]:
    """DescribeImages arguments. A name without an owner means ours and Amazon's; tags alone mean anybody's."""
    available: FilterTypeDef = {"Name": "state", "Values": ["available"]}
    if ids:
        yield {"Filters": [available, {"Name": "image-id", "Values": sorted(ids)}]}
    for term in terms:
        named: list[FilterTypeDef] = [{"Name": "name", "Values": [term.name]}] if term.name else []
        owners = [term.owner] if term.owner else ["amazon", "self"] if term.name else []
        query: dict[str, Any] = {"Filters": [available, *named, *_tag_filters(term.tags)]}
        yield query | ({"Owners": owners} if owners else {})
