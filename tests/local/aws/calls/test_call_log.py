"""The call log: every call once, in order, with who, what and how it ended."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.calls.call_log import CallLog
from tests.local.aws.conftest import Aws


def since(aws: Aws, number: int) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = aws.control("GET", f"/_local/calls?since={number}")["calls"]
    return calls


def latest(aws: Aws) -> int:
    return int(aws.control("GET", "/_local/calls?since=0")["next"])


def test_calls_are_logged_with_their_parameters(aws: Aws) -> None:
    before = latest(aws)
    role = aws.role("calls-test")
    wanted = [{"Name": "instance-state-name", "Values": ["running"]}]
    with pytest.raises(ClientError):
        aws.client("ec2", role).describe_instances(Filters=wanted)
    calls = since(aws, before)
    assert [call["n"] for call in calls] == list(range(before + 1, before + 1 + len(calls)))
    assert [call["action"] for call in calls] == ["CreateRole", "AssumeRole", "DescribeInstances"]
    last = calls[-1]
    assert (last["service"], last["status"], last["error"]) == ("ec2", 403, "UnauthorizedOperation")
    assert last["principal"] == "arn:aws:sts::123456789012:assumed-role/calls-test/test"
    assert last["request"] == {"Filters": wanted}
    assert calls[0]["principal"] == "arn:aws:iam::123456789012:root"


def test_errors_of_moto_are_logged_by_their_code(aws: Aws) -> None:
    before = latest(aws)
    calls: list[Callable[[], Any]] = [
        lambda: aws.client("dynamodb").describe_table(TableName="calls-nobody"),
        lambda: aws.client("iam").get_role(RoleName="calls-nobody"),
        lambda: aws.client("s3").get_object(Bucket="calls-nobody", Key="x"),
    ]
    for call in calls:
        with pytest.raises(ClientError):
            call()
    errors = [call["error"] for call in since(aws, before)]
    assert errors == ["ResourceNotFoundException", "NoSuchEntity", "NoSuchBucket"]


def test_long_values_are_cut(aws: Aws) -> None:
    before = latest(aws)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="calls-bucket", CreateBucketConfiguration={"LocationConstraint": "ap-northeast-2"})
    s3.put_object(Bucket="calls-bucket", Key="big", Body=b"x" * 1_000_000)
    put = since(aws, before)[-1]
    assert put["request"]["Key"] == "big"
    assert len(json.dumps(put)) < 3000
    assert s3.get_object(Bucket="calls-bucket", Key="big")["ContentLength"] == 1_000_000
    assert s3.head_object(Bucket="calls-bucket", Key="big")["ContentLength"] == 1_000_000


def test_the_log_is_a_file_too(aws: Aws) -> None:
    aws.client("sts").get_caller_identity()
    lines = (aws.directory / "logs" / "aws-calls.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["action"] == "GetCallerIdentity"
    assert json.loads(lines[-1])["n"] == len(lines)


def test_a_long_log_keeps_its_numbers(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.jsonl", limit=5)
    numbers = [log.add({"action": "x"}) for _ in range(23)]
    log.close()
    assert numbers == list(range(1, 24))
    assert [call["n"] for call in log.since(20)] == [21, 22, 23]
    assert log.since(0)[-1]["n"] == 23
    assert len(log.since(0)) >= 5
