"""Both planners on one problem, each in a fresh process that solved a small problem before."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from local.kubernetes.binaries import cache_folder
from local.kubernetes.toolchain import go_environment

#: The Go module that fixes Karpenter's version.
KARPENTER_MODULE: Final = Path(__file__).parent / "karpenter"
# The controller's own deadline for one batch.
DEADLINE_SECONDS: Final = 60
_PATIENCE_SECONDS: Final = 1800


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """One decision. ``seconds`` by the clock, ``cpu_seconds`` of all its threads; ``price`` in USD per hour.

    ``bound``: no plan for these pods is cheaper; 0 where the planner does not say.
    """

    seconds: float
    cpu_seconds: float
    price: float
    nodes: int
    placed: int
    small_placed: int
    pods: int
    peak_mb: int = msgspec.field(name="peakMB")
    bound: float = 0.0


def build_karpenter(report: Callable[[str], None]) -> Path:
    """The Go program with Karpenter's scheduler in it; raises CalledProcessError."""
    report("building Karpenter's scheduler, a few minutes the first time")
    return build_go(".", "bench-karpenter", report)


def build_go(package: str, name: str, report: Callable[[str], None]) -> Path:
    """A program of the module, or of a module that it requires; raises CalledProcessError."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    binary = cache / name
    command = ["go", "build", "-o", str(binary), package]
    subprocess.run(command, cwd=KARPENTER_MODULE, env=dict(go_environment(cache, report)), check=True)
    return binary


def run_karpenter(binary: Path, problem: Path, warm: Path, *, limit: int = 0) -> Outcome:
    command = [str(binary), "-problem", str(problem), "-warm", str(warm), "-limit", f"{limit}s"]
    return _outcome(command, dict(os.environ))


def run_spotwright(problem: Path, warm: Path) -> Outcome:
    return _outcome([sys.executable, "-m", "bench.planner.spotwright_run", str(problem), str(warm)], dict(os.environ))


def _outcome(command: list[str], environment: dict[str, str]) -> Outcome:
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=_PATIENCE_SECONDS
    )
    return msgspec.convert(json.loads(done.stdout), Outcome)
