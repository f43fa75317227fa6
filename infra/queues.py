"""The doorbells: a queue for every function that has one, each with its dead letters."""

from typing import NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.grants import Grant


class Retries(NamedTuple):
    """When a message comes back that failed or whose invocation was throttled: after so many timeouts of the function.

    `tries`: so many failures make it a dead letter.
    """

    timeouts: int
    tries: int


#: A batch neighbour's retry must not meet a message that is still being worked on.
#: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
USUAL_RETRIES = Retries(timeouts=6, tries=5)
#: A spot warning is worth two minutes, of which six timeouts are half. It may meet itself, since what EventBridge sent
#: is recorded once. Lambda wants one timeout at least; tries last as long as usual, so that minutes of throttling make
#: no dead letters.
WARNING_RETRIES = Retries(timeouts=2, tries=15)

#: What a doorbell says is said again by the sweep within minutes, so an old one is noise; but it must outlive
#: its tries, or a poisonous message would vanish instead of reaching the dead letters.
_RETENTION = Duration.hours(1)

#: The longest AWS keeps a message: time for a person to look at it.
_DEAD_LETTER_RETENTION = Duration.days(14)


class WorkQueue(Construct):
    """A function's queue, with its dead letters. Encrypted, TLS only."""

    def __init__(
        self, scope: Construct, id: str, *, timeout_seconds: int, retries: Retries, key: kms.IKey | None
    ) -> None:
        super().__init__(scope, id)
        self.visibility_seconds = retries.timeouts * timeout_seconds
        self.dead_letters = _queue(self, "DeadLetters", key, _DEAD_LETTER_RETENTION)
        self.queue = _queue(
            self,
            "Queue",
            key,
            _RETENTION,
            visibility=Duration.seconds(self.visibility_seconds),
            dead_letters=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=retries.tries),
        )

    @property
    def send(self) -> Grant:
        """Ring this doorbell."""
        return Grant(f"Ring{self.node.id}", ("sqs:SendMessage",), (self.queue.queue_arn,))

    @property
    def receive(self) -> Grant:
        """Be woken by this queue. https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"""
        actions = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
        return Grant(f"Read{self.node.id}", actions, (self.queue.queue_arn,))


def _queue(
    scope: Construct,
    id: str,
    key: kms.IKey | None,
    retention: Duration,
    visibility: Duration | None = None,
    dead_letters: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        id,
        encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
        encryption_master_key=key,
        # A data key is used for an hour, so that a busy queue does not call KMS for every message.
        data_key_reuse=Duration.hours(1) if key else None,
        enforce_ssl=True,
        retention_period=retention,
        visibility_timeout=visibility,
        dead_letter_queue=dead_letters,
    )
