"""What the local AWS was asked for: read from its log file, which costs it nothing while a figure is taken."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

type Call = dict[str, Any]


class CallLog:
    """The calls from now on. A line that is being written is left for the next look; one that was, when this began, is
    left out.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._from = file, max(0, file.stat().st_size - 1)

    def calls(self) -> Iterator[Call]:
        with self._file.open("rb") as file:
            file.seek(self._from)
            # From the last byte that was there on: the end of a line, or the rest of one.
            if self._from:
                file.readline()
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def fleets(self) -> tuple[Call, ...]:
        """Every CreateFleet that buys, also those that EC2 refused."""
        return tuple(call for call in self.calls() if is_fleet(call))


def is_fleet(call: Call) -> bool:
    return call["action"] == "CreateFleet" and not call["request"].get("DryRun")


def asked_at(call: Call) -> float:
    """Seconds since 1970. The log says when a call was answered, and how long that took."""
    return datetime.fromisoformat(call["time"]).timestamp() - float(call["milliseconds"]) / 1000
