"""The outside solver: the cheapest nodes of problems whose answer is known, under every rule that the bursts have."""

from pathlib import Path

import pytest

from bench.optimum.model import NODE_DOLLARS, PodKind, Problem, Shape, read
from bench.optimum.solver import find_optimum
from bench.planner import problems
from bench.planner.workloads import ZONES

SECONDS = 20.0
THREE, SEVEN = ("three", 0.29, (3000, 6000, 20), False), ("seven", 0.66, (7000, 14_000, 20), True)


def kind(millicores: int = 1000, **rules: str | int) -> PodKind:
    stated: dict[str, str | int] = {"zone": "", "is_spread": 0, "per_host": 0, "needs_new": 0, "app": ""}
    stated |= rules
    return PodKind(
        millicores,
        1000,
        str(stated["zone"]),
        bool(stated["is_spread"]),
        int(stated["per_host"]),
        bool(stated["needs_new"]),
        str(stated["app"]),
    )


def cheapest(pods: dict[PodKind, int]) -> float:
    shapes = [Shape(name, zone, price, room, is_new) for name, price, room, is_new in (THREE, SEVEN) for zone in ZONES]
    optimum = find_optimum(Problem(pods, shapes), 100.0, SECONDS)
    assert optimum.is_proved
    return round(optimum.cost, 6)


@pytest.mark.parametrize(
    ("pods", "threes", "sevens"),
    [
        ({kind(): 16}, 3, 1),
        ({kind(2000): 3}, 0, 1),
        ({kind(per_host=1, app="a"): 3}, 3, 0),
        ({kind(is_spread=1, app="a"): 3}, 3, 0),
        ({kind(zone=ZONES[0]): 2, kind(zone=ZONES[1]): 2}, 2, 0),
        ({kind(needs_new=1): 1, kind(): 2}, 0, 1),
    ],
)
def test_the_cheapest_nodes_are_found_and_proved(pods: dict[PodKind, int], threes: int, sevens: int) -> None:
    expected = threes * (THREE[1] + NODE_DOLLARS) + sevens * (SEVEN[1] + NODE_DOLLARS)
    assert cheapest(pods) == pytest.approx(expected)


def test_a_burst_is_read_with_all_of_its_pods(tmp_path: Path) -> None:
    problem = read(problems.burst(tmp_path, "mixed", 30, 0))
    assert sum(problem.pods.values()) == 30
    assert {shape.zone for shape in problem.shapes} == set(ZONES)
