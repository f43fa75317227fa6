"""What a function and the API server spent: read from REPORT lines and from the API server's metrics."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

FLOW_SCHEMA: Final = "spotwright"
_READS: Final = frozenset({"GET", "LIST"})
_PEAK: Final = re.compile(r"^REPORT .*\tMax Memory Used: (\d+) MB", re.MULTILINE)
_PROCESSOR: Final = re.compile(r"^REPORT .*\tProcessor Time: ([0-9.]+) ms", re.MULTILINE)


@dataclass(frozen=True)
class ApiServerLoad:
    """Since the API server started. ``requests``: those of the functions and the forwarder, by their FlowSchema.

    ``bytes_by_resource``: what GET and LIST answered to anybody, since the API server does not count bytes by user.
    """

    requests: int
    bytes_by_resource: Mapping[str, int] = field(default_factory=dict)

    @property
    def read_bytes(self) -> int:
        return sum(self.bytes_by_resource.values())

    def since(self, earlier: "ApiServerLoad") -> "ApiServerLoad":
        before = earlier.bytes_by_resource
        read = {name: size - before.get(name, 0) for name, size in self.bytes_by_resource.items()}
        return ApiServerLoad(self.requests - earlier.requests, read)


def api_server_load(metrics: str) -> ApiServerLoad:
    """From the text of the API server's /metrics."""
    requests, read = 0.0, Counter[str]()
    for family in text_string_to_metric_families(metrics):
        for name, labels, value, *_ in family.samples:
            if name == "apiserver_flowcontrol_dispatched_requests_total" and labels["flow_schema"] == FLOW_SCHEMA:
                requests += value
            elif name == "apiserver_response_sizes_sum" and labels["verb"] in _READS and labels["resource"]:
                read[labels["resource"]] += int(value)
    return ApiServerLoad(int(requests), dict(read))


def peak_megabytes(log: str) -> int:
    """The most memory that a function's processes had, of the invocations whose end a log shows; 0 without any."""
    return max((int(found) for found in _PEAK.findall(log)), default=0)


def processor_seconds(log: str) -> float:
    """What the invocation that worked most used of its processor, of those whose end a log shows; 0 without any."""
    return max((float(found) / 1000 for found in _PROCESSOR.findall(log)), default=0.0)
