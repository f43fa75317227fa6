"""SQS event source mappings: batches, failures, dead letters, concurrency, recursion."""

import json
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.local.aws.serverless import Aws, eventually, zip_files

# Does what `THEN` says, between a JSON line in the file RECEIVED and, if it did not fail, another in the file RECORD.
RECORDER = """
import json, os, time
def write(variable, record):
    with open(os.environ[variable], "a") as file:
        file.write(json.dumps(record) + "\\n")
def handler(event, context):
    record = {{"at": time.time(), "process": os.getpid(), "records": event["Records"]}}
    write("RECEIVED", record)
    {then}
    write("RECORD", record | {{"until": time.time()}})
    return answer
"""
# Longer than any test takes: what comes again comes because the test gives it back.
LONG = "900"


class Consumer:
    """A queue, a function that records what it gets, and the mapping between them.

    However slow the machine, no invocation is ended and no message comes again by itself.
    """

    def __init__(self, aws: Aws, name: str, record: Path, then: str = "answer = None", **mapping: Any) -> None:
        self.aws, self.name, self.record = aws, name, record
        attributes = mapping.pop("attributes", {})
        self.received = record.with_name("received")
        variables = {"RECORD": str(record), "RECEIVED": str(self.received)} | mapping.pop("variables", {})
        settings = {"Timeout": 120, "Environment": {"Variables": variables}} | mapping.pop("function", {})
        self.url = aws.queue(name, **({"VisibilityTimeout": LONG} | attributes))
        aws.function(name, RECORDER.format(then=then), **settings)
        self.mapping = aws.client("lambda").create_event_source_mapping(
            FunctionName=name, EventSourceArn=aws.queue_arn(name), **mapping
        )["UUID"]

    def send(self, *bodies: str) -> None:
        """All in one call: a batch may hold them together."""
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        self.aws.client("sqs").send_message_batch(QueueUrl=self.url, Entries=entries)

    def give_back(self, body: str, times: int) -> None:
        """Once the function has received the message so many times, make it visible."""

        def handles() -> list[str]:
            received = [record for batch in lines(self.received) for record in batch["records"]]
            return [record["receiptHandle"] for record in received if record["body"] == body]

        eventually(lambda: len(handles()) >= times, what=f"delivery {times} of {body}")
        self.aws.client("sqs").change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=handles()[-1], VisibilityTimeout=0
        )

    def batches(self) -> list[dict[str, Any]]:
        return lines(self.record)

    def bodies(self) -> list[str]:
        return [record["body"] for batch in self.batches() for record in batch["records"]]

    def left(self) -> int:
        """Messages on the queue, visible or not."""
        attributes = self.aws.client("sqs").get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(attributes["Attributes"][name]) for name in names)


def most_at_once(batches: list[dict[str, Any]]) -> int:
    spans = [(batch["at"], batch["until"]) for batch in batches]
    overlaps: list[int] = [sum(begin <= at < until for begin, until in spans) for at, _ in spans]
    return max(overlaps)


