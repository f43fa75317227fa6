"""Rows as other versions store them: an earlier one, that of the recording, and a later one."""

import json

from spotwright.adapters.aws.dynamodb.items import Item
from tests.stored.recorded import YOUNGER_FIELDS

UNKNOWN_FIELD = {"not_known_yet": {"a": [1]}}
LATER = {"schema": 99} | UNKNOWN_FIELD


def make_later(row: Item) -> Item:
    """The row as a later version might have written it."""
    later = dict(row) | {"schema": {"N": "99"}, "not_known_yet": {"S": "a"}}
    if "body" in row:
        later["body"] = {"S": json.dumps(json.loads(row["body"]["S"]) | LATER)}
    return later


def make_earlier(row: Item) -> Item:
    """The row as the recorded version would write it again, without the fields that are younger."""
    earlier = dict(row)
    if "body" in row:
        younger = YOUNGER_FIELDS.get(row["sk"]["S"].partition("#")[0], {})
        body = json.loads(row["body"]["S"])
        earlier["body"] = {"S": json.dumps({key: value for key, value in body.items() if key not in younger})}
    return earlier
