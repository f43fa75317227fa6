"""Rows of the state table as DynamoDB items: the JSON of a Struct in ``body``, and the attributes of keys and index."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from spotwright.aws.instance_types.offering_health import HEALTH_TTL_SECONDS
from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import RegistrationHealth
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.workflows.ports.rows import FINAL_PHASES, CommandRow, LaunchRow, NominationRow, NoticeRow, Row, sort_key

HISTORY_SECONDS: Final = 24 * 3600
# Outcomes of so long ago say nothing of today's nodes; the row of a NodePool that was deleted goes, too.
REGISTRATIONS_SECONDS: Final = 30 * 24 * 3600
# A refusal is forgotten long before; until then nobody but the next refusal of the same budget needs its version.
REFUSED_SECONDS: Final = 3600

type Item = dict[str, Any]

_TYPES: Final[Mapping[str, type[Row]]] = {
    "launch": LaunchRow,
    "command": CommandRow,
    "notice": NoticeRow,
    "nomination": NominationRow,
}


def encode_row(row: Row, cluster: str) -> Item:
    item: Item = {
        "pk": {"S": cluster},
        "sk": {"S": sort_key(row)},
        "schema": {"N": str(row.schema)},
        "version": {"N": str(row.version)},
        "phase": {"S": row.phase},
        "body": {"S": msgspec.json.encode(row, order="deterministic").decode()},
    }
    if row.due:
        item |= {"due": {"N": str(row.due)}, "timer": {"S": cluster}}
    if row.phase in FINAL_PHASES:
        item["expires"] = {"N": str(row.created // 1000 + HISTORY_SECONDS)}
    return item


def decode_row[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](item: Item, kind: type[R]) -> R:
    return msgspec.json.decode(item["body"]["S"], type=kind)


def decode_timer_row(item: Item) -> Row:
    kind: type[Row] = _TYPES[item["sk"]["S"].partition("#")[0]]
    return msgspec.json.decode(item["body"]["S"], type=kind)


def encode_offering_health(health: OfferingHealth) -> Item:
    """The health of an offering; the item expires two days after its last change or effect."""
    return {
        "pk": {"S": "offering"},
        "sk": {"S": health.key},
        "schema": {"N": "1"},
        "version": {"N": str(health.version)},
        "body": {"S": msgspec.json.encode(health).decode()},
        "expires": {"N": str(health.changed_at_ms // 1000 + HEALTH_TTL_SECONDS)},
    }


def encode_registration_health(health: RegistrationHealth, cluster: str) -> Item:
    """The outcomes of a NodePool's last launches; the item expires a month after the last one."""
    return {
        "pk": {"S": cluster},
        "sk": {"S": f"registrations#{health.nodepool_uid}"},
        "schema": {"N": str(health.schema)},
        "version": {"N": str(health.version)},
        "body": {"S": msgspec.json.encode(health).decode()},
        "expires": {"N": str(health.changed_at_ms // 1000 + REGISTRATIONS_SECONDS)},
    }


def encode_refused_evictions(refused: RefusedEvictions, cluster: str) -> Item:
    """What PodDisruptionBudgets refuse; the item expires an hour after anybody asked them."""
    return {
        "pk": {"S": cluster},
        "sk": {"S": f"refused#{refused.key}"},
        "schema": {"N": str(refused.schema)},
        "version": {"N": str(refused.version)},
        "body": {"S": msgspec.json.encode(refused).decode()},
        "expires": {"N": str(refused.retry_at_ms // 1000 + REFUSED_SECONDS)},
    }


def number_attribute(item: Item, name: str) -> int:
    """The number, without what comes after a decimal point; 0 where there is none."""
    return int(Decimal(item.get(name, {}).get("N", "0")))


def text_attribute(item: Item, name: str) -> str:
    return str(item.get(name, {}).get("S", ""))
