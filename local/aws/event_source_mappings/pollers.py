"""SQS event source mappings: pollers that hand batches to functions, and delete what succeeded.

Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html and -scaling.html
"""

import json
import threading
import time
from dataclasses import dataclass, field

from moto.awslambda.models import EventSourceMapping
from moto.core.exceptions import JsonRESTError
from moto.sqs.exceptions import QueueDoesNotExist
from moto.sqs.models import Message, Queue

from local.aws.authorization.authorizer import Authorizer
from local.aws.calls.request import AwsError, AwsRequest
from local.aws.emulator import Emulator
from local.aws.event_source_mappings.batches import deliver_batch
from local.aws.event_source_mappings.scaling import Scaling
from local.aws.functions.invocations import Functions
from local.aws.functions.versions import find_function, lambda_backend
from local.aws.queues import messages
from local.aws.sts import callers

# How soon a new, changed or deleted mapping is noticed.
RECONCILE_SECONDS = 0.1
POLL_SECONDS = 1.0
# How soon a batch starts that waited for Lambda to scale.
SCALING_SECONDS = 0.1


def add(emulator: Emulator) -> None:
    messages.patch_moto()
    emulator.handle("lambda", "CreateEventSourceMapping", lambda request: _check(emulator, request))
    emulator.run_in_background("queues", lambda stop: _reconcile(emulator, stop))


def _check(emulator: Emulator, request: AwsRequest) -> None:
    """What Lambda refuses and moto accepts."""
    params = request.params
    try:
        queue = messages.find_queue(emulator.account, emulator.region, params["EventSourceArn"])
        function = find_function(emulator, params["FunctionName"])
    except (QueueDoesNotExist, JsonRESTError):
        return
    visibility, timeout = messages.visibility_timeout_seconds(queue), int(function.timeout)
    if visibility < timeout:
        raise _refused(
            f"Queue visibility timeout: {visibility} seconds is less than Function timeout: {timeout} seconds"
        )
    for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"):
        if not _role_may(emulator, function.role, action, queue):
            raise _refused(f"The function execution role does not have permissions to call {action} on SQS")


def _refused(message: str) -> AwsError:
    return AwsError("InvalidParameterValueException", message)


def _role_may(emulator: Emulator, role: str, action: str, queue: Queue) -> bool:
    """Whether the pollers, which act as the function's role, may do this on the queue."""
    session = callers.create_role_session(emulator, role, "lambda-poller", 900)
    call = AwsRequest(
        "POST",
        "/",
        "",
        {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"},
        json.dumps({"QueueUrl": f"{emulator.endpoint}/{emulator.account}/{queue.name}"}).encode(),
        service="sqs",
        region=emulator.region,
        access_key=session.access_key_id,
    )
    try:
        Authorizer(emulator).check(call)
    except AwsError:
        return False
    return True


def _reconcile(emulator: Emulator, stop: threading.Event) -> None:
    """One poller per mapping that exists, none for those that do not."""
    pollers: dict[str, Poller] = {}
    while not stop.wait(RECONCILE_SECONDS):
        # moto empties a backend while it resets it.
        known = getattr(lambda_backend(emulator), "_event_source_mappings", {})
        mappings = {
            uuid: mapping for uuid, mapping in list(known.items()) if mapping.event_source_arn.split(":")[2] == "sqs"
        }
        for uuid in pollers.keys() - mappings.keys():
            pollers.pop(uuid).stop.set()
        for uuid in mappings.keys() - pollers.keys():
            pollers[uuid] = Poller(emulator, mappings[uuid])
            threading.Thread(target=pollers[uuid].run, name=f"poller-{uuid}", daemon=True).start()
    for poller in pollers.values():
        poller.stop.set()


@dataclass
class Poller:
    """Receives for one mapping. Settings are read anew for every batch, so updates need no restart."""

    emulator: Emulator
    mapping: EventSourceMapping
    stop: threading.Event = field(default_factory=threading.Event)
    _running: int = 0
    _scaling: Scaling = field(default_factory=Scaling)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                went_well = self._turn()
            except (QueueDoesNotExist, JsonRESTError):
                went_well = False
            if not went_well:
                time.sleep(RECONCILE_SECONDS)

    def _turn(self) -> bool:
        """Receive once and hand over what came; False if nothing may be delivered now."""
        queue = messages.find_queue(self.emulator.account, self.emulator.region, self.mapping.event_source_arn)
        if not self._may_deliver() or not self._slot_free():
            return False
        batch = self._batch(queue)
        if batch:
            self._start(queue, batch)
        return True

    def _may_deliver(self) -> bool:
        function = find_function(self.emulator, self.mapping.function_arn)
        return bool(self.mapping.enabled) and not self.emulator.component(Functions).is_disabled(function)

    def _slot_free(self) -> bool:
        """Wait a moment for one of the concurrent batches to end, or for Lambda to scale."""
        looks = round(POLL_SECONDS / SCALING_SECONDS)
        with self._changed:
            return any(self._changed.wait_for(self._may_start, SCALING_SECONDS) for _ in range(looks))

    def _may_start(self) -> bool:
        maximum = (self.mapping.scaling_config or {}).get("MaximumConcurrency")
        batches = self._scaling.batches(self._running, maximum and int(maximum), time.monotonic())
        return self._running < batches

    def _batch(self, queue: Queue) -> list[Message]:
        """What is there, up to BatchSize; with a batching window, gathered for so long."""
        size, window = int(self.mapping.batch_size), float(self.mapping.max_batch_window or 0)
        visibility = messages.visibility_timeout_seconds(queue)
        batch = messages.receive(queue, min(size, 10), visibility)
        if not batch:
            messages.wait_for_message(queue, POLL_SECONDS)
            batch = messages.receive(queue, min(size, 10), visibility) if self._may_deliver() else []
        until = time.monotonic() + window
        while batch and len(batch) < size and not self.stop.is_set() and time.monotonic() < until:
            messages.wait_for_message(queue, until - time.monotonic())
            batch += messages.receive(queue, min(size - len(batch), 10), visibility)
        return batch

    def _start(self, queue: Queue, batch: list[Message]) -> None:
        with self._changed:
            self._running += 1
        threading.Thread(target=self._deliver, args=(queue, batch), name="batch", daemon=True).start()

    def _deliver(self, queue: Queue, batch: list[Message]) -> None:
        try:
            deliver_batch(self.emulator, self.mapping, queue, batch)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
