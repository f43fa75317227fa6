"""Where AWS is stricter or slower than an emulator would have to be: one row per rule, and a switch for each.

The local AWS is strict. `--lenient` on the command line, or SPOTWRIGHT_LOCAL_LENIENT, names rules to relax
(`all`, `delays` for those that only take time); `POST /_local/strictness {"iam-propagation": false}` does so while
it runs, and `POST /_local/strictness/clock {"stopped": true}` keeps what is not seen yet from being seen, instances in
their states, sessions from ending and EC2's request tokens from coming back, however slow the machine. Why we believe
each of the rules: docs/aws-facts.md.
"""

import os
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

VARIABLE = "SPOTWRIGHT_LOCAL_LENIENT"


class Rule(StrEnum):
    """A way in which AWS is strict."""

    IAM_PROPAGATION = "iam-propagation"
    ACCESS_ENTRY_PROPAGATION = "access-entry-propagation"
    ACCESS_ENTRY_PRINCIPALS = "access-entry-principals"
    NODE_GROUP_ACCESS_ENTRY = "node-group-access-entry"
    POD_IDENTITY_PROPAGATION = "pod-identity-propagation"
    POD_IDENTITY_ADMISSION = "pod-identity-admission"
    POD_IDENTITY_AGENT = "pod-identity-agent"
    SESSION_EXPIRY = "session-expiry"
    FUNCTION_SESSION_EXPIRY = "function-session-expiry"
    INSTANCE_PROFILE_PROPAGATION = "instance-profile-propagation"
    LAUNCH_TEMPLATE_PROPAGATION = "launch-template-propagation"
    INSTANCE_PROPAGATION = "instance-propagation"
    FLEET_DURATION = "fleet-duration"
    INSTANCE_SHUTDOWN = "instance-shutdown"
    INDEX_PROPAGATION = "index-propagation"
    THROTTLED_RECEIVES = "throttled-receives"
    ACCOUNT_CONCURRENCY = "account-concurrency"
    VCPU_QUOTAS = "vcpu-quotas"
    QUEUE_POLICIES = "queue-policies"
    FUNCTION_NETWORKS = "function-networks"
    TLS = "tls"
    INIT_DURATION = "init-duration"
    PROCESSOR_SHARE = "processor-share"


@dataclass(frozen=True)
class Behavior:
    """What AWS does. `seconds`: shortest and longest delay, where it is a matter of time."""

    what: str
    seconds: tuple[float, float] | None = None


BEHAVIORS: Mapping[Rule, Behavior] = {
    Rule.IAM_PROPAGATION: Behavior(
        "new and changed roles and policies count, as they are now, only after a while", (4.0, 9.0)
    ),
    Rule.ACCESS_ENTRY_PROPAGATION: Behavior("an access entry and its policies let nobody in at first", (2.0, 6.0)),
    Rule.ACCESS_ENTRY_PRINCIPALS: Behavior(
        "an access entry needs a role or user that exists, and ends with it, whoever takes its name later"
    ),
    Rule.NODE_GROUP_ACCESS_ENTRY: Behavior("a managed node group has made the access entry of its role"),
    Rule.POD_IDENTITY_PROPAGATION: Behavior("a Pod Identity association gives nothing at first", (3.0, 8.0)),
    Rule.POD_IDENTITY_ADMISSION: Behavior("a pod that was admitted before its association counted stays without it"),
    Rule.POD_IDENTITY_AGENT: Behavior("without the add-on eks-pod-identity-agent nobody gives credentials to pods"),
    Rule.SESSION_EXPIRY: Behavior(
        "sessions of roles and of pods end after the shortest time that STS allows, or a little more", (900.0, 1200.0)
    ),
    Rule.FUNCTION_SESSION_EXPIRY: Behavior("a function's own credentials end while its process goes on", (5.0, 15.0)),
    Rule.INSTANCE_PROFILE_PROPAGATION: Behavior("EC2 does not know a new instance profile at first", (4.0, 9.0)),
    Rule.LAUNCH_TEMPLATE_PROPAGATION: Behavior("EC2 does not know a new launch template at first", (0.3, 1.5)),
    Rule.INSTANCE_PROPAGATION: Behavior("EC2 does not show a new instance at first", (0.3, 2.0)),
    Rule.FLEET_DURATION: Behavior("CreateFleet takes as long as starting instances does", (0.8, 2.5)),
    Rule.INSTANCE_SHUTDOWN: Behavior("an instance shuts down for a while before it is terminated", (1.0, 1.5)),
    Rule.INDEX_PROPAGATION: Behavior("an index of a table does not show what was just written", (0.1, 1.5)),
    Rule.THROTTLED_RECEIVES: Behavior("messages of a throttled invocation were received and hide for their timeout"),
    Rule.ACCOUNT_CONCURRENCY: Behavior("a new account runs ten functions at once"),
    Rule.VCPU_QUOTAS: Behavior("a new account runs five vCPUs of usual types on demand and five as spot, and no other"),
    Rule.QUEUE_POLICIES: Behavior("a queue's policy counts for every caller"),
    Rule.FUNCTION_NETWORKS: Behavior("a function in a VPC reaches what its subnets have a way to"),
    Rule.TLS: Behavior("functions and pods call over TLS"),
    Rule.INIT_DURATION: Behavior("a process that takes longer than ten seconds to start is ended"),
    Rule.PROCESSOR_SHARE: Behavior("a function has the part of a processor that its memory buys"),
}
# So many notes are kept before those are dropped that nobody has to wait for any more.
_MOST_NOTES = 10_000
DELAYS = frozenset(rule for rule, behavior in BEHAVIORS.items() if behavior.seconds)
# What not every account has, and what a test should not wait for.
RELAXED_BY_DEFAULT = frozenset(
    (Rule.ACCOUNT_CONCURRENCY, Rule.FUNCTION_SESSION_EXPIRY, Rule.PROCESSOR_SHARE, Rule.VCPU_QUOTAS)
)
# For measuring one's own work: nothing waits for AWS.
WITHOUT_DELAYS = tuple(sorted(DELAYS | RELAXED_BY_DEFAULT))
_GROUPS = {"all": frozenset(Rule), "delays": DELAYS}


