"""What a Scheduler schedule does when it fires: one call with its role's rights, repeated while it fails."""

import sys
import time

from botocore.exceptions import BotoCoreError, ClientError
from moto.scheduler.models import Schedule, scheduler_backends

from local.aws import loopback
from local.aws.emulator import Emulator
from local.aws.sts import callers

SERVICES = ("sqs", "lambda")
# Waits between attempts double from the first to the last, in seconds.
FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS = 1.0, 60.0


def invoke_target(emulator: Emulator, schedule: Schedule) -> None:
    """Deliver once; what cannot be delivered within the retry policy goes to the dead-letter queue."""
    policy = schedule.target.get("RetryPolicy") or {}
    attempts = 1 + int(policy.get("MaximumRetryAttempts", 185))
    until = time.monotonic() + float(policy.get("MaximumEventAgeInSeconds", 86400))
    wait = FIRST_WAIT_SECONDS
    for attempt in range(attempts):
        try:
            _call(emulator, schedule, schedule.target["Arn"], str(schedule.target.get("Input") or "{}"))
            break
        except (ClientError, BotoCoreError) as error:
            print(f"schedule {schedule.name}: {error}", file=sys.stderr, flush=True)
        if attempt + 1 == attempts or time.monotonic() + wait > until or not _exists(emulator, schedule):
            _bury(emulator, schedule)
            break
        time.sleep(wait)
        wait = min(2 * wait, LAST_WAIT_SECONDS)
    if schedule.schedule_expression.startswith("at(") and schedule.action_after_completion == "DELETE":
        scheduler_backends[emulator.account][emulator.region].delete_schedule(schedule.group_name, schedule.name)


def _call(emulator: Emulator, schedule: Schedule, arn: str, text: str) -> None:
    service = arn.split(":")[2]
    credentials = callers.create_role_session(emulator, schedule.target["RoleArn"], "scheduler", 900)
    client = loopback.create_client(emulator, service, credentials)
    if service == "lambda":
        client.invoke(FunctionName=arn, InvocationType="Event", Payload=text.encode())
        return
    extra = {}
    if schedule.target.get("SqsParameters"):
        extra["MessageGroupId"] = schedule.target["SqsParameters"]["MessageGroupId"]
    url = f"{emulator.endpoint}/{emulator.account}/{arn.rsplit(':', 1)[-1]}"
    client.send_message(QueueUrl=url, MessageBody=text, **extra)


def _bury(emulator: Emulator, schedule: Schedule) -> None:
    arn = (schedule.target.get("DeadLetterConfig") or {}).get("Arn")
    if arn:
        try:
            _call(emulator, schedule, arn, str(schedule.target.get("Input") or "{}"))
        except (ClientError, BotoCoreError) as error:
            print(f"schedule {schedule.name}: dead letters: {error}", file=sys.stderr, flush=True)


def _exists(emulator: Emulator, schedule: Schedule) -> bool:
    groups = scheduler_backends[emulator.account][emulator.region].schedule_groups
    group = groups.get(schedule.group_name)
    return group is not None and group.schedules.get(schedule.name) is schedule
