"""Cold start: a function's process starts, imports, answers its first, empty batch."""

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from local.demo.deploy import Deployment, session
from local.stack import Stack

FUNCTIONS: Final = ("provision", "lifecycle", "interrupt", "disrupt", "catalog", "sweep")
RUNS: Final = 5


def cold_starts(stack: Stack, deployment: Deployment) -> Iterator[tuple[str, str, str]]:
    """Median of several starts, each in a process of its own; with a warm call beside it."""
    client = session(stack).client("lambda", endpoint_url=stack.aws_endpoint)
    outputs = deployment.outputs()
    for name in FUNCTIONS:
        function = outputs[f"FunctionName{name.capitalize()}"]
        cold, warm = [], []
        for number in range(RUNS):
            # A changed environment ends every process of the function, as on AWS.
            current = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
            variables = current | {"BENCH_RUN": str(number)}
            client.update_function_configuration(FunctionName=function, Environment={"Variables": variables})
            cold.append(_answered(client, function))
            warm.append(_answered(client, function))
        figure = f"{median(cold) * 1000:.0f} ms (warm {median(warm) * 1000:.0f})"
        yield f"cold start of {name}, process start → first answer", figure, "≤ 400 ms"


def _answered(client: object, function: str) -> float:
    started = time.perf_counter()
    answer = client.invoke(FunctionName=function, Payload=json.dumps({"Records": []}))  # type: ignore[attr-defined]
    spent = time.perf_counter() - started
    assert "FunctionError" not in answer, answer["Payload"].read()
    return spent
