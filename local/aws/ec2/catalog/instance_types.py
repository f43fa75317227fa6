"""DescribeInstanceTypes and DescribeInstanceTypeOfferings, paged as EC2 pages them.

The data never changes while the process runs, so answers are kept by their parameters: writing 100 types as
XML takes longer than everything else.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import InstanceType

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.ec2.filters import apply_filters
from local.aws.emulator import Emulator

TYPES_PER_PAGE = 100
OFFERINGS_PER_PAGE = 1000


class CachedAnswers:
    """Answers to a call that depends on nothing but its parameters; `ignored_parameters` change nothing."""

    def __init__(
        self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]], ignored_parameters: tuple[str, ...] = ()
    ) -> None:
        self._answer = answer
        self._ignoring = ignored_parameters
        self._lock = threading.Lock()
        self._kept: dict[str, AwsResponse] = {}

    def __call__(self, request: AwsRequest) -> AwsResponse:
        told = {name: value for name, value in request.params.items() if name not in self._ignoring}
        key = json.dumps(told, sort_keys=True, default=str)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = request.reply(self._answer(request.params))
            return self._kept[key]


def add(emulator: Emulator) -> None:
    emulator.handle("ec2", "DescribeInstanceTypes", CachedAnswers(lambda params: _types(emulator, params)))
    emulator.handle("ec2", "DescribeInstanceTypeOfferings", CachedAnswers(lambda params: _offerings(emulator, params)))


def _types(emulator: Emulator, params: Mapping[str, Any]) -> dict[str, Any]:
    offerings = emulator.component(Offerings)
    names = params.get("InstanceTypes") or []
    if names and params.get("MaxResults"):
        raise AwsError(
            "InvalidParameterCombination",
            "The parameter InstanceTypes cannot be used with the parameter MaxResults",
        )
    _check_page(params, TYPES_PER_PAGE)
    unknown = [name for name in names if name not in offerings.zones_by_type]
    if unknown:
        raise AwsError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        )
    types = [offerings.describe(name) for name in names or offerings.zones_by_type]
    found = apply_filters(types, params.get("Filters") or [], values=_TYPE_FILTERS)
    some, token = page(found, params, default=TYPES_PER_PAGE)
    return {"InstanceTypes": some} | token


def _at(path: list[str]) -> Callable[[Any], object]:
    """The value at `path`, through lists."""

    def read(value: Any) -> object:
        for key in path:
            if isinstance(value, list):
                value = [item.get(key) for item in value]
            else:
                value = (value or {}).get(key)
        return value

    return read


_TYPE_FILTERS = {name: _at(path) for name, path in InstanceType._filter_attributes.items()}


def _offerings(emulator: Emulator, params: Mapping[str, Any]) -> dict[str, Any]:
    _check_page(params, OFFERINGS_PER_PAGE)
    location = params.get("LocationType") or "region"
    found = apply_filters(
        _located(emulator, location),
        params.get("Filters") or [],
        values={
            "instance-type": lambda offering: offering["InstanceType"],
            "location": lambda offering: offering["Location"],
        },
    )
    some, token = page(found, params, default=OFFERINGS_PER_PAGE)
    return {"InstanceTypeOfferings": some} | token


def _located(emulator: Emulator, location_type: str) -> list[dict[str, str]]:
    zone_ids = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones[emulator.region]}
    names: Mapping[str, Callable[[str], str]] = {
        "region": lambda _: emulator.region,
        "availability-zone": lambda zone: zone,
        "availability-zone-id": lambda zone: str(zone_ids[zone]),
    }
    if location_type not in names:
        raise AwsError("InvalidParameterValue", f"Value ({location_type}) for parameter LocationType is invalid.")
    name = names[location_type]
    return [
        {"InstanceType": instance_type, "LocationType": location_type, "Location": location}
        for instance_type, zones in emulator.component(Offerings).zones_by_type.items()
        for location in sorted({name(zone) for zone in zones})
    ]


def _check_page(params: Mapping[str, Any], most: int) -> None:
    size = params.get("MaxResults")
    if size is not None and not 5 <= int(size) <= most:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between 5 and {most}",
        )
