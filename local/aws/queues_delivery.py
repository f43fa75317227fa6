"""One batch on its way through a function: what is deleted, what becomes visible again, what is dropped."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from moto.awslambda.models import EventSourceMapping, LambdaFunction
from moto.core.exceptions import JsonRESTError
from moto.events.models import EventPattern
from moto.sqs.exceptions import ReceiptHandleIsInvalid
from moto.sqs.models import Message, Queue

from local.aws import queues_messages as messages
from local.aws import queues_records as records
from local.aws.functions_deployed import find
from local.aws.functions_pool import Throttled
from local.aws.functions_running import Disabled, Functions
from local.aws.world import World


def deliver(world: World, mapping: EventSourceMapping, queue: Queue, batch: Sequence[Message]) -> None:
    """Invoke once with the batch. What failed stays invisible until its visibility timeout, as on AWS."""
    try:
        function = find(world, mapping.function_arn)
    except JsonRESTError:
        return release(queue, batch)
    wanted = [message for message in _without_loops(world, function, queue, batch) if _matches(mapping, message)]
    _delete(queue, (message for message in batch if message not in wanted))
    if not wanted:
        return None
    event = json.dumps(records.event(wanted, queue.queue_arn, world.region)).encode()
    traces = tuple(messages.trace_of(message) for message in wanted)
    try:
        invocation, _ = world.part(Functions).invoke(function, event, traces=traces)
    except (Disabled, Throttled):
        return release(queue, wanted)
    if invocation.error:
        return None
    ids = [message.id for message in wanted]
    reports = "ReportBatchItemFailures" in (mapping.function_response_types or ())
    failed = records.failed_ids(invocation.answer, ids) if reports else frozenset()
    return _delete(queue, (message for message in wanted if message.id not in failed))


def release(queue: Queue, batch: Iterable[Message]) -> None:
    """Give undelivered messages back at once, without counting the receive."""
    with queue._messages_lock:
        for message in batch:
            stored = messages.find(queue, str(message.receipt_handle))
            if stored is not None:
                stored.approximate_receive_count -= 1
                stored.change_visibility(0)
                queue.pending_messages.discard(stored)


def _delete(queue: Queue, batch: Iterable[Message]) -> None:
    for message in batch:
        try:
            messages.delete(queue, str(message.receipt_handle))
        except ReceiptHandleIsInvalid:
            print(f"{queue.name}: message {message.id} was gone before it was deleted", file=sys.stderr)


def _without_loops(world: World, function: LambdaFunction, queue: Queue, batch: Sequence[Message]) -> list[Message]:
    """Messages of a recursive loop go to the dead-letter queue, or nowhere without one."""
    functions = world.part(Functions)
    kept = [m for m in batch if not functions.stops_recursion(function, messages.trace_of(m))]
    for message in batch:
        if message not in kept:
            print(f"recursive loop: {function.function_name} drops {message.id}", file=sys.stderr)
            stored = messages.find(queue, str(message.receipt_handle))
            if stored is not None and queue.dead_letter_queue is not None:
                messages.bury(queue, stored)
    return kept


def _matches(mapping: EventSourceMapping, message: Message) -> bool:
    """FilterCriteria: a message that no filter wants is deleted undelivered."""
    filters = (mapping.filter_criteria or {}).get("Filters", ())
    if not filters:
        return True
    document: Any = {"body": _json(message.body)}
    return any(EventPattern.load(one["Pattern"]).matches_event(document) for one in filters)


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body