def lines(file: Path) -> list[dict[str, Any]]:
    """What was written to a file of JSON lines; the last one may not be whole yet."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_delivers_records_as_lambda_does(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(aws, "shape", tmp_path / "record")
    aws.client("sqs").send_message(
        QueueUrl=consumer.url,
        MessageBody="hello",
        MessageAttributes={"colour": {"DataType": "String", "StringValue": "blue"}},
    )
    (batch,) = eventually(consumer.batches)
    (record,) = batch["records"]
    assert record["body"] == "hello"
    assert record["md5OfBody"] == "5d41402abc4b2a76b9719d911017c592"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == aws.queue_arn("shape")
    assert record["awsRegion"] == "ap-northeast-2"
    assert record["messageAttributes"]["colour"]["stringValue"] == "blue"
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert set(record["attributes"]) >= {"SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"}
    eventually(lambda: consumer.left() == 0, what="the deletion")


def test_a_warm_function_answers_from_the_same_process(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(aws, "warm-queue", tmp_path / "record")
    for number in range(4):
        consumer.send(str(number))
        eventually(lambda: len(consumer.batches()) > number)  # noqa: B023
        eventually(lambda: consumer.left() == 0, what="the end of the invocation")
    assert len({batch["process"] for batch in consumer.batches()}) == 1


def test_batches_up_to_the_batch_size_within_the_window(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(
        aws,
        "window",
        tmp_path / "record",
        BatchSize=4,
        MaximumBatchingWindowInSeconds=8,
    )
    consumer.send(*"abcdef")
    eventually(lambda: len(consumer.bodies()) == 6)
    assert max(len(batch["records"]) for batch in consumer.batches()) == 4


def test_failed_items_come_back_alone(aws: Aws, tmp_path: Path) -> None:
    then = (
        (
            'answer = {{"batchItemFailures": [{{"itemIdentifier": r["messageId"]}} for r in event["Records"]'
            ' if r["body"] == "bad" and r["attributes"]["ApproximateReceiveCount"] == "1"]}}'
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    consumer = Consumer(
        aws,
        "partial",
        tmp_path / "record",
        then,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        BatchSize=3,
        MaximumBatchingWindowInSeconds=5,
    )
    consumer.send("good", "bad", "fine")
    eventually(lambda: consumer.left() == 1, what="the deletion of the others")
    consumer.give_back("bad", 1)
    eventually(lambda: consumer.left() == 0, what="the deletion of the last")
    assert sorted(consumer.bodies()) == ["bad", "bad", "fine", "good"]
    assert [record["body"] for record in consumer.batches()[-1]["records"]] == ["bad"]


@pytest.mark.parametrize(
    "answer",
    [
        '{"batchItemFailures": [{"itemIdentifier": ""}]}',
        '{"batchItemFailures": [{"itemIdentifier": None}]}',
        '{"batchItemFailures": [{"messageId": event["Records"][0]["messageId"]}]}',
        '{"batchItemFailures": [{"itemIdentifier": "stranger"}]}',
        '"not an object"',
    ],
)
def test_an_unintelligible_answer_fails_the_batch(aws: Aws, tmp_path: Path, answer: str) -> None:
    name = f"odd-{abs(hash(answer))}"
    consumer = Consumer(
        aws,
        name,
        tmp_path / "record",
        f"answer = {answer}",
        FunctionResponseTypes=["ReportBatchItemFailures"],
        function={"Timeout": 2},
        attributes={"VisibilityTimeout": "2"},
    )
    consumer.send("once more")
    eventually(lambda: len(consumer.bodies()) >= 2, what="the second delivery")
    aws.client("lambda").delete_event_source_mapping(UUID=consumer.mapping)


def test_poison_goes_to_the_dead_letter_queue(aws: Aws, tmp_path: Path) -> None:
    dead = aws.queue("dead")
    policy = json.dumps({"deadLetterTargetArn": aws.queue_arn("dead"), "maxReceiveCount": 2})
    consumer = Consumer(
        aws,
        "poison",
        tmp_path / "record",
        "if event['Records'][0]['body'] == 'poison': raise ValueError\n    answer = None",
        BatchSize=1,
        attributes={"RedrivePolicy": policy},
    )
    consumer.send("poison", "food")
    for times in (1, 2):
        assert aws.receive(dead, 0) == []
        consumer.give_back("poison", times)
    (message,) = eventually(lambda: aws.receive(dead, 1))
    assert message["Body"] == "poison"
    eventually(lambda: consumer.left() == 0, what="the deletion of the other")
    assert consumer.bodies() == ["food"]


def test_maximum_concurrency_holds(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(
        aws,
        "capped",
        tmp_path / "record",
        "time.sleep(0.6)\n    answer = None",
        BatchSize=1,
        ScalingConfig={"MaximumConcurrency": 2},
    )
    consumer.send(*"abcdef")
    eventually(lambda: len(consumer.batches()) == 6)
    assert most_at_once(consumer.batches()) <= 2


def test_begins_with_five_batches_and_starts_more_while_they_run(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(
        aws,
        "growing",
        tmp_path / "record",
        "while len(open(os.environ['RECEIVED']).readlines()) < 7: time.sleep(0.05)\n    answer = None",
        BatchSize=1,
        ScalingConfig={"MaximumConcurrency": 10},
    )
    sent = time.time()
    consumer.send(*"abcdefg")
    eventually(lambda: len(consumer.batches()) == 7)
    sixth = sorted(batch["at"] for batch in consumer.batches())[5]
    assert sixth - sent > 1.0


def test_a_disabled_mapping_or_function_delivers_nothing(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(aws, "paused", tmp_path / "record", Enabled=False)
    consumer.send("wait")
    time.sleep(0.5)
    aws.control("POST", "/_local/functions/paused", {"enabled": False})
    aws.client("lambda").update_event_source_mapping(UUID=consumer.mapping, Enabled=True)
    time.sleep(1.5)
    assert consumer.batches() == []
    assert aws.control("GET", "/_local/functions")
    aws.control("POST", "/_local/functions/paused", {"enabled": True})
    eventually(lambda: consumer.bodies() == ["wait"])
    assert consumer.batches()[0]["records"][0]["attributes"]["ApproximateReceiveCount"] == "1"


def test_mapping_to_a_queue_with_short_visibility_is_refused(aws: Aws) -> None:
    aws.queue("hasty", VisibilityTimeout="5")
    aws.function("slow", "def handler(e, c): pass", Timeout=10)
    client = aws.client("lambda")
    with pytest.raises(client.exceptions.InvalidParameterValueException, match="less than Function timeout"):
        client.create_event_source_mapping(FunctionName="slow", EventSourceArn=aws.queue_arn("hasty"))


def test_delayed_messages_arrive_no_sooner(aws: Aws, tmp_path: Path) -> None:
    consumer = Consumer(aws, "delayed", tmp_path / "record")
    sent = time.time()
    aws.client("sqs").send_message(QueueUrl=consumer.url, MessageBody="later", DelaySeconds=2)
    (batch,) = eventually(consumer.batches)
    assert batch["at"] - sent > 1.9


@pytest.mark.parametrize("allowed", [False, True])
def test_a_function_that_feeds_itself_is_stopped_unless_allowed(aws: Aws, tmp_path: Path, allowed: bool) -> None:
    name = f"loop-{allowed}"
    packages = str(Path(boto3.__path__[0]).parent)
    layer = aws.client("lambda").publish_layer_version(
        LayerName=name, Content={"ZipFile": zip_files({"python/sdk.py": f"import sys; sys.path.append({packages!r})"})}
    )["LayerVersionArn"]
    dead = aws.queue(f"{name}-dead")
    policy = json.dumps({"deadLetterTargetArn": aws.queue_arn(f"{name}-dead"), "maxReceiveCount": 9})
    consumer = Consumer(
        aws,
        name,
        tmp_path / "record",
        "import sdk, boto3\n"
        "    hop = int(event['Records'][0]['body'])\n"
        "    if hop < 20: boto3.client('sqs').send_message(QueueUrl=os.environ['QUEUE'], MessageBody=str(hop + 1))\n"
        "    answer = None",
        attributes={"RedrivePolicy": policy},
        variables={"QUEUE": aws.queue(name, VisibilityTimeout=LONG, RedrivePolicy=policy)},
        function={"Layers": [layer]},
    )
    if allowed:
        aws.client("lambda").put_function_recursion_config(FunctionName=name, RecursiveLoop="Allow")
    consumer.send("1")
    if allowed:
        eventually(lambda: "20" in consumer.bodies())
    else:
        (message,) = eventually(lambda: aws.receive(dead, 1))
        assert message["Body"] == "17"
        eventually(lambda: len(consumer.bodies()) == 16, what="the sixteenth record")
