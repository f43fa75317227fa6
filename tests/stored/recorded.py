"""What was recorded, read back: bodies by key, rows, messages, and clusters as they were at a moment.

``recorded/`` holds a line of JSON for each body that S3 held (``decisions.jsonl``, ``catalogs.jsonl``,
``snapshots.jsonl.gz``) and for each item that DynamoDB held (``rows.jsonl``). ``stores.json`` lists for each moment
which rows and bodies there were, and which messages waited. ``outside.json.gz`` is none of ours: see ``outside``.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from spotwright.adapters.aws.dynamodb.items import Item
from spotwright.adapters.aws.s3.catalogs import Catalogs
from spotwright.aws.instance_types import catalog_codec
from spotwright.simulation import builders
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import DoorbellMessage, FakeBlobs, FakeState
from spotwright.simulation.world import World
from spotwright.workflows.ports.doorbells import Doorbell
from tests.stored import aws, outside

type Json = dict[str, Any]

DIRECTORY: Final = Path(__file__).with_name("recorded")
# Kinds of bodies, and the files in which each body is a line.
BODIES: Final = {"decisions": "decisions.jsonl", "snapshots": "snapshots.jsonl.gz", "catalogs": "catalogs.jsonl"}
# The store of ``full_cluster``; all the rest are of moments.
FULL: Final = "full-cluster"
# Fields that rows have had since the recording, by kind of row, and how a row without them is written again.
YOUNGER_FIELDS: Final[Mapping[str, Json]] = {
    "launch": {"requests": {}, "commands": {}},
    "offering": {"subnet": None, "interrupted": [], "rebalanced": []},
    "command": {
        "own_replacements": 0,
        "awaited": [],
        "rollout": "",
        "evictions": 0,
        "failed": 0,
        "moves": [],
        "digest": "",
    },
    "nomination": {"launch": "", "moving": {}},
    "notice": {"ended": False, "events": [], "warning": ""},
}
# The same of nodes in decisions.
YOUNGER_FIELDS_OF_NODES: Final[Json] = {"usage": []}
YOUNGER_FIELDS_OF_DECISIONS: Final[Json] = {"disruptions": []}
YOUNGER_FIELDS_OF_DISRUPTIONS: Final[Json] = {"rollout": "", "evictions": 0}
YOUNGER_FIELDS_OF_LAUNCHES: Final[Json] = {"moving": [], "requests": {}}
YOUNGER_FIELDS_OF_PLANS: Final[Json] = {"held_back": [], "is_cheapest": False}
YOUNGER_FIELDS_OF_SNAPSHOTS: Final[Json] = {"moving": {}, "launch_bounds": [], "histories": []}
YOUNGER_FIELDS_OF_SETTINGS: Final[Json] = {
    "max_launches_per_minute": 1000,
    "max_nodes_per_hour": 10_000,
    "max_dollars_per_hour": 10_000,
    "max_evictions_per_hour": 0,
}


@dataclass(frozen=True)
class Store:
    """What was stored of a cluster: rows, keys of bodies, messages that waited.

    ``ends``: what ``outcome.count`` says of the cluster after it went on.
    """

    name: str
    rows: tuple[Item, ...]
    bucket: tuple[str, ...]
    messages: tuple[Json, ...]
    ends: Mapping[str, int]


@cache
def read_bucket() -> FakeBlobs:
    """Every body under the key that it has today; not to be changed."""
    blobs = empty_bucket()
    for kind, file in BODIES.items():
        for line in _read(file).splitlines():
            blobs.put(kind, line)
    return blobs


def copy_bucket() -> FakeBlobs:
    """Every body, and room for more."""
    blobs = empty_bucket()
    blobs.bodies.update(read_bucket().bodies)
    return blobs


def empty_bucket() -> FakeBlobs:
    return FakeBlobs(builders.CLUSTER, Effects(Clock()))


def _read(file: str) -> bytes:
    content = (DIRECTORY / file).read_bytes()
    return gzip.decompress(content) if file.endswith(".gz") else content


def list_keys(kind: str) -> list[str]:
    """Keys of the bodies of a kind, in the order of their recording."""
    return [key for key in read_bucket().bodies if key.startswith(f"{kind}/")]


def read_body(key: str) -> bytes:
    return read_bucket().bodies[key]


def read_json(key: str) -> Json:
    """A body as text, whatever the present code makes of it."""
    body: Json = json.loads(read_body(key))
    return body


def is_region(key: str) -> bool:
    """Whether a body of the kind ``catalogs`` is what EC2 sells, which catalogs are made of."""
    return "on_demand" in read_json(key)


@cache
def read_rows() -> tuple[Item, ...]:
    """Every row in each state in which it was recorded."""
    return tuple(map(json.loads, _read("rows.jsonl").splitlines()))


@cache
def read_stores() -> Mapping[str, Store]:
    return {
        store["name"]: Store(
            name=store["name"],
            rows=tuple(read_rows()[number] for number in store["rows"]),
            bucket=tuple(store["bucket"]),
            messages=tuple(store["messages"]),
            ends=store["ends"],
        )
        for store in json.loads(_read("stores.json"))
    }


def parse_row(row: Item) -> Json:
    """A row with its body as an object, with the fields that its kind has had since the recording."""
    if "body" not in row:
        return dict(row)
    is_health = row["pk"]["S"] == "offering"
    younger = YOUNGER_FIELDS.get("offering" if is_health else row["sk"]["S"].partition("#")[0], {})
    return dict(row) | {"body": younger | json.loads(row["body"]["S"])}


def parse_decision(body: bytes) -> Json:
    """A decision as an object, with the fields that it and its nodes have had since the recording."""
    decision: Json = json.loads(body)
    plan, launches, disruption = decision["plan"], decision["launches"], decision.get("disruption")
    return (
        YOUNGER_FIELDS_OF_DECISIONS
        | decision
        | {
            "disruption": disruption and YOUNGER_FIELDS_OF_DISRUPTIONS | disruption,
            "plan": YOUNGER_FIELDS_OF_PLANS
            | plan
            | {"new_nodes": [YOUNGER_FIELDS_OF_NODES | node for node in plan["new_nodes"]]},
            "launches": [
                YOUNGER_FIELDS_OF_LAUNCHES | launch | {"node": YOUNGER_FIELDS_OF_NODES | launch["node"]}
                for launch in launches
            ],
        }
    )


def parse_snapshot(body: bytes) -> Json:
    """A snapshot as an object, with the fields that it has had since the recording."""
    snapshot: Json = json.loads(body)
    settings = YOUNGER_FIELDS_OF_SETTINGS | snapshot["settings"]
    return YOUNGER_FIELDS_OF_SNAPSHOTS | snapshot | {"settings": settings}


def list_moments() -> list[str]:
    return [name for name in read_stores() if name != FULL]


@cache
def read_messages() -> Mapping[str, list[Json]]:
    """By sender (functions, forwarder, schedules, eventbridge): queue and body of a message of each kind."""
    messages: Mapping[str, list[Json]] = json.loads(_read("messages.json"))
    return messages


@cache
def _read_outsides() -> Json:
    outsides: Json = json.loads(_read("outside.json.gz"))
    return outsides


@cache
def _read_states() -> Mapping[str, FakeState]:
    return {name: aws.read(store.rows) for name, store in read_stores().items()}


def read_state(name: str) -> FakeState:
    """What the adapter reads in the table of a store; not to be changed."""
    return _read_states()[name]


def set_state(world: World, state: FakeState) -> None:
    """Let a world's table hold what this state holds."""
    table = world.state
    table.cluster_row, table.rows, table.health = state.cluster_row, dict(state.rows), dict(state.health)
    table.rates, table.heartbeat_at, table.stored_breaker = dict(state.rates), state.heartbeat_at, state.stored_breaker
    table.current_catalog_key, table.catalog_time, table.region_read_began = (
        state.current_catalog_key,
        state.catalog_time,
        state.region_read_began,
    )


def read_catalogs_from(world: World) -> None:
    """Let a world's catalogs be read from its bucket, as the functions read them."""
    world.catalogs = cast("Any", Catalogs(cast("Any", world.blobs)))


def restore(name: str) -> World:
    """The cluster at that moment: rows, bodies and messages as they were stored, everything else as it was."""
    store, state = read_stores()[name], read_state(name)
    world = World(catalog_codec.decode(read_body(state.current_catalog_key)))
    world.blobs.bodies.update({key: read_body(key) for key in store.bucket})
    read_catalogs_from(world)
    set_state(world, state)
    world.doorbells.messages = [
        DoorbellMessage(message["queue"], msgspec.json.decode(message["body"], type=Doorbell), message["at"])
        for message in store.messages
    ]
    outside.restore(world, _read_outsides()[name])
    return world
