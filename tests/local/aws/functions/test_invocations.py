"""Deployed functions run as real processes behind the Invoke API."""

import base64
import concurrent.futures
import os
from pathlib import Path
from typing import Any

import boto3
import pytest

from local.aws.functions import processor_share
from tests.local.aws.serverless import ACCOUNT, REGION, Aws, eventually, zip_files

ECHO = """
import os, sys
def handler(event, context):
    print("hello from", context.aws_request_id)
    return {"event": event, "pid": os.getpid(), "environment": dict(os.environ), "path": sys.path,
            "remaining": context.get_remaining_time_in_millis(), "arn": context.invoked_function_arn}
"""


def test_answers_with_lambda_environment(aws: Aws) -> None:
    aws.function("echo", ECHO, Timeout=70, MemorySize=256, Environment={"Variables": {"COLOUR": "blue"}})
    answer, response = aws.invoke("echo", {"n": 1}, LogType="Tail")
    environment = answer["environment"]
    assert answer["event"] == {"n": 1}
    assert answer["arn"] == f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:echo"
    assert 0 < answer["remaining"] <= 70_000
    assert response["StatusCode"] == 200
    assert "FunctionError" not in response
    assert "hello from" in base64.b64decode(response["LogResult"]).decode()
    assert environment["COLOUR"] == "blue"
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "echo"
    assert environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert environment["AWS_ENDPOINT_URL"] == aws.endpoint.replace("http:", "https:")
    assert environment["AWS_ACCESS_KEY_ID"].startswith("ASIA")
    assert "Lineage=" in environment["_X_AMZN_TRACE_ID"]
    assert "hello from" in (aws.directory / "logs" / "function-echo.log").read_text()


def test_reuses_a_warm_process(aws: Aws) -> None:
    aws.function("warm", ECHO)
    first, _ = aws.invoke("warm")
    second, _ = aws.invoke("warm")
    assert first["pid"] == second["pid"]


def test_sees_only_package_layers_and_runtime(aws: Aws) -> None:
    source = """
import importlib.util
def handler(event, context):
    return {name: importlib.util.find_spec(name) is not None for name in event}
"""
    aws.function("bare", source)
    answer, _ = aws.invoke("bare", ["boto3", "moto", "yaml", "awslambdaric", "json", "handler"])
    assert answer == {
        "boto3": False,
        "moto": False,
        "yaml": False,
        "awslambdaric": True,
        "json": True,
        "handler": True,
    }


def test_layers_are_merged_in_order(aws: Aws) -> None:
    client = aws.client("lambda")
    arns = [
        client.publish_layer_version(LayerName=name, Content={"ZipFile": zip_files(files)})["LayerVersionArn"]
        for name, files in {
            "one": {"python/shared.py": "VALUE = 1", "python/first.py": "VALUE = 'first'"},
            "two": {"python/shared.py": "VALUE = 2"},
        }.items()
    ]
    aws.function(
        "layered",
        "import shared, first\ndef handler(e, c):\n    return [shared.VALUE, first.VALUE]",
        Layers=arns,
    )
    assert aws.invoke("layered")[0] == [2, "first"]


def test_calls_aws_as_its_role(aws: Aws) -> None:
    """The SDK comes from a layer, as it must: this one points at the test environment's packages."""
    client = aws.client("lambda")
    packages = Path(boto3.__path__[0]).parent
    layer = client.publish_layer_version(
        LayerName="sdk",
        Content={"ZipFile": zip_files({"python/sdk.py": f"import sys; sys.path.append({str(packages)!r})"})},
    )
    source = """
import sdk, boto3
def handler(event, context):
    return boto3.client("sts").get_caller_identity()["Arn"]
"""
    aws.function("who", source, Layers=[layer["LayerVersionArn"]], Timeout=120)
    assert aws.invoke("who")[0] == f"arn:aws:sts::{ACCOUNT}:assumed-role/function/who"
    assert any(call.get("function") == "who" for call in aws.control("GET", "/_local/calls")["calls"])


@pytest.mark.parametrize(
    ("source", "seconds", "error_type"),
    [
        ("def handler(e, c):\n    raise ValueError('no')", 60, "ValueError"),
        ("import os\ndef handler(e, c):\n    os._exit(3)", 60, "Runtime.ExitError"),
        ("import time\ndef handler(e, c):\n    time.sleep(600)", 1, "Sandbox.Timedout"),
        ("import nowhere\ndef handler(e, c):\n    pass", 60, "Runtime.ImportModuleError"),
    ],
)
def test_failures_are_errors_of_the_function(aws: Aws, source: str, seconds: int, error_type: str) -> None:
    name = error_type.replace(".", "-")
    aws.function(name, source, Timeout=seconds)
    answer, response = aws.invoke(name)
    assert response["StatusCode"] == 200
    assert response["FunctionError"] == "Unhandled"
    assert answer["errorType"] == error_type
    assert aws.invoke(name)[0]["errorType"] == error_type, "the next one starts afresh"


