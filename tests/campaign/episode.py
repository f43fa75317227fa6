"""An episode: steps in a world of its own, and rests in between, at which everything must have come to an end.

A step is one event (of users, of EC2, a fault) or one invocation of a function. Each draws from its own random numbers,
so that leaving a step out changes nothing about what the others are.
"""

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Final

import msgspec

from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.pod import PodDisruptionBudget
from tests.campaign.faults import FAULTS
from tests.campaign.invariants import INVARIANTS
from tests.campaign.invariants.invariant import WITH_PODS, Invariant, Violation
from tests.campaign.invariants.rest import RowsAndMessagesBounded
from tests.campaign.limits import Limits
from tests.campaign.load import EVENTS
from tests.campaign.world import CampaignWorld

# Steps of load and faults between two rests.
STEPS_TO_REST: Final = 120
EVENT_SHARE: Final = 0.12
FAULT_SHARE: Final = 0.18
# How long a pod may wait for a node, a NodeClaim for its end, once faults and load have stopped.
REST_SECONDS: Final = 45 * 60
# So long nothing may be bought when everything is at rest.
QUIET_SECONDS: Final = 90
LOOK_SECONDS: Final = 5


class Result(msgspec.Struct, frozen=True):
    """What one episode or several did.

    ``steps``, ``seconds``: how many, in the cluster's time. ``events``, ``faults``: how often, by kind;
    ``invocations``: by function and end; ``checks``: by invariant; ``met``: of ``limits.MET``.
    ``longest_rest_seconds``: until everything had come to its end. ``violation``: the first, None = every invariant
    held; ``happened``: then the events and faults before it, by step.
    """

    steps: int = 0
    seconds: int = 0
    events: dict[str, int] = {}
    faults: dict[str, int] = {}
    invocations: dict[tuple[str, str], int] = {}
    checks: dict[str, int] = {}
    met: dict[str, int] = {}
    longest_rest_seconds: int = 0
    largest_row_bytes: int = 0
    most_messages: int = 0
    violation: Violation | None = None
    happened: dict[int, str] = {}


class Episode:
    """``seed``: of all random numbers; ``left_out``: steps whose event or fault does not happen."""

    def __init__(self, seed: str, *, left_out: Collection[int] = ()) -> None:
        self._seed, self._left_out = seed, frozenset(left_out)
        self.world = CampaignWorld()
        self.invariants: tuple[Invariant, ...] = tuple(kind(self.world) for kind in INVARIANTS)
        self._limits = Limits(self.world)
        self.world.calls.watchers.extend((*self.invariants, self._limits))
        self._first: Violation | None = None
        self._steps = 0
        self._events: Counter[str] = Counter()
        self._longest_rest = 0
        self._began = self.world.clock.milliseconds()
        self._happened: dict[int, str] = {}

    def run(self, steps: int) -> Result:
        """So many steps, with a rest at the end, or until an invariant does not hold."""
        since_rest = 0
        while self._steps < steps and self._violation() is None:
            self._step()
            since_rest += 1
            if self._violation() is not None:
                break
            if since_rest >= STEPS_TO_REST or self._steps >= steps:
                self._rest()
                since_rest = 0
        return self._result()

    # Steps

    def _step(self) -> None:
        self._steps += 1
        rng = Random(f"{self._seed}/{self._steps}")
        kind = rng.random()
        if kind < EVENT_SHARE:
            self._event(rng)
        elif kind < EVENT_SHARE + FAULT_SHARE:
            self._fault(rng)
        else:
            self._work(rng)
        self._after_step()

    def _event(self, rng: Random) -> None:
        event = rng.choices(list(EVENTS), list(EVENTS.values()))[0]
        if self._steps not in self._left_out and event(self.world, rng):
            name = event.__name__.replace("_", " ")
            self._events[name] += 1
            self._happened[self._steps] = name
        self.world.act_outside()

    def _fault(self, rng: Random) -> None:
        fault = rng.choices(FAULTS, [fault.weight for fault in FAULTS])[0]
        if self._steps not in self._left_out and fault.strike(self.world, rng):
            self._happened[self._steps] = f"fault: {fault.name}"

    def _work(self, rng: Random) -> None:
        """Time passes until a function is needed, and it is invoked."""
        self.world.pass_time(rng.choice((0, 0, 0, 1, 1, 3)))
        while not self.world.has_work():
            self.world.pass_time(1)
        self.world.invoke_next(rng)

    def _after_step(self) -> None:
        for invariant in self.invariants:
            invariant.after_step()
        self._violation()

    # Rest

    def _rest(self) -> None:
        """Load and faults stop. Everything comes to its end within a bound, and nothing is bought afterwards."""
        self._stop_faults()
        seconds = 0
        while seconds < REST_SECONDS and self._violation() is None:
            if self._is_settled():
                self._longest_rest = max(self._longest_rest, seconds)
                self._stay()
                return
            self._let_pass(LOOK_SECONDS)
            seconds += LOOK_SECONDS
        if self._violation() is None:
            self._fail_unsettled()

    def _stop_faults(self) -> None:
        """What users would have to see to: capacity, budgets and classes are as they should be.

        No node with pods goes by choice any more, so that nothing is bought for it.
        """
        world = self.world
        world.end_everything_that_lasts()
        world.outages.clear()
        for pool in world.cluster.all("nodepools"):
            world.cluster.update("nodepools", pool.name, budgets=(Budget("2"), Budget("0", reasons=WITH_PODS)))
        for budget in world.cluster.all("poddisruptionbudgets"):
            world.cluster.put("poddisruptionbudgets", _permissive(budget))

    def _is_settled(self) -> bool:
        """Nothing is on its way from outside, and every invariant is content."""
        if self.world.notices or self.world.ec2.is_stopping():
            return False
        return not any(True for invariant in self.invariants for _ in invariant.unsettled())

    def _let_pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.pass_time(1)
            while self.world.has_work() and self._violation() is None:
                self._steps += 1
                self.world.invoke_next(Random(f"{self._seed}/{self._steps}"))
                self._after_step()

    def _stay(self) -> None:
        """Every pod has a node that exists: nothing is bought."""
        bought = len(self.world.ec2.requests)
        self._let_pass(QUIET_SECONDS)
        if len(self.world.ec2.requests) > bought and self._violation() is None:
            self.invariants[0].fail("instances were bought while no pod waited")

    def _fail_unsettled(self) -> None:
        for invariant in self.invariants:
            problems = list(invariant.unsettled())
            if problems:
                invariant.fail(f"{REST_SECONDS} s after the last fault: {'; '.join(problems[:3])}")

    # Results

    def _violation(self) -> Violation | None:
        """The first, also when others followed it."""
        if self._first is None:
            violations = (violation for invariant in self.invariants for violation in invariant.violations)
            self._first = next(violations, None)
        return self._first

    def _result(self) -> Result:
        (bounded,) = (invariant for invariant in self.invariants if isinstance(invariant, RowsAndMessagesBounded))
        return Result(
            steps=self._steps,
            seconds=(self.world.clock.milliseconds() - self._began) // 1000,
            events=self._events,
            faults=self.world.struck,
            invocations=self.world.invocations,
            checks={invariant.name: invariant.checked for invariant in self.invariants},
            longest_rest_seconds=self._longest_rest,
            met=self.world.met,
            largest_row_bytes=self._limits.largest_row_bytes,
            most_messages=bounded.most_messages,
            violation=self._violation(),
            happened=self._happened,
        )


def _permissive(budget: PodDisruptionBudget) -> PodDisruptionBudget:
    return msgspec.structs.replace(budget, min_available=None, max_unavailable=1)
