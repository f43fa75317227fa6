"""The call log: every AWS API call this process answered, in order, in memory and as a JSON-lines file."""

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Longer strings and blobs are cut, so that a deployment package does not fill the log.
LONGEST_VALUE = 4096
# Calls kept in memory, at least; the file has them all.
KEPT_CALLS = 50_000


class CallLog:
    """Append-only. Numbers start at 1; `since(n)` returns what came after call n, of the last `limit` or more."""

    def __init__(self, file: Path, limit: int = KEPT_CALLS) -> None:
        self._kept = limit
        self._forgotten = 0
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._calls: list[dict[str, Any]] = []

    def add(self, call: Mapping[str, Any]) -> int:
        """Record one call (service, action, principal, status, ...) and return its number."""
        with self._lock:
            number = self._forgotten + len(self._calls) + 1
            entry = {"n": number, "time": datetime.now(UTC).isoformat(timespec="milliseconds")} | {
                key: truncate(value) for key, value in call.items() if value is not None
            }
            self._calls.append(entry)
            if len(self._calls) >= 2 * self._kept:
                del self._calls[: self._kept]
                self._forgotten += self._kept
            if not self._file.closed:
                self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
            return number

    def since(self, number: int) -> list[dict[str, Any]]:
        with self._lock:
            return self._calls[max(number - self._forgotten, 0) :]

    def close(self) -> None:
        self._file.close()


def truncate(value: Any) -> Any:
    """`value` as JSON would have it, with long texts cut and raw bytes replaced by their length."""
    match value:
        case str() if len(value) > LONGEST_VALUE:
            return f"{value[:LONGEST_VALUE]}... ({len(value)} characters)"
        case bytes():
            return f"({len(value)} bytes)"
        case Mapping():
            return {str(key): truncate(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [truncate(item) for item in value]
        case str() | int() | float() | bool() | None:
            return value
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
