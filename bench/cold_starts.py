"""Cold start: a function's process starts, imports, answers its first event: an empty batch.

`install` gets a request of CloudFormation's instead, whose answer it owes to a URL: one here, that takes it at once.
Beside each figure stands its ratio to a function that does nothing, measured in the same run: a busy machine slows
both.
"""

import contextlib
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from statistics import median
from typing import Any, Final

from local.cdk_deployment import CdkDeployment, administrator_session
from local.stack import Stack

FUNCTIONS: Final = ("provision", "lifecycle", "interrupt", "disrupt", "catalog", "sweep")
RUNS: Final = 5
EMPTY: Final = {"Records": list[object]()}
_IDLE: Final = "def handler(event, context):\n    return {}\n"


def cold_starts(stack: Stack, deployment: CdkDeployment) -> Iterator[tuple[str, str, str]]:
    """Median of several starts, each in a process of its own; with a warm call beside it."""
    client = administrator_session(stack).client("lambda", endpoint_url=stack.aws_endpoint)
    idle = one_file_function(client, deployment.outputs()["FunctionNameSweep"], "bench-idle", _IDLE)
    least = median(_starts(client, idle, EMPTY)[0])
    yield "cold start of a function that does nothing", f"{least * 1000:.0f} ms", ""
    for name, cold, warm in first_answers(stack, deployment):
        figure = f"{cold * 1000:.0f} ms, {cold / least:.1f} × (warm {warm * 1000:.0f})"
        yield f"cold start of {name}, process start → first answer", figure, "≤ 400 ms"


def first_answers(stack: Stack, deployment: CdkDeployment) -> Iterator[tuple[str, float, float]]:
    """Of each function the median seconds of the first answer of a process, and of the answer after it."""
    client = administrator_session(stack).client("lambda", endpoint_url=stack.aws_endpoint)
    outputs = deployment.outputs()
    with _taker() as url:
        for name, event in (dict.fromkeys(FUNCTIONS, EMPTY) | {"install": _request(url)}).items():
            cold, warm = _starts(client, outputs[f"FunctionName{name.capitalize()}"], event)
            yield name, median(cold), median(warm)


def _request(url: str) -> dict[str, object]:
    """What there is nothing to do for."""
    return {
        "RequestType": "Create",
        "ResourceType": "Custom::SpotwrightBucketContents",
        "ResourceProperties": {"Bucket": "bench"},
        "StackId": "bench",
        "RequestId": "bench",
        "LogicalResourceId": "Bench",
        "ResponseURL": url,
    }


class _Takes(BaseHTTPRequestHandler):
    """Any answer is welcome."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@contextlib.contextmanager
def _taker() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Takes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def _starts(client: Any, function: str, event: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Seconds of the first call of fresh processes, and of the call after it."""
    cold, warm = [], []
    for number in range(RUNS):
        # A changed environment ends every process of the function, as on AWS.
        current = client.get_function_configuration(FunctionName=function).get("Environment", {}).get("Variables", {})
        variables = current | {"BENCH_RUN": str(number)}
        client.update_function_configuration(FunctionName=function, Environment={"Variables": variables})
        cold.append(_answered(client, function, event))
        warm.append(_answered(client, function, event))
    return cold, warm


def one_file_function(client: Any, like: str, name: str, handler: str) -> str:
    """Deploy a handler that imports nothing of ours, with the runtime and the role of another function; its name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as into:
        into.writestr("handler.py", handler)
    same = client.get_function_configuration(FunctionName=like)
    made = client.create_function(
        FunctionName=name,
        Runtime=same["Runtime"],
        Role=same["Role"],
        Handler="handler.handler",
        Code={"ZipFile": archive.getvalue()},
    )
    return str(made["FunctionName"])


def _answered(client: Any, function: str, event: dict[str, Any]) -> float:
    started = time.perf_counter()
    answer = client.invoke(FunctionName=function, Payload=json.dumps(event))
    spent = time.perf_counter() - started
    assert "FunctionError" not in answer, answer["Payload"].read()
    return spent
