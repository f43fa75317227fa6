"""What AWS would ask for the calls and invocations of some minutes, by list price."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.memory_price import invocation

#: US dollars in us-east-1, as docs/cost.md has them.
PER_SQS_REQUEST: Final = 0.40 / 10**6
PER_READ_UNIT: Final = 0.125 / 10**6
PER_WRITE_UNIT: Final = 0.625 / 10**6
#: https://aws.amazon.com/s3/pricing/
PER_S3_PUT: Final = 0.005 / 10**3
PER_S3_GET: Final = 0.0004 / 10**3
#: Ingested into CloudWatch Logs. https://aws.amazon.com/cloudwatch/pricing/
PER_LOG_BYTE: Final = 0.50 / 10**9
#: Lambda polls each queue with five long polls of 20 s, whether or not there are messages.
#: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
POLLS_PER_QUEUE_AND_MINUTE: Final = 15

_REPORT: Final = re.compile(r"^REPORT .*?\tDuration: ([\d.]+) ms\tMemory Size: (\d+) MB", re.MULTILINE)
_KILOBYTE: Final = 1024

type Call = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """A line of the bill: how many, and what they cost in dollars."""

    what: str
    count: int
    dollars: float


def bill(calls: Iterable[Call], logs: Iterable[str], *, queues: int, minutes: float) -> tuple[Item, ...]:
    """What these minutes cost. ``calls``: of the call log; ``logs``: what each function logged meanwhile."""
    answered, texts = [call for call in calls if call["status"] < 500], list(logs)
    return (
        _lambda(texts),
        _queues(answered, queues, minutes),
        *_table(answered),
        *_bucket(answered),
        Item("CloudWatch Logs: bytes", sum(map(len, texts)), sum(map(len, texts)) * PER_LOG_BYTE),
    )


def _lambda(logs: Iterable[str]) -> Item:
    used = [(float(duration), int(memory)) for log in logs for duration, memory in _REPORT.findall(log)]
    return Item("Lambda: invocations", len(used), sum(invocation(*each) for each in used))


def _queues(calls: Iterable[Call], queues: int, minutes: float) -> Item:
    """Each message is sent by some request, received and deleted; long polls come whether or not it is there."""
    requests = messages = 0
    for call in _of(calls, "sqs"):
        if call["action"] in ("SendMessage", "SendMessageBatch"):
            requests += 1
            messages += len(call["request"].get("Entries", [call]))
        elif call["action"] != "GetQueueAttributes":
            requests += 1
    polls = math.ceil(POLLS_PER_QUEUE_AND_MINUTE * queues * minutes)
    total = requests + 2 * messages + polls
    return Item("SQS: requests", total, total * PER_SQS_REQUEST)


def _table(calls: Iterable[Call]) -> Iterator[Item]:
    reads = writes = 0
    for call in _of(calls, "dynamodb"):
        reads += _read_units(call)
        writes += _write_units(call)
    yield Item("DynamoDB: read units", reads, reads * PER_READ_UNIT)
    yield Item("DynamoDB: write units", writes, writes * PER_WRITE_UNIT)


def _read_units(call: Call) -> int:
    """A key is a unit, and so is a Query: what they answer, rows and empty indexes, is mostly below 4 KB."""
    match call["action"]:
        case "GetItem" | "Query":
            return 1
        case "BatchGetItem":
            return sum(len(keys["Keys"]) for keys in call["request"]["RequestItems"].values())
        case _:
            return 0


def _write_units(call: Call) -> int:
    """By the size of what is written; a transaction counts twice, a refused condition as much as a write."""
    request = call["request"]
    match call["action"]:
        case "PutItem" | "UpdateItem" | "DeleteItem":
            return _kilobytes(request)
        case "TransactWriteItems":
            return 2 * sum(map(_kilobytes, request["TransactItems"]))
        case "BatchWriteItem":
            return sum(_kilobytes(write) for writes in request["RequestItems"].values() for write in writes)
        case _:
            return 0


def _kilobytes(value: object) -> int:
    return math.ceil(len(json.dumps(value)) / _KILOBYTE)


def _bucket(calls: Iterable[Call]) -> Iterator[Item]:
    actions = [call["action"] for call in _of(calls, "s3")]
    puts, gets = actions.count("PutObject"), actions.count("GetObject") + actions.count("HeadObject")
    lists = actions.count("ListObjectsV2")
    yield Item("S3: PUT and LIST", puts + lists, (puts + lists) * PER_S3_PUT)
    yield Item("S3: GET", gets, gets * PER_S3_GET)


def _of(calls: Iterable[Call], service: str) -> Iterator[Call]:
    return (call for call in calls if call["service"] == service)
