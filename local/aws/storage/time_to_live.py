"""DynamoDB's time to live: expired items are deleted some time later, never at once."""

import threading
import time

from moto.core.exceptions import JsonRESTError
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table

from local.aws.calls.moto_locks import MotoLocks
from local.aws.emulator import Emulator

# AWS: "typically within a few days". Here soon enough to be seen, late enough not to be relied on.
EVERY_SECONDS = 20.0


def run(emulator: Emulator, stop: threading.Event) -> None:
    """Background: look through every table with time to live."""
    while not stop.wait(EVERY_SECONDS):
        for table in list(dynamodb_backends[emulator.account][emulator.region].tables.values()):
            with emulator.component(MotoLocks).alone("dynamodb"):
                for item in expired_items(table, time.time()):
                    _delete(emulator, table, item)


def expired_items(table: Table, now: float) -> list[Item]:
    """Items whose TTL attribute is a number of epoch seconds in the past."""
    if table.ttl.get("TimeToLiveStatus") != "ENABLED":
        return []
    attribute = table.ttl["AttributeName"]
    return [item for item in list(table.all_items()) if _number(item, attribute) < now]


def _number(item: Item, attribute: str) -> float:
    value = item.attrs.get(attribute)
    return float(value.value) if value is not None and value.type == "N" else float("inf")


def _delete(emulator: Emulator, table: Table, item: Item) -> None:
    keys = [table.hash_key_attr, table.range_key_attr]
    key = {name: item.attrs[name].to_json() for name in keys if name}
    try:
        dynamodb_backends[emulator.account][emulator.region].delete_item(table.name, key, None, None, None)
    except JsonRESTError:
        return


def add(emulator: Emulator) -> None:
    emulator.run_in_background("time to live", lambda stop: run(emulator, stop))
