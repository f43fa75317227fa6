"""EventBridge: events meet rules, and what matches goes to queues and functions.

moto keeps buses, rules and targets and matches patterns; delivery is here, because moto's knows no Lambda,
ignores disabled rules and never asks the target's resource policy.
"""

import json
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.events.models import Rule, events_backends
from moto.sqs.exceptions import SQSException
from moto.sqs.models import sqs_backends

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.emulator import Emulator
from local.aws.eventbridge import input_transform
from local.aws.functions import asynchronous
from local.aws.functions.invocations import Functions
from local.aws.functions.versions import find_function
from local.aws.iam.resource_policies import policy_allows
from local.aws.queues.messages import find_queue

SERVICE = "events.amazonaws.com"
TARGETS = ("sqs", "lambda")


class Undeliverable(Exception):
    """The target is gone or its resource policy does not let this rule in."""


def emit_service_event(
    emulator: Emulator, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str] = ()
) -> str:
    """Publish an event of an AWS service on the default bus; returns its id."""
    event = new_event(emulator, source, detail_type, detail, resources)
    publish_event(emulator, "default", event)
    return str(event["id"])


def new_event(
    emulator: Emulator,
    source: str,
    detail_type: str,
    detail: Any,
    resources: Sequence[str],
    at: datetime | None = None,
) -> dict[str, Any]:
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": emulator.account,
        "time": (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": emulator.region,
        "resources": list(resources),
        "detail": detail,
    }


def publish_event(emulator: Emulator, bus: str, event: Mapping[str, Any]) -> None:
    """Deliver to every target of every enabled rule whose pattern matches."""
    document: Any = dict(event)
    for rule in list(events_backends[emulator.account][emulator.region].describe_event_bus(bus).rules.values()):
        patterned = bool(rule.event_pattern.get_pattern())
        if rule.state == "ENABLED" and patterned and rule.event_pattern.matches_event(document):
            send_to_targets(emulator, rule, event)


def send_to_targets(emulator: Emulator, rule: Rule, event: Mapping[str, Any]) -> None:
    """Deliver `event` to the rule's targets; what cannot be delivered goes to the target's DLQ, if it has one."""
    for target in list(rule.targets):
        text = input_transform.target_input(target, event, rule.arn)
        try:
            _deliver(emulator, rule, target, text)
        except Undeliverable as error:
            print(f"rule {rule.name}: {target['Arn']}: {error}", file=sys.stderr, flush=True)
            _bury(emulator, rule, target, text)


def _deliver(emulator: Emulator, rule: Rule, target: Mapping[str, Any], text: str) -> None:
    if target["Arn"].split(":")[2] == "sqs":
        _send(emulator, rule, target["Arn"], text, (target.get("SqsParameters") or {}).get("MessageGroupId"))
    else:
        _invoke(emulator, rule, target["Arn"], text)


def _context(emulator: Emulator, rule: Rule) -> dict[str, str]:
    return {
        "aws:sourcearn": rule.arn,
        "aws:sourceaccount": emulator.account,
        "aws:securetransport": "true",
        "aws:principalisawsservice": "true",
    }


def _send(emulator: Emulator, rule: Rule, arn: str, text: str, group: str | None = None) -> None:
    try:
        queue = find_queue(emulator.account, emulator.region, arn)
    except SQSException:
        raise Undeliverable("the queue does not exist") from None
    context = _context(emulator, rule)
    if not policy_allows(queue.policy, service=SERVICE, action="sqs:SendMessage", resource=arn, context=context):
        raise Undeliverable("the queue's policy does not let this rule send")
    sqs_backends[emulator.account][emulator.region].send_message(queue.name, text, group_id=group)


def _invoke(emulator: Emulator, rule: Rule, arn: str, text: str) -> None:
    try:
        function = find_function(emulator, arn)
    except JsonRESTError:
        raise Undeliverable("the function does not exist") from None
    statements = [dict(statement) | {"Resource": "*"} for statement in function.policy.statements]
    document = json.dumps({"Statement": statements})
    context = _context(emulator, rule)
    if not policy_allows(document, service=SERVICE, action="lambda:InvokeFunction", resource=arn, context=context):
        raise Undeliverable("the function's policy does not let this rule invoke")
    asynchronous.invoke_async(emulator.component(Functions), function, text.encode())


def _bury(emulator: Emulator, rule: Rule, target: Mapping[str, Any], text: str) -> None:
    arn = (target.get("DeadLetterConfig") or {}).get("Arn")
    if arn:
        try:
            _send(emulator, rule, arn, text)
        except Undeliverable as error:
            print(f"rule {rule.name}: dead letters: {error}", file=sys.stderr, flush=True)


def add(emulator: Emulator) -> None:
    emulator.handle("events", "PutEvents", lambda request: _put_events(emulator, request))
    emulator.handle("events", "PutTargets", _check_targets)
    emulator.route("POST", "/_local/events", lambda body, _parameters: {"id": _emit(emulator, body)})


def _emit(emulator: Emulator, body: Mapping[str, Any]) -> str:
    """Control API: an event as an AWS service would publish it."""
    return emit_service_event(emulator, body["source"], body["detail-type"], body["detail"], body.get("resources", ()))


def _check_targets(request: AwsRequest) -> None:
    for target in request.params.get("Targets", ()):
        if target["Arn"].split(":")[2] not in TARGETS:
            raise AwsError("ValidationException", f"the local EventBridge has no targets like {target['Arn']}")


def _put_events(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    entries = request.params.get("Entries", [])
    if not 1 <= len(entries) <= 10:
        raise AwsError("ValidationException", "Member must have length between 1 and 10")
    results = [_put_event(emulator, entry) for entry in entries]
    failed = sum("ErrorCode" in result for result in results)
    return request.reply({"FailedEntryCount": failed, "Entries": results})


def _put_event(emulator: Emulator, entry: Mapping[str, Any]) -> dict[str, str]:
    for name in ("Source", "DetailType", "Detail"):
        if not entry.get(name):
            return _refused("InvalidArgument", f"Parameter {name} is not valid. Reason: {name} is a required argument.")
    if str(entry["Source"]).startswith("aws."):
        return _refused("NotAuthorizedForSourceException", "Not authorized for the source.")
    try:
        detail = json.loads(entry["Detail"])
    except ValueError:
        return _refused("MalformedDetail", "Detail is malformed.")
    at = entry.get("Time")
    event = new_event(
        emulator,
        entry["Source"],
        entry["DetailType"],
        detail,
        entry.get("Resources", ()),
        at if isinstance(at, datetime) else datetime.fromtimestamp(float(at or time.time()), UTC),
    )
    publish_event(emulator, str(entry.get("EventBusName") or "default").rsplit("/", 1)[-1], event)
    return {"EventId": event["id"]}


def _refused(code: str, message: str) -> dict[str, str]:
    return {"ErrorCode": code, "ErrorMessage": message}
