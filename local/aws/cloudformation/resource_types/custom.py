"""CloudFormation custom resources: a function is told what to do and answers to a URL.

Source: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref.html
"""

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.core.exceptions import JsonRESTError

from local.aws import functions_async
from local.aws.cloudformation.calls import Call, Failed
from local.aws.cloudformation.intrinsics import Made
from local.aws.functions_deployed import find
from local.aws.functions_running import Functions
from local.aws.world import World

# Property ServiceTimeout, in seconds; without it an answer may take an hour.
DEFAULT_TIMEOUT_SECONDS = 3600


@dataclass
class Answer:
    """What the function sent; empty until `arrived`."""

    document: dict[str, Any] = field(default_factory=dict)
    arrived: threading.Event = field(default_factory=threading.Event)

    def give_up(self, error: str) -> None:
        """The function failed for good without an answer. AWS would go on waiting; nothing is gained by that."""
        if not self.arrived.is_set():
            self.document = {"Status": "FAILED", "Reason": f"the function failed: {error}"}
            self.arrived.set()


class Answers:
    """Questions that wait for an answer, keyed by the token in their ResponseURL. See `World.part`."""

    def __init__(self, _world: World) -> None:
        self.waiting: dict[str, Answer] = {}

    def receive(self, body: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
        answer = self.waiting.get(parameters["token"])
        if answer is None:
            raise KeyError("nobody waits for this answer (any more)")
        answer.document = dict(body)
        answer.arrived.set()
        return {}


@dataclass(frozen=True)
class CustomResource:
    """The handler of every `Custom::*` type: create, update and delete are questions to its ServiceToken."""

    world: World
    handled: frozenset[str] = frozenset()

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        document = self._ask(call, "Create", properties, {}, call.name())
        return Made(document["PhysicalResourceId"], document.get("Data") or {})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        """Another PhysicalResourceId in the answer means replacement: the old one is deleted afterwards."""
        more = {"PhysicalResourceId": made.physical_id, "OldResourceProperties": texts(before)}
        document = self._ask(call, "Update", properties, more, made.physical_id)
        return Made(document["PhysicalResourceId"], document.get("Data") or {})

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        more = {"PhysicalResourceId": made.physical_id}
        self._ask(call, "Delete", properties, more, made.physical_id)

    def _ask(
        self, call: Call, kind: str, properties: Mapping[str, Any], more: Mapping[str, Any], fallback_id: str
    ) -> dict[str, Any]:
        """The function's answer; raises Failed with the physical id it gave (or would have had)."""
        token, request_id = str(uuid.uuid4()), str(uuid.uuid4())
        question = {
            "RequestType": kind,
            "ServiceToken": properties["ServiceToken"],
            "ResponseURL": f"{self.world.endpoint}/_local/custom-resources/{token}",
            "StackId": call.stack_id,
            "RequestId": request_id,
            "LogicalResourceId": call.logical_id,
            "ResourceType": call.resource_type,
            "ResourceProperties": texts(properties),
            **more,
        }
        answer = Answer()
        waiting = self.world.part(Answers).waiting
        waiting[token] = answer
        try:
            self._send(properties["ServiceToken"], question, answer)
            seconds = float(properties.get("ServiceTimeout", DEFAULT_TIMEOUT_SECONDS))
            arrived = answer.arrived.wait(seconds)
        finally:
            del waiting[token]
        left = Made(str(answer.document.get("PhysicalResourceId") or fallback_id))
        if not arrived:
            reason = f"CloudFormation did not receive a response from your Custom Resource. RequestId [{request_id}]"
            raise Failed(reason, left)
        if answer.document.get("Status") != "SUCCESS":
            said = answer.document.get("Reason") or "no reason"
            raise Failed(f"Received response status [FAILED] from custom resource. Message returned: {said}", left)
        if kind != "Delete" and not answer.document.get("PhysicalResourceId"):
            raise Failed("Invalid PhysicalResourceId", left)
        return answer.document

    def _send(self, token: str, question: Mapping[str, Any], answer: Answer) -> None:
        try:
            function = find(self.world, token)
        except JsonRESTError as error:
            raise Failed(f"ServiceToken: {error.message}") from None
        payload = json.dumps(question).encode()
        functions_async.submit(self.world.part(Functions), function, payload, gave_up=answer.give_up)


def texts(value: Any) -> Any:
    """CloudFormation hands every number and boolean to a custom resource as text."""
    match value:
        case Mapping():
            return {key: texts(item) for key, item in value.items()}
        case list():
            return [texts(item) for item in value]
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return value
