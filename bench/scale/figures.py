"""What is measured at each size, and how it compares with what was asked for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

FROM_STATE: Final = "state"
FROM_LISTS: Final = "lists"
WAYS: Final = (FROM_STATE, FROM_LISTS)
_MEGABYTES: Final = {FROM_STATE: 512, FROM_LISTS: 1024}
# Beside up to so many pods.
_SECONDS_FROM_STATE: Final = ((1_000, 0.5), (10_000, 1.0), (50_000, 3.0))
_SECONDS_FROM_LISTS: Final = 10.0


@dataclass(frozen=True)
class Launch:
    """One pending pod's way to its CreateFleet. ``processor_seconds``, ``megabytes``: of `provision`, at most."""

    seconds: float
    processor_seconds: float
    megabytes: int
    requests: int
    read_bytes: int


@dataclass(frozen=True)
class Figure:
    """Several launches beside the same nodes and pods; ``way``: what the planner read."""

    nodes: int
    pods: int
    way: str
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class Measured:
    """A single figure; ``goal``: at most so much, None where nothing was asked for."""

    what: str
    figure: float
    goal: float | None


def seconds_goal(way: str, pods: int) -> float:
    """Seconds to CreateFleet, beyond the batching window, beside so many pods."""
    if way == FROM_LISTS:
        return _SECONDS_FROM_LISTS
    reached = [seconds for size, seconds in _SECONDS_FROM_STATE if pods <= size]
    return reached[0] if reached else _SECONDS_FROM_STATE[-1][1]


def megabytes_goal(way: str) -> int:
    return _MEGABYTES[way]


def table(figures: Iterable[Figure]) -> Iterator[str]:
    """Markdown, a row for each figure as it comes."""
    heads = (
        "nodes", "pods", "planned from", "seconds: median (slowest)", "goal", "ratio", "provision: processor seconds",
        "provision: peak MB", "goal", "ratio", "requests", "MB read",
    )  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for figure in figures:
        yield f"| {' | '.join(_cells(figure))} |"


def measured_table(rows: Iterable[tuple[int, int, Measured]]) -> Iterator[str]:
    """Markdown, a row for each figure beside so many nodes and pods, as it comes."""
    yield "| nodes | pods | what | figure | goal |"
    yield "|---|---|---|---|---|"
    for nodes, pods, measured in rows:
        goal = "" if measured.goal is None else f"{measured.goal:g}"
        yield f"| {nodes:,} | {pods:,} | {measured.what} | {measured.figure:.4g} | {goal} |"


def _cells(figure: Figure) -> tuple[str, ...]:
    seconds = [launch.seconds for launch in figure.launches]
    middle, goal = median(seconds), seconds_goal(figure.way, figure.pods)
    peak, most = max(launch.megabytes for launch in figure.launches), megabytes_goal(figure.way)
    used = median(launch.processor_seconds for launch in figure.launches)
    requests = median(launch.requests for launch in figure.launches)
    read = median(launch.read_bytes for launch in figure.launches)
    return (
        f"{figure.nodes:,}", f"{figure.pods:,}", figure.way,
        f"{middle:.2f} ({max(seconds):.2f})", f"{goal:g}", f"{middle / goal:.2f}", f"{used:.2f}",
        f"{peak}", f"{most}", f"{peak / most:.2f}", f"{requests:.0f}", f"{read / 1e6:.2f}",
    )  # fmt: skip
