"""Which candidates of consolidation go together: sets of them are tried, and the set that is worth most is kept.

First the candidates up to some length of their order, the longest first, then lengths between those that were best; but
where half of many candidates is worth about half, each of them adds its part, and no other length is tried. Then
candidates that were left out, one by one. Of few candidates each is also tried alone, in the order in which Karpenter
would take them, and left out of the best set again, so that nothing is left that a single command of Karpenter's finds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.disruption import simulation
from spotwright.disruption.candidates import Candidate
from spotwright.disruption.consolidation_moves import Move, accept
from spotwright.disruption.prices import Prices
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan

# Units of work of the planner in a trial; what is proposed is planned with all of them.
TRIAL_WORK_UNITS: Final = 5_000
# Candidates that are tried one by one in an evaluation; in the next one others.
MAXIMUM_SINGLE: Final = 20
# Trials in an evaluation: each plans beside all nodes, so that there are fewer in large clusters.
TRIALS_OF_NODES: Final = 2_500
LEAST_TRIALS: Final = 6
# Of many candidates: so many lengths in a row that are worth less than a longer one end the halving.
MAXIMUM_WORSE: Final = 2
# Where half of many candidates is worth at most this share of all, each adds its part, and no other length is tried.
ADDS_UP: Final = Fraction(2, 3)
# Lengths tried between those that were best.
MAXIMUM_BETWEEN: Final = 4


class Search:
    """``refused``: why a candidate was left out last."""

    def __init__(
        self, snapshot: Snapshot, plan: Plan, catalog: Catalog, prices: Prices, has_time: Callable[[], bool]
    ) -> None:
        units = min(TRIAL_WORK_UNITS, snapshot.settings.work_units)
        settings = msgspec.structs.replace(snapshot.settings, work_units=units)
        self._snapshot = msgspec.structs.replace(snapshot, settings=settings)
        self._settled = simulation.close_idle_nodes(simulation.settle(self._snapshot, plan))
        self._catalog = catalog
        self._prices = prices
        self._has_time = has_time
        self._most_trials = max(LEAST_TRIALS, TRIALS_OF_NODES // max(1, len(snapshot.nodes)))
        self._tried: dict[frozenset[str], Fraction] = {}
        self._best = frozenset[str]()
        self._value = Fraction(0)
        self.refused: dict[str, str] = {}

    def run(self, orders: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """The candidates that go, all of one of these orders."""
        for ordered in orders:
            self._try_lengths(ordered)
        known = {candidate.name: candidate for ordered in orders for candidate in ordered}
        candidates = next(
            (ordered for ordered in orders if self._best <= {candidate.name for candidate in ordered}), ()
        )
        if len(candidates) <= MAXIMUM_SINGLE:
            self._try_lengths(sorted(candidates, key=lambda found: (found.disruption_cost, found.name)))
            for candidate in candidates:
                self._consider([candidate])
        for candidate in self._some(candidates):
            changed = self._best ^ {candidate.name}
            self._consider([found for found in candidates if found.name in changed])
        return [known[name] for name in sorted(self._best)]

    def _try_lengths(self, ordered: Sequence[Candidate]) -> None:
        best = worse = 0
        for length in _halves(len(ordered)):
            if self._consider(ordered[:length]):
                best, worse = length, 0
            elif self._best and len(ordered) > MAXIMUM_SINGLE:
                worse += 1
            if worse == MAXIMUM_WORSE:
                break
            if length == len(ordered) // 2 and self._adds_up(ordered):
                return
        below, above = best // 2, min(2 * best, len(ordered))
        for _ in range(MAXIMUM_BETWEEN // 2):
            for length in ((below + best) // 2, (best + above + 1) // 2):
                if self._consider(ordered[:length]):
                    below, best, above = (below, length, best) if length < best else (best, length, above)
                    break
            else:
                below, above = (below + best) // 2, (best + above + 1) // 2

    def _adds_up(self, ordered: Sequence[Candidate]) -> bool:
        whole, half = (self._tried.get(_named(ordered[:length])) for length in (len(ordered), len(ordered) // 2))
        if whole is None or half is None or len(ordered) <= MAXIMUM_SINGLE:
            return False
        return half <= ADDS_UP * whole

    def _some(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that are tried one by one: few candidates all, of many some that were left out."""
        if len(candidates) <= MAXIMUM_SINGLE:
            return list(candidates)
        left = simulation.without(candidates, self._best)
        first = int(self._snapshot.now.timestamp()) // 60 * MAXIMUM_SINGLE % max(1, len(left))
        return [*left[first:], *left[:first]][:MAXIMUM_SINGLE]

    def _consider(self, candidates: Sequence[Candidate]) -> bool:
        """Whether these candidates, or some of them, are worth more than the best so far."""
        names = _named(candidates)
        if not names or names in self._tried or len(self._tried) >= self._most_trials or not self._has_time():
            return False
        moves = self._find_moves(candidates)
        value = sum((move.value_picousd for move in moves), start=Fraction(0))
        self._tried[names] = value
        if value <= self._value:
            return False
        self._best, self._value = _names(moves), value
        return True

    def _find_moves(self, candidates: Sequence[Candidate]) -> list[Move]:
        """The moves of these candidates; those whose pods have no place are left out, and the others tried again."""
        trial = simulation.simulate(self._settled, candidates, self._catalog)
        if trial.failures and len(trial.failures) < len(candidates):
            self.refused |= trial.failures
            trial = simulation.simulate(
                self._settled, simulation.without(candidates, trial.failures.keys()), self._catalog
            )
        moves, refused = accept(trial, self._snapshot, self._prices)
        self.refused |= refused
        return moves


def _named(candidates: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(candidate.name for candidate in candidates)


def _names(moves: Iterable[Move]) -> frozenset[str]:
    return frozenset(name for move in moves for name in move.candidates)


def _halves(count: int) -> Iterator[int]:
    while count:
        yield count
        count //= 2
