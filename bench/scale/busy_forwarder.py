"""What the forwarder uses while pods change: memory, share of a processor, requests at the API server."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.scale.figures import Measured
from bench.scale.objects import pod_path
from bench.scale.processes import processor_seconds
from bench.scale.scene import Scene

CHANGES_PER_SECOND: Final = 50
SECONDS: Final = 60.0
_THREADS: Final = 4
_MEGABYTES_GOAL, _PERCENT_GOAL, _REQUESTS_GOAL = 256, 5, 60


def forwarder_figures(scene: Scene, pods: int) -> Iterator[Measured]:
    """While nobody else asks the API server under the same FlowSchema: the functions are switched off."""
    with _functions_off(scene):
        # An invocation that runs when they are switched off ends first.
        scene.until_quiet()
        pid = scene.forwarder()
        load, used, begun = scene.load(), processor_seconds(pid), time.monotonic()
        changed = _change_pods(scene, pods)
        spent = time.monotonic() - begun
        percent = 100 * (processor_seconds(pid) - used) / spent
        requests = scene.load().since(load).requests * 60 / spent
    yield Measured("changed pods per second", changed / spent, None)
    yield Measured("forwarder: percent of a processor", percent, _PERCENT_GOAL)
    yield Measured("forwarder: requests a minute, begun watches among them", requests, _REQUESTS_GOAL)
    yield Measured("forwarder: resident MB", memory_megabytes(pid, "VmRSS"), _MEGABYTES_GOAL)
    yield Measured("forwarder: resident MB at most since its start", memory_megabytes(pid, "VmHWM"), _MEGABYTES_GOAL)


def memory_megabytes(pid: int, field: str) -> float:
    """A line of /proc/PID/status, which are in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024 / 1e6


@contextmanager
def _functions_off(scene: Scene) -> Iterator[None]:
    names = scene.functions()
    _switch(scene, names, on=False)
    try:
        yield
    finally:
        _switch(scene, names, on=True)


def _switch(scene: Scene, names: tuple[str, ...], *, on: bool) -> None:
    for name in names:
        scene.stack.control("POST", f"/_local/functions/{name}", {"enabled": on})


def _change_pods(scene: Scene, pods: int) -> int:
    """Pods turn unready and ready again, at a steady rate or as quickly as it goes; how many changes were made."""
    begun, total = time.monotonic(), int(CHANGES_PER_SECOND * SECONDS)

    def change(number: int) -> None:
        time.sleep(max(0.0, begun + number / CHANGES_PER_SECOND - time.monotonic()))
        ready = {"type": "Ready", "status": "True" if number // pods % 2 else "False"}
        path = f"{pod_path(number % pods)}/status"
        scene.api.patch(path, {"status": {"conditions": [ready]}}, kind="strategic-merge-patch+json")

    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(change, range(total)):
            pass
    return total