@dataclass
class Strictness:
    """Which rules hold, and how long things take: drawn by `seed` from the rule and what it is about."""

    lenient: set[Rule] = field(default_factory=set)
    seed: int = 1
    _seen_from: dict[tuple[Rule, str], float] = field(default_factory=dict)
    _behind_seconds: float = 0.0
    _stopped_at: float | None = None

    def holds(self, rule: Rule) -> bool:
        return rule not in self.lenient

    def seconds(self, rule: Rule, about: str) -> float:
        """How long it takes until `about` (an ARN, a name) is seen everywhere; 0 where the rule does not hold."""
        limits = BEHAVIORS[rule].seconds
        if limits is None or not self.holds(rule):
            return 0.0
        return random.Random(f"{self.seed} {rule} {about}").uniform(*limits)

    def session_seconds(self, rule: Rule, asked: int, about: str) -> int:
        """How long a session lasts for which so much was asked: `rule` only makes it shorter."""
        return min(asked, int(self.seconds(rule, about)) or asked)

    def now(self) -> float:
        """Seconds of the clock by which all delays end: monotonic, and standing still while it is stopped."""
        stopped_at = self._stopped_at
        return (time.monotonic() if stopped_at is None else stopped_at) - self._behind_seconds

    def behind(self) -> timedelta:
        """For how long the clock has stood still so far."""
        return timedelta(seconds=time.monotonic() - self.now())

    def set_clock(self, body: Mapping[str, Any]) -> dict[str, bool]:
        """Control API: `stopped`, true or false. Raises KeyError when it is missing."""
        if body["stopped"] and self._stopped_at is None:
            self._stopped_at = time.monotonic()
        elif not body["stopped"] and self._stopped_at is not None:
            self._behind_seconds += time.monotonic() - self._stopped_at
            self._stopped_at = None
        return {"stopped": self._stopped_at is not None}

    def note(self, rule: Rule, about: str) -> None:
        """Something was made or changed: from some time on it is seen."""
        if seconds := self.seconds(rule, about):
            now = self.now()
            if len(self._seen_from) > _MOST_NOTES:
                self._seen_from = {key: at for key, at in self._seen_from.copy().items() if at > now}
            self._seen_from[rule, about] = now + seconds

    def is_seen(self, rule: Rule, about: str) -> bool:
        """Whether it is, or was never noted."""
        return self._seen_from.get((rule, about), 0.0) <= self.now()

    def change(self, body: Mapping[str, Any]) -> dict[str, bool]:
        """Control API: rules by name, true for strict. Raises KeyError when there is no such rule."""
        for name, strict in body.items():
            for rule in rules([name]):
                (self.lenient.discard if strict else self.lenient.add)(rule)
        return self.show()

    def show(self) -> dict[str, bool]:
        return {rule.value: self.holds(rule) for rule in Rule}


def rules(names: Iterable[str]) -> set[Rule]:
    """Rules by name, or those of a group. Raises KeyError when there is neither."""
    found: set[Rule] = set()
    for name in names:
        if name not in _GROUPS and name not in set(Rule):
            raise KeyError(f"no rule {name}; there are {', '.join((*Rule, *_GROUPS))}")
        found |= _GROUPS[name] if name in _GROUPS else {Rule(name)}
    return found


def lenient_by_default() -> list[str]:
    """Names in the environment variable, separated by commas; those that are relaxed anyway if it is not set."""
    named = os.environ.get(VARIABLE)
    return sorted(RELAXED_BY_DEFAULT) if named is None else [name for name in named.split(",") if name]