# Answers when three invocations are under way.
MEET = """
import os, pathlib, time
def handler(event, context):
    here = pathlib.Path(event)
    (here / context.aws_request_id).touch()
    while len(list(here.iterdir())) < 3: time.sleep(0.05)
    return os.getpid()
"""


def test_concurrent_invocations_get_processes_of_their_own(aws: Aws, tmp_path: Path) -> None:
    aws.function("busy", MEET, Timeout=200)
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        pids = {answer for answer, _ in threads.map(lambda _: aws.invoke("busy", str(tmp_path)), range(3))}
    assert len(pids) == 3


def test_reserved_concurrency_is_the_limit(aws: Aws) -> None:
    source = "import os, time\ndef handler(e, c):\n    time.sleep(0.3)\n    return os.getpid()"
    aws.function("narrow", source)
    aws.client("lambda").put_function_concurrency(FunctionName="narrow", ReservedConcurrentExecutions=1)
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        pids = {answer for answer, _ in threads.map(lambda _: aws.invoke("narrow"), range(3))}
    assert len(pids) == 1


def test_new_code_replaces_running_processes(aws: Aws) -> None:
    aws.function("changing", "def handler(e, c):\n    return 1")
    assert aws.invoke("changing")[0] == 1
    aws.client("lambda").update_function_code(
        FunctionName="changing", ZipFile=zip_files({"handler.py": "def handler(e, c):\n    return 2"})
    )
    assert aws.invoke("changing")[0] == 2


def test_event_invocations_are_answered_at_once(aws: Aws, tmp_path: Path) -> None:
    source = "import pathlib\ndef handler(e, c):\n    pathlib.Path(e).write_text('done')"
    aws.function("later", source)
    mark = tmp_path / "mark"
    _, response = aws.invoke("later", str(mark), InvocationType="Event")
    assert response["StatusCode"] == 202
    assert eventually(lambda: mark.exists() and mark.read_text()) == "done"


def test_a_disabled_function_does_not_run(aws: Aws) -> None:
    aws.function(
        "off", "def handler(e, c):\n    return 1", Environment={"Variables": {"POWERTOOLS_SERVICE_NAME": "short"}}
    )
    aws.control("POST", "/_local/functions/short", {"enabled": False})
    with pytest.raises(aws.client("lambda").exceptions.ServiceException):
        aws.invoke("off")
    aws.control("POST", "/_local/functions/short", {"enabled": True})
    assert aws.invoke("off")[0] == 1
    described = {f["name"]: f for f in aws.control("GET", "/_local/functions")["functions"]}
    assert described["short"]["invocations"] == 1
    assert described["short"]["processes"] == 1


def test_a_deleted_function_leaves_no_process(aws: Aws) -> None:
    aws.function("gone", "import os\ndef handler(e, c):\n    return os.getpid()")
    pid, _ = aws.invoke("gone")
    aws.client("lambda").delete_function(FunctionName="gone")
    eventually(lambda: not _alive(pid), what="the end of the function's process")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SPEND = """
import time
KEPT = bytearray(30_000_000)
def handler(event, context):
    until = time.process_time() + event["processor_seconds"]
    while time.process_time() < until: pass
    time.sleep(event["pause_seconds"])
"""


def test_each_invocation_ends_with_a_report_of_what_it_used(aws: Aws) -> None:
    aws.function("spend", SPEND, MemorySize=256)
    event = {"processor_seconds": 0.1, "pause_seconds": 1}
    cold, warm = (report(aws.invoke("spend", event, LogType="Tail")[1]) for _ in range(2))
    assert "Init Duration" in cold
    assert "Init Duration" not in warm
    assert warm["Memory Size"] == "256 MB"
    assert 100 <= float(warm["Processor Time"].removesuffix(" ms")) < 1000
    assert float(warm["Duration"].removesuffix(" ms")) >= 1000
    assert int(warm["Max Memory Used"].removesuffix(" MB")) >= 30


def report(response: dict[str, Any]) -> dict[str, str]:
    (line,) = [line for line in base64.b64decode(response["LogResult"]).decode().splitlines() if "REPORT" in line]
    return dict(part.split(": ", 1) for part in line.removeprefix("REPORT ").split("\t"))


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (("cpu/cgroup.procs",), {"cpu.cfs_quota_us": "20000", "cpu.cfs_period_us": "20000"}),
        (("cgroup.subtree_control",), {"cpu.max": "20000 20000"}),
    ],
    ids=["cgroup v1", "cgroup v2"],
)
def test_memory_is_a_share_of_a_processor(tmp_path: Path, files: tuple[str, ...], limits: dict[str, str]) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    processor_share.hold_by_control_group(42, memory_mb=processor_share.MB_PER_PROCESSOR, root=tmp_path)
    (group,) = tmp_path.rglob("spotwright-42")
    assert {name: (group / name).read_text() for name in limits} == limits
    assert (group / "cgroup.procs").read_text() == "42"
