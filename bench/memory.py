"""`make bench-memory`: how long each function takes, and what it costs, with more or less memory.

One deployed local stack. For each memory size a function's processes are held to the share of a processor that Lambda
gives for it, where this machine has Linux's control groups and we are root; elsewhere times are computed from a run
with a whole processor. Prints Markdown tables as docs/memory.md has them.
"""

import argparse
import base64
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.cold_starts import FUNCTIONS, first_answers, one_file_function
from bench.memory_events import WAITING, Event, Scene, report
from bench.memory_price import MB_PER_PROCESSOR, computed_milliseconds, invocation, month
from local.aws.strictness import WITHOUT_DELAYS
from local.cdk_deployment import CdkDeployment, administrator_session, forwarder_command
from local.stack import Stack, StackOptions

SIZES: Final = (256, 512, 1024, 1769, 3008)
RUNS: Final = 5
# A process that waits for nothing else has so much of its processor where nothing else runs.
_UNDISTURBED: Final = 0.9
_SPIN: Final = "bench-spin"
_SPINNING: Final = """\
import time

def handler(event, context):
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
"""


@dataclass(frozen=True)
class Figure:
    """One kind of event with one memory size: medians of milliseconds, and the most memory that the process had.

    ``first_ms``: in a new process, from its start; ``processor_ms``: of an invocation after that.
    """

    event: Event
    memory_mb: int
    first_ms: float
    warm_ms: float
    processor_ms: float
    peak_mb: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-memory")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="MB")
    parser.add_argument("--pods", type=int, default=WAITING, help="how many wait for a node")
    parser.add_argument("--only", nargs="+", default=(), metavar="FUNCTION")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-memory-"))
    print(f"a local stack with Spotwright deployed (about a minute), logs in {directory / 'logs'}", file=sys.stderr)
    undelayed = StackOptions(lenient=WITHOUT_DELAYS)
    with Stack.start(directory, forwarder_command=forwarder_command(directory), options=undelayed) as stack:
        roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
        deployment = CdkDeployment(stack, node_roles=roles)
        deployment.deploy()
        with Scene(stack, deployment, waiting=options.pods).still() as scene:
            bench = Bench(stack, deployment, scene)
            for line in bench.lines(options.sizes, options.only):
                print(line, flush=True)
    return 0


