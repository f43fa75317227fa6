"""SQS message operations that are safe under concurrency and wake whoever waits.

moto's own lose messages: a delete rebuilds the list that a send appends to. Here each operation holds
the queue's lock, and a waiting receiver sleeps until the next message is due, not for whole seconds.
`receive` and `wait_for_message` serve the pollers; `patch_moto` gives moto's SQS API the same code.
"""

import contextvars
import time
from collections.abc import Iterable
from copy import copy
from typing import Any

from moto.sqs.exceptions import QueueDoesNotExist, ReceiptHandleIsInvalid
from moto.sqs.models import (
    DEDUPLICATION_TIME_IN_SECONDS,
    Message,
    Queue,
    SQSBackend,
    _filter_message_attributes,
    sqs_backends,
)
from moto.sqs.responses import SQSResponse

# The trace header of the SendMessage call that is being answered in this thread.
_sending_trace: contextvars.ContextVar[str] = contextvars.ContextVar("sending_trace", default="")
# A receiver looks again after so many seconds even if nothing woke it (the queue may be gone).
LONGEST_SLEEP_SECONDS = 1.0


def receive(queue: Queue, count: int, visibility_seconds: int) -> list[Message]:
    """Up to `count` visible messages, marked received; those beyond maxReceiveCount move to the DLQ."""
    taken: list[Message] = []
    dead: list[Message] = []
    with queue._messages_lock:
        groups = _groups_in_flight(queue)
        for message in list(queue.messages):
            if len(taken) == count:
                break
            if _expired(queue, message):
                queue._messages.remove(message)
            elif queue.fifo_queue and message.group_id in groups:
                continue
            elif _is_dead(queue, message):
                queue._messages.remove(message)
                dead.append(message)
            else:
                queue.pending_messages.add(message)
                message.mark_received(visibility_timeout=visibility_seconds)
                taken.append(copy(message))
    for message in dead:
        move_to_dead_letter_queue(queue, message)
    return taken


def wait_for_message(queue: Queue, seconds: float) -> None:
    """Sleep until a message may be visible, at most `seconds`."""
    with queue._messages_lock:
        if not queue.messages:
            queue._messages_lock.wait(max(0.0, min(seconds, LONGEST_SLEEP_SECONDS, _next_due(queue))))


def move_to_dead_letter_queue(queue: Queue, message: Message) -> None:
    """Put a copy of one of `queue`'s messages into its dead-letter queue, visible at once."""
    assert queue.dead_letter_queue is not None
    dead = copy(message)
    dead.visible_at = dead.delayed_until = 0.0
    queue.dead_letter_queue.add_message(dead)


def delete_message(queue: Queue, receipt_handle: str) -> None:
    """Remove the message with this handle, if it is still there; an unknown handle is an error."""
    with queue._messages_lock:
        if receipt_handle in queue.deleted_messages:
            return
        for message in queue._messages:
            if message.had_receipt_handle(receipt_handle):
                queue._messages.remove(message)
                queue.pending_messages.discard(message)
                queue.deleted_messages.update(handle for handle in message.all_receipt_handles if handle)
                queue._messages_lock.notify_all()
                return
    raise ReceiptHandleIsInvalid()


def find_message(queue: Queue, receipt_handle: str) -> Message | None:
    """The stored message (`receive` returns copies)."""
    with queue._messages_lock:
        return next((m for m in queue._messages if m.had_receipt_handle(receipt_handle)), None)


def visibility_timeout_seconds(queue: Queue) -> int:
    return int(vars(queue)["visibility_timeout"])


def trace_header(message: Message) -> str:
    return str(message.system_attributes.get("AWSTraceHeader", {}).get("StringValue", ""))


def _groups_in_flight(queue: Queue) -> set[str]:
    """Groups of a FIFO queue with an invisible message; a visible pending one has timed out."""
    for message in list(queue.pending_messages):
        if message.visible:
            queue.pending_messages.discard(message)
    return queue.pending_message_groups


def _expired(queue: Queue, message: Message) -> bool:
    sent = (message.sent_timestamp or 0) / 1000
    return sent + int(vars(queue)["message_retention_period"]) < time.time()


def _is_dead(queue: Queue, message: Message) -> bool:
    if queue.dead_letter_queue is None or not queue.redrive_policy:
        return False
    return message.approximate_receive_count >= int(queue.redrive_policy["maxReceiveCount"])


def _next_due(queue: Queue) -> float:
    """Seconds until the next invisible or delayed message may be seen."""
    now = time.time() * 1000
    dues = [max(message.visible_at, message.delayed_until) for message in queue._messages]
    return min(((due - now) / 1000 + 0.001 for due in dues), default=LONGEST_SLEEP_SECONDS)


