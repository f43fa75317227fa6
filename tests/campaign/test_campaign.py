"""The campaign of every run of the tests: with its seed every kind of fault strikes, and every invariant holds."""

from tests.campaign.faults import FAULTS
from tests.campaign.invariants import INVARIANTS
from tests.campaign.limits import MET
from tests.campaign.load import EVENTS
from tests.campaign.report import report
from tests.campaign.runs import run_campaign, run_episode

SEED = 7
STEPS = 20_000


def test_faults_break_no_invariant() -> None:
    result, failure = run_campaign(seed=SEED, steps=STEPS)
    assert failure is None, (
        f'make campaign ARGS="--seed {SEED} --episode {failure.episode} --steps {failure.steps}":'
        f" {failure.result.violation}"
    )
    print(report(result))
    assert result.steps >= STEPS
    assert {fault.name for fault in FAULTS} == {name for name, count in result.faults.items() if count}
    assert {event.__name__.replace("_", " ") for event in EVENTS} == set(result.events)
    assert set(MET) == {name for name, count in result.met.items() if count}
    assert {invariant.name for invariant in INVARIANTS} == {name for name, count in result.checks.items() if count}


def test_an_episode_is_the_same_each_time() -> None:
    assert run_episode(7, 3, 150) == run_episode(7, 3, 150)
    assert run_episode(7, 3, 150) != run_episode(7, 4, 150)
