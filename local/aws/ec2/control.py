"""Control routes about instances: list them, take spot capacity away, recommend a rebalance, let checks fail."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from local.aws.control import InvalidRequest
from local.aws.ec2 import events
from local.aws.ec2.instance_shapes import control_view
from local.aws.ec2.instances import SPOT_TERMINATION, Instance, Instances
from local.aws.emulator import Emulator
from local.aws.timers import Timers

# The notice EC2 gives before it takes a spot instance back.
NOTICE_SECONDS = 120.0


def add(emulator: Emulator) -> None:
    emulator.route("GET", "/_local/instances", lambda _, query: _list(emulator, query))
    emulator.route("POST", "/_local/interrupt", lambda body, _: _interrupt(emulator, body))
    emulator.route("POST", "/_local/status", lambda body, _: _set_status(emulator, body))
    emulator.route("POST", "/_local/rebalance", lambda body, _: _rebalance(emulator, body))


def _list(emulator: Emulator, query: Mapping[str, str]) -> dict[str, Any]:
    """All instances; with `since`, the `next` of an earlier answer, those whose state changed after it."""
    changed, last = emulator.component(Instances).changed_since(int(query.get("since", "0")))
    return {"instances": [control_view(emulator, instance) for instance in changed], "next": last}


def _interrupt(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, Any]:
    """The warning now; the instance is terminated `seconds` later."""
    instance = _spot(emulator, body)
    seconds = float(body.get("seconds", NOTICE_SECONDS))
    events.emit_interruption_warning(emulator, instance.id)
    emulator.component(Timers).start(seconds, lambda: _take_back(emulator.component(Instances), instance.id))
    return {"instanceId": instance.id, "seconds": seconds}


def _take_back(instances: Instances, instance_id: str) -> None:
    if instances.find(instance_id) is not None:
        instances.terminate(instance_id, SPOT_TERMINATION)


def _rebalance(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, Any]:
    instance = _spot(emulator, body)
    events.emit_rebalance_recommendation(emulator, instance.id)
    return {"instanceId": instance.id}


def _set_status(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, Any]:
    """`impaired`: check → for how many seconds it has failed; `events`: as EC2 shows them. What is left out is well."""
    instance = emulator.component(Instances).find(body["instanceId"])
    if instance is None:
        raise InvalidRequest(f"{body['instanceId']} is not an instance of this account")
    now = datetime.now(UTC)
    impaired = dict(body.get("impaired") or {})
    instance.impaired_since = {check: now - timedelta(seconds=float(impaired[check])) for check in impaired}
    instance.scheduled_events = [dict(event) for event in body.get("events") or ()]
    return {"instanceId": instance.id}


def _spot(emulator: Emulator, body: Mapping[str, Any]) -> Instance:
    instance = emulator.component(Instances).find(body["instanceId"])
    if instance is None or instance.spot_request_id is None:
        raise InvalidRequest(f"{body['instanceId']} is not a spot instance of this account")
    return instance