def patch_moto() -> None:
    """Replace moto's racy operations, its delivery to Lambda inside SendMessage, and what forgets a queue's policy."""
    replacements: list[tuple[type, str, Any]] = [
        (Message, "visible", property(_is_visible)),
        (Message, "delayed", property(_is_delayed)),
        (Queue, "messages", property(_messages)),
        (Queue, "approximate_number_of_messages_delayed", property(_delayed)),
        (Queue, "approximate_number_of_messages_not_visible", property(_not_visible)),
        (Queue, "add_message", _add_message),
        (Queue, "delete_message", delete_message),
        (Queue, "_set_attributes", _keeping_policy(Queue._set_attributes)),
        (SQSBackend, "receive_message", _receive_message),
        (SQSBackend, "purge_queue", _purge_queue),
        (SQSBackend, "change_message_visibility", _waking(SQSBackend.change_message_visibility)),
        (SQSResponse, "send_message", _remembering_trace(SQSResponse.send_message)),
        (SQSResponse, "send_message_batch", _remembering_trace(SQSResponse.send_message_batch)),
    ]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)


def _is_visible(message: Message) -> bool:
    return time.time() * 1000 > message.visible_at


def _is_delayed(message: Message) -> bool:
    return time.time() * 1000 < message.delayed_until


def _messages(queue: Queue) -> list[Message]:
    """Those that are visible and not delayed. moto asks for these three for each message that is sent, and takes the
    time, as a date, for each message that is there."""
    now = time.time() * 1000
    return [message for message in queue._messages if message.visible_at < now >= message.delayed_until]


def _delayed(queue: Queue) -> int:
    now = time.time() * 1000
    return sum(now < message.delayed_until for message in queue._messages)


def _not_visible(queue: Queue) -> int:
    now = time.time() * 1000
    return sum(message.visible_at >= now for message in queue._messages)


def _add_message(queue: Queue, message: Message) -> None:
    trace = _sending_trace.get()
    if trace and "AWSTraceHeader" not in message.system_attributes:
        message.system_attributes["AWSTraceHeader"] = {"StringValue": trace, "DataType": "String"}
    with queue._messages_lock:
        if queue.fifo_queue and message.deduplication_id and _is_duplicate(message, queue._messages):
            return
        queue._messages.append(message)
        queue._messages_lock.notify_all()


def _is_duplicate(message: Message, other_messages: Iterable[Message]) -> bool:
    since = (message.sent_timestamp or 0) - DEDUPLICATION_TIME_IN_SECONDS * 1000
    return any(
        other_message.deduplication_id == message.deduplication_id and (other_message.sent_timestamp or 0) > since
        for other_message in other_messages
    )


def _receive_message(
    backend: SQSBackend,
    queue_name: str,
    count: int,
    wait_seconds_timeout: int,
    visibility_timeout: int,
    message_attribute_names: list[str] | None = None,
) -> list[Message]:
    until = time.monotonic() + wait_seconds_timeout
    while True:
        queue = backend.get_queue(queue_name)
        messages = receive(queue, count, visibility_timeout)
        remaining = until - time.monotonic()
        if messages or remaining <= 0:
            break
        wait_for_message(queue, remaining)
    for message in messages:
        _filter_message_attributes(message, message_attribute_names or [])
    return messages


def _purge_queue(backend: SQSBackend, queue_name: str) -> None:
    queue = backend.get_queue(queue_name)
    with queue._messages_lock:
        queue.last_purged_at = time.time()
        queue._messages.clear()
        queue.pending_messages.clear()


def _remembering_trace(operation: Any) -> Any:
    """SQS keeps the X-Amzn-Trace-Id header of a send as the message's AWSTraceHeader."""

    def answer(response: SQSResponse) -> Any:
        token = _sending_trace.set(response.headers.get("X-Amzn-Trace-Id") or "")
        try:
            return operation(response)
        finally:
            _sending_trace.reset(token)

    answer.__name__ = operation.__name__
    return answer


def _keeping_policy(set_attributes: Any) -> Any:
    """moto takes the policy from a queue of which something else is set."""

    def change(queue: Queue, attributes: dict[str, Any], now: float | None = None) -> None:
        policy = getattr(queue, "policy", None)
        set_attributes(queue, attributes, now)
        queue.policy = attributes.get("Policy", policy)

    return change


def _waking(operation: Any) -> Any:
    def change(backend: SQSBackend, queue_name: str, receipt_handle: str, visibility_timeout: int) -> None:
        queue = backend.get_queue(queue_name)
        with queue._messages_lock:
            operation(backend, queue_name, receipt_handle, visibility_timeout)
            queue._messages_lock.notify_all()

    return change


def find_queue(account: str, region: str, arn: str) -> Queue:
    """The queue with this ARN; raises moto's QueueDoesNotExist."""
    queue = sqs_backends[account][region].queues.get(arn.rsplit(":", 1)[-1])
    if queue is None:
        raise QueueDoesNotExist()
    return queue
