"""What the boot agent writes down: a readable log, refusals as JSON lines, and which instances ever joined."""

import datetime as dt
import json
import threading
from pathlib import Path

from local.boot.join_check import Instance, JoinRefusal


def timestamp() -> str:
    """Now, as Kubernetes writes times."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class BootLog:
    """Files in `logs`: boot-refusals.jsonl and boot-joined.txt; the readable log is standard output."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._refusals = logs / "boot-refusals.jsonl"
        self._joined = logs / "boot-joined.txt"
        known = self._joined.read_text().split() if self._joined.exists() else []
        self._known = set(known)
        self._refused: dict[str, str] = {}
        self._writing = threading.Lock()

    def has_joined(self, instance: Instance) -> bool:
        """Did this instance ever register? A kubelet registers once: a deleted Node does not come back."""
        return instance.id in self._known

    def record_join(self, instance: Instance) -> None:
        self._known.add(instance.id)
        with self._writing, self._joined.open("a") as file:
            file.write(instance.id + "\n")
        self.log(instance, f"registered as {instance.private_dns_name}")

    def record_refusal(self, instance: Instance, stays: JoinRefusal) -> None:
        """Write down why an instance does not join, once per reason."""
        if self._refused.get(instance.id) == stays.reason:
            return
        self._refused[instance.id] = stays.reason
        entry = {"time": timestamp(), "instance": instance.id, "code": stays.code, "reason": stays.reason}
        with self._writing, self._refusals.open("a") as file:
            file.write(json.dumps(entry | {"final": stays.final}) + "\n")
        self.log(instance, f"does not join: {stays.code}: {stays.reason}")

    def log(self, instance: Instance, text: str) -> None:
        """One line of the readable log."""
        with self._writing:
            print(f"{dt.datetime.now(dt.UTC):%H:%M:%S.%f} {instance.id} {text}", flush=True)
