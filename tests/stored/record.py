"""Records what this version stores and sends: ``python -m tests.stored.record DIRECTORY``.

Tests never run it. ``tests/stored/recorded`` stays as an earlier version wrote it, so that a test fails as soon as
this version no longer reads, acts on or replays it.
"""

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from forwarder.doorbells import QueuedDoorbell
from infra.triggers import _SHIFTS, _TICKS, _doorbell
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import DOORBELL_KINDS
from spotwright.workflows.ports.doorbells import Doorbell
from tests.stored import aws, full_cluster, moments, outcome, outside, recorded

type Json = dict[str, Any]

PRICES: Final = """\
rules:
- {discountPercent: "6"}
- {instanceTypes: ["m5.*", "c5.*"], capacityTypes: [on-demand], discountPercent: "28"}
- {instanceTypes: [r7i.large], capacityTypes: [on-demand], pricePerHour: "0.0921"}
- {capacityTypes: [spot], zones: [ap-northeast-2a], discountPercent: "1.5"}
"""
# What functions ring for, by queue.
KINDS: Final = {
    "provision": ("pods",),
    "lifecycle": DOORBELL_KINDS,
    "disrupt": ("evaluate", "validate"),
    "sweep": ("poll",),
    "catalog": ("region", "nodeclasses"),
}
FORWARDED: Final = (
    QueuedDoorbell("provision", "pods"),
    QueuedDoorbell("lifecycle", "node", "ip-10-0-0-1.internal"),
    QueuedDoorbell("lifecycle", "claim", "default-bdwpm"),
    QueuedDoorbell("lifecycle", "nodepools"),
    QueuedDoorbell("catalog", "nodeclasses", "default"),
)


def main(directory: Path) -> None:
    recording = Recording()
    for moment in moments.MOMENTS:
        recording.add_moment(moment)
    recording.add(recorded.FULL, full_cluster.build(list_events()))
    recording.write(directory)


class Recording:
    """What is to be written; rows and bodies once, however many clusters hold them."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}
        self._rows: dict[str, int] = {}
        self._stores: list[Json] = []
        self._outsides: dict[str, Json] = {}

    def add_moment(self, moment: moments.Moment) -> None:
        """Record the cluster at that moment, and what it comes to when its functions go on."""
        world = moments.reach(moment)
        store = self.add(moment.name, world)
        outcome.run_to_end(world)
        store["ends"] = outcome.count(world)

    def add(self, name: str, world: World) -> Json:
        """Record a cluster as it is; what it comes to is left out."""
        waiting = world.doorbells.messages
        bodies = aws.send([message.doorbell for message in waiting])
        store: Json = {
            "name": name,
            "rows": [self._add_row(item) for item in aws.write(world.state)],
            "bucket": sorted(world.blobs.bodies),
            "messages": [
                {"queue": message.queue, "body": body, "at": message.at}
                for message, body in zip(waiting, bodies, strict=True)
            ],
            "ends": {},
        }
        self._bodies |= world.blobs.bodies
        self._stores.append(store)
        self._outsides[name] = outside.describe(world)
        return store

    def _add_row(self, item: Json) -> int:
        """The number of the row's line."""
        return self._rows.setdefault(json.dumps(item, sort_keys=True), len(self._rows))

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        files = {file: self._lines(kind) for kind, file in recorded.BODIES.items()} | {
            "rows.jsonl": "".join(f"{line}\n" for line in self._rows).encode(),
            "stores.json": _json_lines(self._stores),
            "messages.json": json.dumps(list_messages(), indent=1).encode() + b"\n",
            "prices.yaml": PRICES.encode(),
            "outside.json.gz": json.dumps(self._outsides, separators=(",", ":")).encode(),
        }
        for file, content in files.items():
            packed = gzip.compress(content, mtime=0) if file.endswith(".gz") else content
            (directory / file).write_bytes(packed)

    def _lines(self, kind: str) -> bytes:
        return b"".join(body + b"\n" for key, body in self._bodies.items() if key.startswith(f"{kind}/"))


def _json_lines(values: Iterable[Json]) -> bytes:
    """A JSON list with a line for each value."""
    return ("[\n" + ",\n".join(json.dumps(value) for value in values) + "\n]\n").encode()


def list_messages() -> dict[str, list[Json]]:
    """Doorbells of every kind as SQS holds them, by sender; and EventBridge's messages."""
    ticks = (_TICKS | _SHIFTS).values()
    sent = [
        (queue, Doorbell(builders.CLUSTER, kind, "default", epoch=1))
        for queue, kinds in KINDS.items()
        for kind in kinds
    ]
    return {
        "functions": _pair([queue for queue, _ in sent], aws.send([bell for _, bell in sent])),
        "forwarder": _pair([bell.queue for bell in FORWARDED], aws.forward(FORWARDED)),
        "schedules": _pair([tick.queue for tick in ticks], [_doorbell(tick.kind) for tick in ticks]),
        "eventbridge": [{"queue": "interrupt", "body": json.dumps(event)} for event in list_events()],
    }


def _pair(queues: list[str], bodies: list[str]) -> list[Json]:
    return [{"queue": queue, "body": body} for queue, body in zip(queues, bodies, strict=True)]


def list_events() -> list[Json]:
    """A message of each kind that EC2 and AWS Health send about an instance."""
    scheduled = {
        "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "Tue, 06 Jan 2026 09:00:00 GMT",
        "affectedEntities": [{"entityValue": "i-6"}],
    }  # fmt: skip
    events: tuple[tuple[str, str, Json], ...] = (
        ("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-1", "instance-action": "terminate"}),
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": "i-2"}),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-3"}),
        ("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "i-4", "state": "stopping"}),
        ("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "i-5", "state": "terminated"}),
        ("aws.health", "AWS Health Event", scheduled),
    )
    return [
        {
            "version": "0", "id": f"event-{number}", "detail-type": kind, "source": source, "account": "123456789012",
            "time": "2026-01-05T09:00:00Z", "region": aws.REGION, "resources": [], "detail": detail,
        }
        for number, (source, kind, detail) in enumerate(events)
    ]  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
