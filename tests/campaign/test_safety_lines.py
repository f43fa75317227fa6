"""Does the campaign notice when a safety line is missing? Each is taken out, and an invariant must report it."""

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.campaign import runs, safety_lines
from tests.campaign.__main__ import main
from tests.campaign.invariants import disruption, purchases, rest, writes
from tests.campaign.invariants.invariant import Invariant
from tests.campaign.runs import run_campaign, shrink

# More than each of them takes, of one of these seeds.
STEPS = 10_000
SEEDS = (1, 10, 13, 15, 16, 2, 3, 4)


@pytest.mark.parametrize(
    ("missing", "noticed_by"),
    [
        (safety_lines.client_token_reused, purchases.NothingBoughtTwice),
        (safety_lines.nominations_counted, purchases.PodsPlannedOnce),
        (safety_lines.commit_conditional, writes.NothingOverwritten),
        (safety_lines.rows_conditional, writes.NothingOverwritten),
        (safety_lines.pods_evicted, disruption.PodsAreAsked),
        (safety_lines.drained_first, disruption.PodsAreAsked),
        (safety_lines.terminated_first, writes.InstancesEndFirst),
        (safety_lines.orphans_found, purchases.NoLeak),
        (safety_lines.surplus_terminated, purchases.SurplusEnds),
        (safety_lines.uid_stated, writes.UidsStated),
        (safety_lines.emptiness_seen_twice, disruption.BudgetsKept),
        (safety_lines.budgets_asked, disruption.BudgetsKept),
        (safety_lines.replacements_awaited, disruption.ReplacementsFirst),
        (safety_lines.timers_rung, rest.RowsEnd),
        (safety_lines.repair_limited, disruption.OnlySickRepaired),
    ],
    ids=lambda value: value.__name__ if value.__module__ == safety_lines.__name__ else "",
)
def test_a_missing_safety_line_is_noticed(
    missing: Callable[[], AbstractContextManager[None]], noticed_by: type[Invariant]
) -> None:
    with missing():
        failures = (run_campaign(seed=seed, steps=STEPS)[1] for seed in SEEDS)
        failure = next((found for found in failures if found is not None), None)
    assert failure is not None
    assert failure.result.violation is not None
    # A row whose time nobody sees stays open, and a pod or an empty node may wait for it.
    also = [rest.NoPodWaits.name, rest.NoEmptyNode.name] if missing is safety_lines.timers_rung else []
    assert failure.result.violation.invariant in [noticed_by.name, *also]


def test_a_failing_episode_is_shrunk_to_what_breaks_the_invariant() -> None:
    with safety_lines.emptiness_seen_twice():
        _, failure = run_campaign(seed=1, steps=STEPS)
        assert failure is not None
        shrunk, left_out = shrink(1, failure)
    assert failure.result.violation is not None
    assert shrunk.violation is not None
    assert shrunk.violation.invariant == failure.result.violation.invariant
    assert len(shrunk.happened) < len(failure.result.happened)
    assert not left_out & shrunk.happened.keys()


def test_the_command_that_is_printed_replays_the_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure at the last rest too: load and faults stop after the same step."""
    monkeypatch.setattr(runs, "SHRINKING_RUNS", 0)
    with safety_lines.timers_rung():
        assert main(["--seed", "1", "--steps", str(STEPS)]) == 1
        (first, command, *_) = _failure(capsys.readouterr().out)
        arguments = command.removeprefix('Replay: make campaign ARGS="').removesuffix('"')
        assert main(shlex.split(arguments)) == 1
    assert _failure(capsys.readouterr().out)[:2] == [first, command]


def _failure(printed: str) -> list[str]:
    """What did not hold, and the command."""
    held, _, rest = printed.partition("\nNot held: ")[2].partition("\nReplay: ")
    return [held, "Replay: " + rest.partition("\n")[0], rest]
