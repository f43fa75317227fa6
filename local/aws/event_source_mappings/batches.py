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

from local.aws.emulator import Emulator
from local.aws.event_source_mappings import records
from local.aws.functions.environment_pool import Throttled
from local.aws.functions.invocations import WAIT_SECONDS, Disabled, Functions
from local.aws.functions.versions import find_function
from local.aws.queues import messages
from local.aws.strictness import Rule


def deliver_batch(emulator: Emulator, mapping: EventSourceMapping, queue: Queue, batch: Sequence[Message]) -> None:
    """Invoke once with the batch. What failed, or was throttled, stays invisible until its visibility timeout."""
    try:
        function = find_function(emulator, mapping.function_arn)
    except JsonRESTError:
        return release_batch(queue, batch)
    wanted = [message for message in _without_loops(emulator, function, queue, batch) if _matches(mapping, message)]
    _delete(queue, (message for message in batch if message not in wanted))
    if not wanted:
        return None
    event = json.dumps(records.batch_event(wanted, queue.queue_arn, emulator.region)).encode()
    traces = tuple(messages.trace_header(message) for message in wanted)
    strict = emulator.strictness.holds(Rule.THROTTLED_RECEIVES)
    seconds = 0.0 if strict else WAIT_SECONDS
    try:
        invocation, _ = emulator.component(Functions).invoke(function, event, traces=traces, timeout_seconds=seconds)
    except Throttled:
        return None if strict else release_batch(queue, wanted)
    except Disabled:
        return release_batch(queue, wanted)
    if invocation.error:
        return None
    ids = [message.id for message in wanted]
    reports = "ReportBatchItemFailures" in (mapping.function_response_types or ())
    failed = records.failed_message_ids(invocation.answer, ids) if reports else frozenset()
    return _delete(queue, (message for message in wanted if message.id not in failed))


def release_batch(queue: Queue, batch: Iterable[Message]) -> None:
    """Give undelivered messages back at once, without counting the receive."""
    with queue._messages_lock:
        for message in batch:
            stored = messages.find_message(queue, str(message.receipt_handle))
            if stored is not None:
                stored.approximate_receive_count -= 1
                stored.change_visibility(0)
                queue.pending_messages.discard(stored)


def _delete(queue: Queue, batch: Iterable[Message]) -> None:
    for message in batch:
        try:
            messages.delete_message(queue, str(message.receipt_handle))
        except ReceiptHandleIsInvalid:
            print(f"{queue.name}: message {message.id} was gone before it was deleted", file=sys.stderr)


def _without_loops(
    emulator: Emulator, function: LambdaFunction, queue: Queue, batch: Sequence[Message]
) -> list[Message]:
    """Messages of a recursive loop go to the dead-letter queue, or nowhere without one."""
    functions = emulator.component(Functions)
    kept = [m for m in batch if not functions.stops_recursion(function, messages.trace_header(m))]
    for message in batch:
        if message not in kept:
            print(f"recursive loop: {function.function_name} drops {message.id}", file=sys.stderr)
            stored = messages.find_message(queue, str(message.receipt_handle))
            if stored is not None and queue.dead_letter_queue is not None:
                messages.move_to_dead_letter_queue(queue, stored)
    return kept


def _matches(mapping: EventSourceMapping, message: Message) -> bool:
    """FilterCriteria: a message that no filter wants is deleted undelivered."""
    filters = (mapping.filter_criteria or {}).get("Filters", ())
    if not filters:
        return True
    document: Any = {"body": _json(message.body)}
    return any(EventPattern.load(filter_["Pattern"]).matches_event(document) for filter_ in filters)


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body