class Bench:
    """Measures on a scene."""

    def __init__(self, stack: Stack, deployment: CdkDeployment, scene: Scene) -> None:
        self._stack, self._deployment, self._scene = stack, deployment, scene
        self._functions: Any = administrator_session(stack).client("lambda", endpoint_url=stack.aws_endpoint)
        self._outputs, self._changes = deployment.outputs(), 0
        self._names = {name: self._outputs[f"FunctionName{name.capitalize()}"] for name in (*FUNCTIONS, "install")}
        self._names[_SPIN] = one_file_function(self._functions, self._names["sweep"], _SPIN, _SPINNING)
        self._held = self._hold()

    def lines(self, sizes: Sequence[int], only: Sequence[str]) -> Iterator[str]:
        yield "Each process is held to its share by a control group." if self._held else "Computed from a whole share."
        if (whole := self._share(MB_PER_PROCESSOR)) < _UNDISTURBED:
            yield f"The machine is busy: a process had {whole:.0%} of the processor it should have. Times are too long."
        if not only:
            yield from self._cold(sizes)
        events = [event for event in self._scene.events() if not only or event.function in only]
        figures = [figure for event in events for figure in self._figures(event, sizes)]
        yield from _invocations(figures)
        yield from _months(figures)

    def _hold(self) -> bool:
        """Whether processes get their share and no more, which is tried: a system may refuse, or not obey."""
        self._stack.control("POST", "/_local/functions", {"shares": True})
        try:
            obeys = self._share(SIZES[0]) < 1.2 * SIZES[0] / MB_PER_PROCESSOR
        except self._functions.exceptions.ClientError:
            obeys = False
        self._stack.control("POST", "/_local/functions", {"shares": obeys})
        return obeys

    def _share(self, size: int) -> float:
        """The part of a processor that a process gets which waits for nothing else."""
        self._set_memory(_SPIN, size)
        for _ in range(2):
            answer = self._functions.invoke(FunctionName=_SPIN, Payload="{}", LogType="Tail")
        used = report(base64.b64decode(answer["LogResult"]).decode())
        return _ms(used, "Processor Time") / _ms(used, "Duration")

    def _cold(self, sizes: Sequence[int]) -> Iterator[str]:
        """Cold starts with nothing to do, as `make bench` measures them."""
        if not self._held:
            return
        yield from _table("Function", *(f"{size} MB" for size in sizes))
        found: dict[str, list[str]] = {}
        for size in sizes:
            for name in (*FUNCTIONS, "install"):
                self._set_memory(name, size)
            for name, cold, _ in first_answers(self._stack, self._deployment):
                found.setdefault(name, []).append(f"{cold * 1000:.0f}")
        for name, figures in found.items():
            yield f"| {name} | {' | '.join(figures)} |"

    def _figures(self, event: Event, sizes: Sequence[int]) -> Iterator[Figure]:
        if self._held:
            yield from (self._measured(event, size) for size in sizes)
            return
        whole = self._measured(event, MB_PER_PROCESSOR)
        for size in sizes:
            waiting = whole.warm_ms - whole.processor_ms
            warm = computed_milliseconds(whole.processor_ms, waiting, size)
            first = computed_milliseconds(whole.first_ms - waiting, waiting, size)
            yield Figure(event, size, first, warm, whole.processor_ms, whole.peak_mb)

    def _measured(self, event: Event, size: int) -> Figure:
        first, warm = [], []
        for _ in range(2):
            self._set_memory(event.function, size)
            first.append(self._scene.invoke(event))
            warm += [self._scene.invoke(event) for _ in range(RUNS)]
        return Figure(
            event,
            size,
            first_ms=min(_ms(used, "Init Duration") + _ms(used, "Duration") for used in first),
            warm_ms=median(_ms(used, "Duration") for used in warm),
            processor_ms=median(_ms(used, "Processor Time") for used in warm),
            peak_mb=max(int(used["Max Memory Used"].removesuffix(" MB")) for used in (*first, *warm)),
        )

    def _set_memory(self, function: str, size: int) -> None:
        """A changed environment ends every process of the function, as on AWS."""
        self._changes += 1
        name = self._names[function]
        current = self._functions.get_function_configuration(FunctionName=name).get("Environment", {})
        variables = current.get("Variables", {}) | {"BENCH_RUN": f"memory-{self._changes}"}
        self._functions.update_function_configuration(
            FunctionName=name, MemorySize=size, Environment={"Variables": variables}
        )


def _ms(used: dict[str, str], name: str) -> float:
    return float(used.get(name, "0 ms").removesuffix(" ms"))


def _table(*heads: str) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"


def _invocations(figures: Sequence[Figure]) -> Iterator[str]:
    heads = ("Function", "Event", "MB", "first, ms", "warm, ms", "processor, ms", "peak, MB", "$ a million")
    yield from _table(*heads)
    for figure in figures:
        times = f"{figure.first_ms:.0f} | {figure.warm_ms:.0f} | {figure.processor_ms:.0f}"
        price = invocation(figure.warm_ms, figure.memory_mb) * 10**6
        event = f"{figure.event.function} | {figure.event.what}"
        yield f"| {event} | {figure.memory_mb} | {times} | {figure.peak_mb} | {price:.2f} |"


def _months(figures: Sequence[Figure]) -> Iterator[str]:
    """What the schedules cost in a month in which nothing happens, by function and memory size."""
    sizes = sorted({figure.memory_mb for figure in figures})
    yield from _table("Function", *(f"{size} MB, $" for size in sizes))
    for function, group in groupby(figures, key=lambda figure: figure.event.function):
        of_function = list(group)
        prices = [
            month(((figure.warm_ms, figure.event.month) for figure in of_function if figure.memory_mb == size), size)
            for size in sizes
        ]
        yield f"| {function} | {' | '.join(f'{price:.2f}' for price in prices)} |"


if __name__ == "__main__":
    sys.exit(main())
