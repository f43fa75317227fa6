"""Faults in virtual time, by the seed: does every invariant hold?

    python -m tests.campaign --seed 1 --steps 20000
    python -m tests.campaign --seed 1 --episode 17 --steps 480                  # one episode of that campaign
    python -m tests.campaign --seed 1 --episode 17 --steps 480 --leave-out 3,9  # without what happens at these steps

Exit status 1 when an invariant did not hold: the episode is shrunk, and the command that replays it is printed.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.campaign.episode import Result
from tests.campaign.report import report
from tests.campaign.runs import Failure, run_campaign, run_episode, shrink


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    if options.episode:
        result = run_episode(options.seed, options.episode, options.steps, left_out=options.leave_out)
        failure = None if result.violation is None else Failure(options.episode, options.steps, result)
    else:
        result, failure = run_campaign(seed=options.seed, steps=options.steps, tell=_tell)
    print(report(result))
    print(f"\n{time.monotonic() - began:.0f} s")
    if failure is None:
        return 0
    _print_failure(options.seed, failure, is_replay=bool(options.leave_out))
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000, help="of all episodes together, or of the one named")
    parser.add_argument("--episode", type=int, default=0, help="only this one")
    parser.add_argument("--leave-out", type=_steps, default=frozenset(), help="steps without their event or fault")
    return parser


def _steps(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)


def _tell(episode: int, result: Result) -> None:
    if sys.stderr.isatty():
        print(f"episode {episode}: {result.steps} steps", file=sys.stderr)


def _print_failure(seed: int, failure: Failure, *, is_replay: bool) -> None:
    violation = failure.result.violation
    assert violation is not None
    print(f"\nNot held: {violation.invariant}\n  {violation.details}")
    print(f"Replay: {_command(seed, failure, frozenset())}")
    shrunk, left_out = (failure.result, frozenset[int]()) if is_replay else shrink(seed, failure)
    if left_out:
        print(f"With fewer faults: {_command(seed, failure, left_out)}")
    print("What happened:")
    for step, name in sorted(shrunk.happened.items()):
        print(f"  {step:>5}  {name}")
    if shrunk.violation is not None:
        print(f"  {shrunk.steps:>5}  {shrunk.violation.details}")


def _command(seed: int, failure: Failure, left_out: frozenset[int]) -> str:
    """Of as many steps as the episode was to have: after its last one load and faults rest."""
    steps = ",".join(str(step) for step in sorted(left_out))
    arguments = f"--seed {seed} --episode {failure.episode} --steps {failure.steps}"
    arguments += f" --leave-out {steps}" if steps else ""
    return f'make campaign ARGS="{arguments}"'


if __name__ == "__main__":
    sys.exit(main())
