"""Alarms of AWS's own metrics, by what they watch. Those of Spotwright's metrics stand beside the metrics."""

from typing import Final

from spotwright.telemetry.rows import Alarm

# A table: a row is read as a whole.
# fmt: off
# Of each queue

DEAD_LETTERS: Final = Alarm(
    "DeadLetters", 1,
    "Queue {subject}: a message failed five times or more and is among the dead letters. The sweep rings again for what"
    " is left to do, so work is late at most; the message shows what fails.",
    "Read it, and the log lines \"failed to handle doorbell\" and \"work on cluster failed\"; then purge the dead"
    " letters.",
    statistic="Maximum",
)
#: The threshold is the queue's visibility timeout.
MESSAGES_WAIT: Final = Alarm(
    "MessagesWait", 2,
    "Queue {subject}: a message waits longer than a whole retry takes: the function fails, is throttled or lags.",
    "Look at the function's errors, throttles and duration on the dashboard, then at its log group.",
    statistic="Maximum",
)

# Of each function

ERRORS: Final = Alarm(
    "Errors", 10,
    "Function {subject}: invocations end with an error, time out or do not start. All their messages come back.",
    "Look for \"Traceback\", \"Task timed out\" or \"Runtime.ImportModuleError\" in its log group; after a deployment,"
    " go back to the version before.",
    period_minutes=5,
)
THROTTLES: Final = Alarm(
    "Throttles", 10,
    "Function {subject}: Lambda throttles invocations. Messages come back and may end among the dead letters.",
    "Compare the account's concurrency with its quota; ask for more, or find who else uses it.",
    period_minutes=5,
)

# Of each function that a schedule wakes, by itself or by way of the sweep

NOT_INVOKED: Final = Alarm(
    "NotInvoked", 30,
    "Function {subject}: not invoked for half an hour, though schedules wake it: a schedule is disabled or deleted, or"
    " its queue does not wake the function. Nothing that it does is done.",
    "Look whether the schedules of the cell and the function's event source mapping are enabled.",
    period_minutes=15, is_missed=True,
)

# Of the cell

NOTICES_NOT_RECORDED: Final = Alarm(
    "NoticesNotRecorded", 10,
    "Function {subject}: messages of EC2 about instances cannot be recorded. Interrupted nodes are replaced only when"
    " the sweep finds them gone.",
    "Look for the log line \"failed to record interruption notice\": its code names the call.",
    period_minutes=5,
)
FAILED_INVOCATIONS: Final = Alarm(
    "FailedInvocations", 5,
    "{subject}: EventBridge could not put messages about instances into the queues of interrupt; they are lost. Spot"
    " interruptions cost pods their grace period until this ends.",
    "Look at the policies of the queues interrupt and changes, and of the KMS key: events.amazonaws.com must get in.",
    period_minutes=5,
)
SCHEDULES_FAIL: Final = Alarm(
    "SchedulesFail", 10,
    "{subject}: EventBridge Scheduler gave up on ringing doorbells. What the sweep makes up for is late.",
    "Look at the schedules' role, the queues' policies and the policy of the KMS key.",
    period_minutes=5,
)
# fmt: on


def alarm_rows() -> dict[str, Alarm]:
    """By the names of alarms, in the order in which they are declared."""
    return {row.name: row for row in globals().values() if isinstance(row, Alarm)}
