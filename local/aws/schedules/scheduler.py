"""EventBridge Scheduler's schedules and EventBridge's scheduled rules fire for real.

Control API: `POST /_local/schedules {"speed": n}` makes rates n times as fast, for tests.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.events.models import Rule, events_backends
from moto.scheduler.models import Schedule, scheduler_backends

from local.aws.calls.request import AwsError, AwsRequest
from local.aws.emulator import Emulator
from local.aws.eventbridge import event_bus
from local.aws.iam.trust_policies import trusts
from local.aws.schedules import targets
from local.aws.schedules.expressions import At, Cron, Rate, parse_expression
from local.aws.sts import callers

TICK_SECONDS = 0.1


@dataclass
class ScheduleState:
    """When one schedule fires next. `last_invocation` is the latest firing of a rate, in monotonic seconds."""

    expression: str
    started_at: float
    last_invocation: float | None
    checked_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def is_due(self, when: Rate | At | Cron, speed: float) -> bool:
        """Whether it fires now; a firing is reported once."""
        now, at = time.monotonic(), datetime.now(UTC)
        before, self.checked_at = self.checked_at, at
        match when:
            case Rate(period_seconds=period):
                due = self.started_at if self.last_invocation is None else self.last_invocation + period / speed
                if now < due:
                    return False
                self.last_invocation = due if now - due < period / speed else now
                return True
            case At(moment=moment):
                return before < moment <= at
            case Cron():
                following = when.next_after(before)
                return following is not None and following <= at


@dataclass
class Schedules:
    """The state of every schedule, keyed by ARN; one whose expression changed starts anew."""

    emulator: Emulator
    speed: float = 1.0
    states: dict[str, ScheduleState] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(TICK_SECONDS):
            for schedule in self._schedules():
                self._consider(schedule)
            for rule in self._rules():
                self._consider_rule(rule)

    def _schedules(self) -> list[Schedule]:
        groups = scheduler_backends[self.emulator.account][self.emulator.region].schedule_groups
        return [schedule for group in list(groups.values()) for schedule in list(group.schedules.values())]

    def _rules(self) -> list[Rule]:
        buses = events_backends[self.emulator.account][self.emulator.region].event_buses
        rules = [rule for bus in list(buses.values()) for rule in list(bus.rules.values())]
        return [rule for rule in rules if rule.scheduled_expression]

    def _timer(self, arn: str, expression: str, first_seconds: float | None) -> ScheduleState:
        timer = self.states.get(arn)
        if timer is None or timer.expression != expression:
            now = time.monotonic()
            last = None if first_seconds is None else now + first_seconds
            timer = self.states[arn] = ScheduleState(expression, now, last)
        return timer

    def _consider(self, schedule: Schedule) -> None:
        """A rate without StartDate fires at once, then each period."""
        when = parse_expression(schedule.schedule_expression, schedule.schedule_expression_timezone)
        timer = self._timer(schedule.arn, schedule.schedule_expression, None)
        if schedule.state == "ENABLED" and _in_season(schedule) and timer.is_due(when, self.speed):
            _in_thread(targets.invoke_target, self.emulator, schedule)

    def _consider_rule(self, rule: Rule) -> None:
        """A rule's rate fires one period after its creation."""
        when = parse_expression(str(rule.scheduled_expression))
        timer = self._timer(rule.arn, str(rule.scheduled_expression), 0.0)
        if rule.state == "ENABLED" and timer.is_due(when, self.speed):
            event = event_bus.new_event(self.emulator, "aws.events", "Scheduled Event", {}, [rule.arn])
            _in_thread(event_bus.send_to_targets, self.emulator, rule, event)


def _in_season(schedule: Schedule) -> bool:
    now = time.time()
    starts, ends = schedule.start_date, schedule.end_date
    return (starts is None or float(starts) <= now) and (ends is None or now < float(ends))


def _in_thread(work: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, name="schedule", daemon=True).start()


def add(emulator: Emulator) -> None:
    schedules = emulator.component(Schedules)
    emulator.handle("scheduler", "CreateSchedule", lambda request: _check(emulator, request))
    emulator.handle("scheduler", "UpdateSchedule", lambda request: _check(emulator, request))
    emulator.handle("events", "PutRule", _check_rule)
    emulator.route("POST", "/_local/schedules", lambda body, _parameters: _set_speed(schedules, body))
    emulator.run_in_background("schedules", schedules.run)


def _set_speed(schedules: Schedules, body: Mapping[str, Any]) -> dict[str, float]:
    if not float(body["speed"]) > 0:
        raise KeyError("speed must be positive")
    schedules.speed = float(body["speed"])
    print(f"rates run {schedules.speed} times as fast", file=sys.stderr, flush=True)
    return {"speed": schedules.speed}


def _check(emulator: Emulator, request: AwsRequest) -> None:
    """What Scheduler refuses and moto accepts."""
    params = request.params
    _parse(params["ScheduleExpression"], params.get("ScheduleExpressionTimezone", "UTC"))
    target = params["Target"]
    if target["Arn"].split(":")[2] not in targets.SERVICES:
        raise AwsError("ValidationException", f"the local Scheduler has no targets like {target['Arn']}")
    role = callers.find_role(emulator, target["RoleArn"])
    group = params.get("GroupName", "default")
    context = {
        "aws:sourceaccount": (emulator.account,),
        "aws:sourcearn": (f"arn:aws:scheduler:{emulator.region}:{emulator.account}:schedule-group/{group}",),
    }
    if role is None or not trusts(role, {"scheduler.amazonaws.com"}, "sts:AssumeRole", context):
        raise AwsError(
            "ValidationException",
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
        )


def _check_rule(request: AwsRequest) -> None:
    if request.params.get("ScheduleExpression"):
        _parse(request.params["ScheduleExpression"], "UTC")


def _parse(expression: str, timezone: str) -> None:
    try:
        parse_expression(expression, timezone)
    except (ValueError, KeyError) as error:
        raise AwsError("ValidationException", f"Invalid Schedule Expression {expression}: {error}") from None
