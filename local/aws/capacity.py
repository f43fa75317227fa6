"""Which offerings have no capacity: a set of rules, replaced over the control API while the world runs.

A rule names `instanceType`, `zone` and `capacityType` (`spot`, `on-demand`), each a name or `*`. It may say
`available` (that many instances can still be had, default 0) and the error `code` EC2 then answers with.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from local.aws.world import World


@dataclass
class Rule:
    instanceType: str = "*"
    zone: str = "*"
    capacityType: str = "*"
    available: int = 0
    code: str = "InsufficientInstanceCapacity"


class Capacity:
    """How many instances of an offering may still be launched."""

    def __init__(self, world: World) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def replace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        rules = [Rule(**rule) for rule in body.get("insufficient", [])]
        with self._lock:
            self._rules = rules
        return self.show()

    def show(self) -> dict[str, Any]:
        with self._lock:
            return {"insufficient": [asdict(rule) for rule in self._rules]}

    def take(self, instance_type: str, zone: str, capacity_type: str, wanted: int) -> tuple[int, str | None]:
        """(how many of `wanted` can be had, error code for the rest or None); what is given is gone."""
        with self._lock:
            for rule in self._rules:
                patterns = ((instance_type, rule.instanceType), (zone, rule.zone))
                matches = all(fnmatchcase(name, pattern) for name, pattern in patterns)
                if matches and rule.capacityType in ("*", capacity_type):
                    given = min(wanted, rule.available)
                    rule.available -= given
                    return given, rule.code if given < wanted else None
        return wanted, None


def add(world: World) -> None:
    capacity = world.part(Capacity)
    world.route("POST", "/_local/capacity", lambda body, _: capacity.replace(body))
    world.route("GET", "/_local/capacity", lambda _body, _query: capacity.show())
