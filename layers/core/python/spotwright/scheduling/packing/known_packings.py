"""Packings that an earlier attempt at the same plan found: within limits, attempts often begin with the same pods."""

from collections.abc import Sequence

from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.problem import Packing, PackingProblem, RemainingLimits
from spotwright.scheduling.packing.search import find_cheapest_packing


class KnownPackings:
    """Packings within limits of one plan. A packing that is known counts the units of work that finding it took, so
    that plans are the same as without it.
    """

    def __init__(self) -> None:
        # Each problem keeps its offering index, so that the id of the index stays its own.
        self._known: dict[object, tuple[PackingProblem, Packing]] = {}

    def find_cheapest(
        self, problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, budget: int
    ) -> Packing:
        """What ``find_cheapest_packing`` finds."""
        if not any(limits.by_template) or problem.undetermined_labels:
            return find_cheapest_packing(problem, counts, limits, budget)
        key = _key(problem, counts, limits, budget)
        if key not in self._known:
            self._known[key] = problem, find_cheapest_packing(problem, counts, limits, budget)
        return _copy(self._known[key][1])


def _key(problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, budget: int) -> object:
    """All that decides which packing is found. A budget that is used up allows no less than one that is exceeded."""
    return (
        id(problem.offering_index),
        tuple(problem.items.sizes),
        tuple(problem.offerings),
        tuple(problem.label_bits),
        tuple(map(_constraint_key, problem.host_constraints)),
        tuple([(exchange.any_class, tuple(exchange.bounds.items())) for exchange in problem.exchanges]),
        tuple(counts),
        tuple([tuple(left.items()) for left in limits.by_template]),
        tuple(limits.by_reservation.items()),
        max(budget, 0),
    )


def _constraint_key(constraint: HostConstraint | None) -> object:
    return constraint and (
        constraint.selecting_terms,
        constraint.term_caps,
        constraint.avoided_terms,
        constraint.host_ports,
    )


def _copy(packing: Packing) -> Packing:
    """With nodes and limits of its own."""
    copied = Packing(list(packing.nodes), list(packing.unpacked), packing.limits.copy(), packing.work_units)
    copied.is_cheapest = packing.is_cheapest
    return copied
