"""Faults on demand: refused, silent, and callers that die before or after their call takes effect."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from local.aws.calls.call_log import CallLog
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse, ConnectionDropped
from local.aws.emulator import Emulator
from local.aws.faults import Faults
from tests.local.aws.conftest import Aws
from tests.local.aws.fleets import code_of, fleet_request, override


@pytest.fixture
def fault(aws: Aws) -> Iterator[Any]:
    yield lambda **body: aws.control("POST", "/_local/faults", body)
    aws.control("DELETE", "/_local/faults")


def test_an_error_is_answered_as_often_as_asked(aws: Aws, fault: Any) -> None:
    fault(service="sqs", action="ListQueues", kind="error", code="ServiceUnavailable", times=2)
    sqs = aws.client("sqs")
    codes = []
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            sqs.list_queues()
        codes.append((code_of(caught.value), caught.value.response["ResponseMetadata"]["HTTPStatusCode"]))
    assert codes == [("ServiceUnavailable", 500)] * 2
    assert sqs.list_queues()


def test_an_error_has_no_effect(aws: Aws, fault: Any) -> None:
    fault(service="ec2", action="CreateLaunchTemplate", kind="error", code="InternalError")
    ec2 = aws.client("ec2")
    call = {"LaunchTemplateName": "faulty", "LaunchTemplateData": {"InstanceType": "t3a.large"}}
    with pytest.raises(ClientError):
        ec2.create_launch_template(**call)
    assert ec2.create_launch_template(**call)["LaunchTemplate"]["LaunchTemplateName"] == "faulty"


def test_silence_after_the_act_hides_what_happened(aws: Aws, fault: Any) -> None:
    fault(service="ec2", action="CreateFleet", kind="timeout_after_act", seconds=0.2)
    ec2 = aws.client("ec2")
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], ClientToken="silent")
    with pytest.raises(ConnectionClosedError):
        ec2.create_fleet(**asked)
    wanted = [{"Name": "client-token", "Values": ["silent"]}]
    (reservation,) = ec2.describe_instances(Filters=wanted)["Reservations"]
    again = ec2.create_fleet(**asked)
    assert again["Instances"][0]["InstanceIds"] == [reservation["Instances"][0]["InstanceId"]]


def test_faults_are_listed_and_cleared(aws: Aws, fault: Any) -> None:
    fault(service="*", action="*", kind="error", function="nobody")
    (armed,) = aws.control("GET", "/_local/faults")["faults"]
    assert (armed["kind"], armed["function"], armed["times"]) == ("error", "nobody", 1)
    assert aws.client("sqs").list_queues()
    aws.control("DELETE", "/_local/faults")
    assert aws.control("GET", "/_local/faults")["faults"] == []


@pytest.mark.parametrize("body", [{"service": "sqs", "action": "*", "kind": "magic"}, {"kind": "error"}])
def test_a_fault_that_makes_no_sense_is_refused(aws: Aws, body: dict[str, str]) -> None:
    assert aws.control("POST", "/_local/faults", body)["status"] == 400


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    calls = CallLog(tmp_path / "calls.jsonl")
    yield Emulator(tmp_path, "ap-northeast-2", "123456789012", 1, "c", calls)
    calls.close()


def call(access_key: str) -> AwsRequest:
    headers = {"x-amz-target": "AmazonSQS.SendMessage", "content-type": "application/x-amz-json-1.0"}
    return AwsRequest("POST", "/", "", headers, b"{}", service="sqs", access_key=access_key)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_process_behind_assumed_credentials_dies(emulator: Emulator, moment: str) -> None:
    killed: list[str] = []
    emulator.process_killers["ASIAFUNCTION"] = lambda: killed.append("provision")
    emulator.function_names["ASIAFUNCTION"] = "provision"
    emulator.parent_access_keys["ASIAROLE"] = "ASIAFUNCTION"
    faults = Faults(emulator)
    faults.inject({"service": "sqs", "action": "SendMessage", "kind": f"crash_caller_{moment}_act"})
    done = AwsResponse(200)

    def pass_through(access_key: str) -> None:
        faults.before_call(call(access_key))
        faults.after_call(call(access_key), done)

    pass_through("local-admin")
    assert killed == []
    with pytest.raises(ConnectionDropped):
        pass_through("ASIAROLE")
    assert killed == ["provision"]
    pass_through("ASIAROLE")


def test_a_fault_for_one_function_spares_the_others(emulator: Emulator) -> None:
    emulator.function_names |= {"ASIAONE": "provision", "ASIATWO": "lifecycle"}
    faults = Faults(emulator)
    faults.inject({"service": "sqs", "action": "*", "kind": "error", "function": "lifecycle"})
    faults.before_call(call("ASIAONE"))
    with pytest.raises(AwsError):
        faults.before_call(call("ASIATWO"))


def test_a_refused_call_triggers_nothing_afterwards(emulator: Emulator) -> None:
    emulator.process_killers["ASIAFUNCTION"] = lambda: None
    faults = Faults(emulator)
    faults.inject({"service": "*", "action": "*", "kind": "crash_caller_after_act"})
    faults.after_call(call("ASIAFUNCTION"), AwsResponse(400, base64.b64encode(b"")))
    with pytest.raises(ConnectionDropped):
        faults.after_call(call("ASIAFUNCTION"), AwsResponse(200))
