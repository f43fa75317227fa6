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

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ResourceFailed
from local.aws.emulator import Emulator
from local.aws.functions import asynchronous
from local.aws.functions.invocations import Functions
from local.aws.functions.versions import find_function

# Property ServiceTimeout, in seconds; without it an answer may take an hour.
DEFAULT_TIMEOUT_SECONDS = 3600


@dataclass
class CustomResourceResponse:
    """What the function sent; empty until `arrived`."""

    document: dict[str, Any] = field(default_factory=dict)
    arrived: threading.Event = field(default_factory=threading.Event)

    def fail(self, error: str) -> None:
        """The function failed for good without an answer. AWS would go on waiting; nothing is gained by that."""
        if not self.arrived.is_set():
            self.document = {"Status": "FAILED", "Reason": f"the function failed: {error}"}
            self.arrived.set()


class PendingResponses:
    """Questions that wait for an answer, keyed by the token in their ResponseURL. See `Emulator.component`."""

    def __init__(self, _emulator: Emulator) -> None:
        self.pending: dict[str, CustomResourceResponse] = {}

    def receive(self, body: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
        answer = self.pending.get(parameters["token"])
        if answer is None:
            raise KeyError("nobody waits for this answer (any more)")
        answer.document = dict(body)
        answer.arrived.set()
        return {}


@dataclass(frozen=True)
class CustomResource:
    """The handler of every `Custom::*` type: create, update and delete are questions to its ServiceToken."""

    emulator: Emulator
    supported_properties: frozenset[str] = frozenset()

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        document = self._ask(request, "Create", properties, {}, request.physical_name())
        return PhysicalResource(document["PhysicalResourceId"], document.get("Data") or {})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        """Another PhysicalResourceId in the answer means replacement: the old one is deleted afterwards."""
        more = {"PhysicalResourceId": resource.physical_id, "OldResourceProperties": stringify(before)}
        document = self._ask(request, "Update", properties, more, resource.physical_id)
        return PhysicalResource(document["PhysicalResourceId"], document.get("Data") or {})

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        more = {"PhysicalResourceId": resource.physical_id}
        self._ask(request, "Delete", properties, more, resource.physical_id)

    def _ask(
        self,
        request: HandlerRequest,
        kind: str,
        properties: Mapping[str, Any],
        more: Mapping[str, Any],
        fallback_id: str,
    ) -> dict[str, Any]:
        """The function's answer; raises ResourceFailed with the physical id it gave (or would have had)."""
        token, request_id = str(uuid.uuid4()), str(uuid.uuid4())
        question = {
            "RequestType": kind,
            "ServiceToken": properties["ServiceToken"],
            "ResponseURL": f"{self.emulator.endpoint}/_local/custom-resources/{token}",
            "StackId": request.stack_id,
            "RequestId": request_id,
            "LogicalResourceId": request.logical_id,
            "ResourceType": request.resource_type,
            "ResourceProperties": stringify(properties),
            **more,
        }
        answer = CustomResourceResponse()
        waiting = self.emulator.component(PendingResponses).pending
        waiting[token] = answer
        try:
            self._send(properties["ServiceToken"], question, answer)
            seconds = float(properties.get("ServiceTimeout", DEFAULT_TIMEOUT_SECONDS))
            arrived = answer.arrived.wait(seconds)
        finally:
            del waiting[token]
        left = PhysicalResource(str(answer.document.get("PhysicalResourceId") or fallback_id))
        if not arrived:
            reason = f"CloudFormation did not receive a response from your Custom Resource. RequestId [{request_id}]"
            raise ResourceFailed(reason, left)
        if answer.document.get("Status") != "SUCCESS":
            said = answer.document.get("Reason") or "no reason"
            raise ResourceFailed(
                f"Received response status [FAILED] from custom resource. Message returned: {said}", left
            )
        if kind != "Delete" and not answer.document.get("PhysicalResourceId"):
            raise ResourceFailed("Invalid PhysicalResourceId", left)
        return answer.document

    def _send(self, token: str, question: Mapping[str, Any], answer: CustomResourceResponse) -> None:
        try:
            function = find_function(self.emulator, token)
        except JsonRESTError as error:
            raise ResourceFailed(f"ServiceToken: {error.message}") from None
        payload = json.dumps(question).encode()
        asynchronous.invoke_async(self.emulator.component(Functions), function, payload, on_failure=answer.fail)


def stringify(value: Any) -> Any:
    """CloudFormation hands every number and boolean to a custom resource as text."""
    match value:
        case Mapping():
            return {key: stringify(item) for key, item in value.items()}
        case list():
            return [stringify(item) for item in value]
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return value


def add(emulator: Emulator) -> None:
    """The ResponseURL: where functions send their answers."""
    emulator.route("PUT", "/_local/custom-resources/<token>", emulator.component(PendingResponses).receive)
