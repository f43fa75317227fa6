"""A command with many candidates: side by side, and no longer than there is time."""

from collections.abc import Iterable
from threading import Barrier
from typing import Any

import pytest

from spotwright.errors import OutOfTime, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import Budget
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.lifecycle import commands
from spotwright.workflows.ports.rows import CommandRow

ONE_EACH = builders.pod("inflate", cpu_millicores=1800)
NODES = 20


@pytest.fixture(autouse=True)
def emptied(world: World) -> None:
    """Nodes that lost their pods a moment ago, and may go together."""
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    world.deploy(ONE_EACH, NODES)
    assert world.run(120, until=lambda: len(world.running_pods()) == NODES)
    world.deploy(ONE_EACH, 0)


def rows(world: World) -> list[CommandRow]:
    return [row for row in world.state.rows.values() if isinstance(row, CommandRow)]


def failed_steps(records: Iterable[Any]) -> list[str]:
    return [vars(record)["kind"] for record in records if record.message == log_lines.STEP_FAILED.message]


@pytest.mark.side_by_side
@pytest.mark.parametrize("action", ["set_taints", "delete"])
def test_a_candidate_does_not_wait_for_the_others(world: World, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    together, usual = Barrier(commands.CANDIDATES_AT_ONCE, timeout=60), getattr(world.cluster, action)

    def wait_for_others(about: Any, *arguments: Any, **more: Any) -> Any:
        if about == "nodeclaims" or (action == "set_taints" and labels.DISRUPTED in str(arguments)):
            together.wait()
        return usual(about, *arguments, **more)

    monkeypatch.setattr(world.cluster, action, wait_for_others)
    assert world.run(200, until=lambda: {row.phase for row in rows(world)} == {"done"})
    assert not together.broken
    assert len(rows(world)) == 1
    assert sorted(rows(world)[0].candidates) == list(rows(world)[0].candidates), "in the order of the decision"


@pytest.mark.side_by_side
@pytest.mark.parametrize("action", ["set_taints", "delete"])
def test_where_time_runs_out_no_further_candidate_is_begun(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """And it is said once, not for each; the next invocation goes on."""
    usual, begun = getattr(world.cluster, action), list[object]()

    def end_soon(about: Any, *arguments: Any, **more: Any) -> Any:
        if about == "nodeclaims" or (action == "set_taints" and labels.DISRUPTED in str(arguments)):
            begun.append(about)
            if 3 <= len(begun) <= NODES:
                raise OutOfTime("the invocation ends soon", code="OutOfTime")
        return usual(about, *arguments, **more)

    monkeypatch.setattr(world.cluster, action, end_soon)
    assert world.run(120, until=lambda: len(begun) > 2)
    assert len(begun) <= 2 + commands.CANDIDATES_AT_ONCE
    assert failed_steps(caplog.records) == ["command"]
    begun += [None] * NODES
    assert world.run(200, until=lambda: not world.claims())


def test_a_candidate_that_cannot_be_deleted_does_not_keep_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.effects.inject(Fault("cluster", "delete", Unavailable("no answer")))
    assert world.run(200, until=lambda: {row.phase for row in rows(world)} == {"done"})
    assert sorted(set(failed_steps(caplog.records))) == ["command", "nodeclaim"]
    assert world.run(60, until=lambda: not world.claims())
