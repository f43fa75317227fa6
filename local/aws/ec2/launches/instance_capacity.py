"""Which offerings have no capacity: a set of rules, replaced over the control API while the emulator runs.

A rule names `instanceType`, `zone` and `capacityType` (`spot`, `on-demand`), each a name or `*`. It may say
`available` (that many instances can still be had, default 0) and the error `code` EC2 then answers with.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from local.aws.emulator import Emulator


@dataclass
class CapacityRule:
    instanceType: str = "*"
    zone: str = "*"
    capacityType: str = "*"
    available: int = 0
    code: str = "InsufficientInstanceCapacity"


class InstanceCapacity:
    """How many instances of an offering may still be launched."""

    def __init__(self, emulator: Emulator) -> None:
        self._lock = threading.Lock()
        self._rules: list[CapacityRule] = []

    def replace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        rules = [CapacityRule(**rule) for rule in body.get("insufficient", [])]
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


def add(emulator: Emulator) -> None:
    capacity = emulator.component(InstanceCapacity)
    emulator.route("POST", "/_local/capacity", lambda body, _: capacity.replace(body))
    emulator.route("GET", "/_local/capacity", lambda _body, _query: capacity.show())
