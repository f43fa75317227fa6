"""EC2's request limits: a token bucket per action, and buckets of instances started and terminated.

Sizes are those of https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html for an account without
raised limits. That page does not list CreateFleet: here it is a mutating action like any other for its
requests, and takes instances out of the bucket of RunInstances.
`GET /_local/throttling` shows the buckets in use, `POST /_local/throttling {"enabled": false}` lifts the limits.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from local.aws.calls.request import AwsError, AwsRequest
from local.aws.emulator import Emulator


@dataclass
class TokenBucket:
    """`max_tokens` at most, `tokens_per_second` come back; starts full."""

    max_tokens: float
    tokens_per_second: float
    clock: Callable[[], float] = time.monotonic
    tokens: float = field(init=False)
    refilled_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens, self.refilled_at = self.max_tokens, self.clock()

    def take(self, count: int) -> bool:
        """Take `count` tokens, or none and say no."""
        now = self.clock()
        self.tokens = min(self.max_tokens, self.tokens + (now - self.refilled_at) * self.tokens_per_second)
        self.refilled_at = now
        if self.tokens < count:
            return False
        self.tokens -= count
        return True


# (size, tokens per second) by class of action.
NON_MUTATING = (100, 20)
UNFILTERED = (50, 10)
MUTATING = (50, 5)
# Actions with limits of their own.
ACTION_LIMITS = {
    "RunInstances": (5, 2),
    "StartInstances": (5, 2),
    "TerminateInstances": (100, 5),
    "CreateTags": (100, 10),
    "DeleteTags": (100, 10),
    "CreateLaunchTemplateVersion": (100, 5),
}
INSTANCES_STARTED, INSTANCES_TERMINATED = (1000, 2), (1000, 20)
NARROWING_PARAMETERS = ("Filters", "MaxResults", "NextToken")
# Non-mutating actions that have a smaller bucket when asked for everything at once.
COSTLY_UNFILTERED = (
    "DescribeInstances",
    "DescribeInstanceStatus",
    "DescribeNetworkInterfaces",
    "DescribeSecurityGroups",
    "DescribeSnapshots",
    "DescribeSpotInstanceRequests",
    "DescribeVolumes",
)


class RequestLimits:
    """The buckets of the account in its region, by name, each made on first use."""

    def __init__(self, emulator: Emulator) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, TokenBucket] = {}
        self._enabled = True
        # Seconds; a test in virtual time puts its own here.
        self.clock: Callable[[], float] = emulator.strictness.now

    def check(self, request: AwsRequest) -> None:
        """Take the call's tokens; raises RequestLimitExceeded."""
        if request.service != "ec2":
            return
        with self._lock:
            if not self._enabled:
                return
            name, limits = _request_bucket(request)
            self._take(request, name, limits, 1)
            for name, limits, count in _resource_buckets(request):
                self._take(request, name, limits, count, counted="resource")

    def _take(
        self, request: AwsRequest, name: str, limits: tuple[int, int], count: int, *, counted: str = "request"
    ) -> None:
        bucket = self._buckets.setdefault(name, TokenBucket(*limits, clock=lambda: self.clock()))
        if not bucket.take(count):
            raise AwsError(
                "RequestLimitExceeded",
                f"Request limit exceeded. Account has been throttled on ec2:{request.action} because it exceeded"
                f" its {counted} rate limit.",
                503,
            )

    def show(self) -> dict[str, Any]:
        with self._lock:
            levels = {
                name: {
                    "tokens": round(bucket.tokens, 1),
                    "size": bucket.max_tokens,
                    "perSecond": bucket.tokens_per_second,
                }
                for name, bucket in sorted(self._buckets.items())
            }
            return {"enabled": self._enabled, "buckets": levels}

    def configure(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._enabled = bool(body["enabled"])
            self._buckets.clear()
        return self.show()


def _request_bucket(request: AwsRequest) -> tuple[str, tuple[int, int]]:
    action = request.action
    if action in ACTION_LIMITS:
        return action, ACTION_LIMITS[action]
    if not action.startswith(("Describe", "Get", "List", "Search")):
        return action, MUTATING
    narrowed = any(request.params.get(name) for name in NARROWING_PARAMETERS) or any(
        name.endswith("Ids") and value for name, value in request.params.items()
    )
    if action in COSTLY_UNFILTERED and not narrowed:
        return f"{action} unfiltered", UNFILTERED
    return action, NON_MUTATING


def _resource_buckets(request: AwsRequest) -> list[tuple[str, tuple[int, int], int]]:
    """(bucket, limits, instances) of calls that start or terminate instances."""
    params = request.params
    if params.get("DryRun"):
        return []
    match request.action:
        case "RunInstances":
            return [("instances started", INSTANCES_STARTED, int(params.get("MaxCount") or 1))]
        case "CreateFleet":
            target = params.get("TargetCapacitySpecification") or {}
            return [("instances started", INSTANCES_STARTED, int(target.get("TotalTargetCapacity") or 0))]
        case "TerminateInstances":
            return [("instances terminated", INSTANCES_TERMINATED, len(params.get("InstanceIds") or []))]
        case _:
            return []


def add(emulator: Emulator) -> None:
    buckets = emulator.component(RequestLimits)
    emulator.check_before(buckets.check)
    emulator.route("GET", "/_local/throttling", lambda _body, _query: buckets.show())
    emulator.route("POST", "/_local/throttling", lambda body, _: buckets.configure(body))
