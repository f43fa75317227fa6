"""Cold start: a function's process starts, imports, answers its first, empty batch.

Beside each figure stands its ratio to a function that does nothing, measured in the same run: a busy machine slows
both.
"""

import io
import json
import time
import zipfile
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from local.demo.deploy import Deployment, session
from local.stack import Stack

FUNCTIONS: Final = ("provision", "lifecycle", "interrupt", "disrupt", "catalog", "sweep")
RUNS: Final = 5


def cold_starts(stack: Stack, deployment: Deployment) -> Iterator[tuple[str, str, str]]:
    """Median of several starts, each in a process of its own; with a warm call beside it."""
    client = session(stack).client("lambda", endpoint_url=stack.aws_endpoint)
    outputs = deployment.outputs()
    of = {name: outputs[f"FunctionName{name.capitalize()}"] for name in FUNCTIONS}
    least = median(_starts(client, _idle(client, of["sweep"]))[0])
    yield "cold start of a function that does nothing", f"{least * 1000:.0f} ms", ""
    for name, function in of.items():
        cold, warm = (median(some) for some in _starts(client, function))
        figure = f"{cold * 1000:.0f} ms, {cold / least:.1f} × (warm {warm * 1000:.0f})"
        yield f"cold start of {name}, process start → first answer", figure, "≤ 400 ms"


def _starts(client: Any, function: str) -> tuple[list[float], list[float]]:
    """Seconds of the first call of fresh processes, and of the call after it."""
    cold, warm = [], []
    for number in range(RUNS):
        # A changed environment ends every process of the function, as on AWS.
        current = client.get_function_configuration(FunctionName=function).get("Environment", {}).get("Variables", {})
        variables = current | {"BENCH_RUN": str(number)}
        client.update_function_configuration(FunctionName=function, Environment={"Variables": variables})
        cold.append(_answered(client, function))
        warm.append(_answered(client, function))
    return cold, warm


def _idle(client: Any, like: str) -> str:
    """A function of the same runtime and role that imports nothing; its name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as into:
        into.writestr("handler.py", "def handler(event, context):\n    return {}\n")
    same = client.get_function_configuration(FunctionName=like)
    made = client.create_function(
        FunctionName="bench-idle",
        Runtime=same["Runtime"],
        Role=same["Role"],
        Handler="handler.handler",
        Code={"ZipFile": archive.getvalue()},
    )
    return str(made["FunctionName"])


def _answered(client: Any, function: str) -> float:
    started = time.perf_counter()
    answer = client.invoke(FunctionName=function, Payload=json.dumps({"Records": []}))
    spent = time.perf_counter() - started
    assert "FunctionError" not in answer, answer["Payload"].read()
    return spent
