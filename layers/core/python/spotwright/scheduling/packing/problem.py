"""A packing problem over one market, and what an answer to it looks like."""

from collections.abc import Mapping, Sequence
from typing import Final

from spotwright.model import resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED, LabelState, UndeterminedLabels
from spotwright.scheduling.packing.bins import BinConstraints, Items
from spotwright.scheduling.packing.host_constraints import HostConstraint, HostState, fit_on_one_host

# What a node costs beside its instance: a root volume and what is licensed or watched per host. USD per hour.
PER_NODE_COST_PICOUSD_PER_HOUR: Final = 3 * PICOUSD // 1000


class PackedNodes:
    """``node_count`` equal nodes: a choice of the market, and pods per class on each of them."""

    __slots__ = ("node_count", "offering", "pod_counts")

    def __init__(self, choice: int, copies: int, pods: dict[int, int]) -> None:
        self.offering = choice
        self.node_count = copies
        self.pod_counts = pods


class RemainingLimits:
    """What limits and reservations leave. ``by_template``: per template, only its limited resources;
    ``by_reservation``: instances by reservation.
    """

    __slots__ = ("by_reservation", "by_template")

    def __init__(self, left: Sequence[dict[str, int]], reserved: Mapping[str, int]) -> None:
        self.by_template = [dict(one) for one in left]
        self.by_reservation = dict(reserved)

    def copy(self) -> "RemainingLimits":
        return RemainingLimits(self.by_template, self.by_reservation)

    def max_nodes(self, market: OfferingIndex, choice: int, wanted: int) -> int:
        """How many nodes of a choice are still allowed, up to ``wanted``."""
        goods = market.pool_type_of[choice]
        for name, amount in self.by_template[goods.template_index].items():
            size = 1 if name == resources.NODES else goods.instance_type.capacity.get(name, 0)
            if size > 0:
                wanted = min(wanted, amount // size)
            elif amount < 0:
                wanted = 0
        if market.reservation_ids[choice]:
            wanted = min(wanted, self.by_reservation.get(market.reservation_ids[choice], 0))
        return max(wanted, 0)

    def allowed_offerings(self, market: OfferingIndex) -> int:
        """Choices of which at least one node is allowed."""
        mask = 0
        for left, ours in zip(self.by_template, market.offerings_of_template, strict=True):
            mask |= ours if not left else self._open_of(market, ours, left)
        for choice in iterate_bits(mask & market.reserved_offerings):
            if not self.max_nodes(market, choice, 1):
                mask &= ~(1 << choice)
        return mask

    @staticmethod
    def _open_of(market: OfferingIndex, ours: int, left: Mapping[str, int]) -> int:
        """Choices of one pool within its limits, reservations aside."""
        mask = ours
        for name, amount in left.items():
            if name != resources.NODES:
                mask &= market.by_capacity.up_to(name, amount)
            elif amount < 1:
                mask = 0
        return mask | ours & market.reserved_only_types

    def spend(self, market: OfferingIndex, choice: int, copies: int) -> None:
        goods = market.pool_type_of[choice]
        left = self.by_template[goods.template_index]
        for name in left:
            left[name] -= copies * (1 if name == resources.NODES else goods.instance_type.capacity.get(name, 0))
        if market.reservation_ids[choice]:
            self.by_reservation[market.reservation_ids[choice]] -= copies


class PackingProblem:
    """Classes that may share nodes, and the choices open to each.

    ``label_bits``: see ``openkeys``; ``host_constraints``: rules between pods of one node.
    """

    __slots__ = (
        "has_host_constraints",
        "host_constraints",
        "items",
        "label_bits",
        "offering_index",
        "offerings",
        "undetermined_labels",
    )

    def __init__(
        self,
        market: OfferingIndex,
        items: Items,
        masks: Sequence[int],
        fields: Sequence[int],
        keys: UndeterminedLabels,
        bonds: Sequence[HostConstraint | None],
    ) -> None:
        self.offering_index = market
        self.items = items
        self.offerings = masks
        self.label_bits = fields
        self.undetermined_labels = keys
        self.host_constraints = bonds
        self.has_host_constraints = any(bonds)

    def subproblem(self, numbers: Sequence[int]) -> "PackingProblem":
        """The problem of these classes alone, renumbered in this order."""
        return PackingProblem(
            self.offering_index,
            Items([self.items.sizes[j] for j in numbers]),
            [self.offerings[j] for j in numbers],
            [self.label_bits[j] for j in numbers],
            self.undetermined_labels,
            [self.host_constraints[j] for j in numbers],
        )

    def bin_constraints(self, choice: int) -> BinConstraints | None:
        """What a new node of a choice must heed while it is filled."""
        company = (
            LabelState(self.undetermined_labels, self.label_bits, self.undetermined_labels.initial_bits(choice))
            if self.undetermined_labels
            else None
        )
        return HostState(self.host_constraints, company) if self.has_host_constraints else company


class Packing:
    """Nodes to make, the pods per class that are left over, and the work it took."""

    __slots__ = ("limits", "nodes", "unpacked", "work_units")

    def __init__(self, batches: list[PackedNodes], left: list[int], allowance: RemainingLimits, units: int) -> None:
        self.nodes = batches
        self.unpacked = left
        self.limits = allowance
        self.work_units = units

    def cost(self, market: OfferingIndex) -> int:
        return sum(
            (market.prices[packed_nodes.offering] + PER_NODE_COST_PICOUSD_PER_HOUR) * packed_nodes.node_count
            for packed_nodes in self.nodes
        )


def candidate_offerings(
    problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits, size: int
) -> list[int]:
    """Choices worth trying: open, within ``size`` millicores where that is possible, and not dominated."""
    market, allowed, left = problem.offering_index, 0, allowance.allowed_offerings(problem.offering_index)
    for j, mask in enumerate(problem.offerings):
        if counts[j]:
            fitting = mask & left & market.by_capacity.with_room(problem.items.sizes[j])
            fitting = fitting & market.general_purpose or fitting
            bounded = fitting & offerings_up_to_size(market.by_capacity.by_millicores, size)
            allowed |= bounded or fitting & offerings_up_to_size(
                market.by_capacity.by_millicores, _smallest(market.by_capacity.by_millicores, fitting)
            )
    # When a pool with limits is full, another pool's choices must still be there.
    limited = (
        mask for left_of, mask in zip(allowance.by_template, market.offerings_of_template, strict=True) if left_of
    )
    return undominated_offerings(
        market, allowed, (*problem.offerings, *problem.undetermined_labels.equivalent_offerings(), *limited)
    )


def offerings_that_fit(problem: PackingProblem, pods: Mapping[int, int], allowed: int) -> int:
    """Choices among ``allowed`` that hold so many pods of each class, plain ones unless none is."""
    used, asked = [0] * len(problem.offering_index.dimensions), UNCONSTRAINED
    if problem.has_host_constraints and not fit_on_one_host(problem.host_constraints, pods):
        return 0
    for j, count in pods.items():
        allowed &= problem.offerings[j]
        asked &= problem.label_bits[j]
        for d, amount in problem.items.needs[j]:
            used[d] += amount * count
    mask = problem.undetermined_labels.narrow(allowed & problem.offering_index.by_capacity.with_room(used), asked)
    mask = problem.offering_index.keep_min_values(mask)
    return mask & problem.offering_index.general_purpose or mask


def undominated_offerings(market: OfferingIndex, allowed: int, masks: Sequence[int]) -> list[int]:
    """Choices that no cheaper one replaces for every class: with as much room, and open to all it is open to."""
    kept = []
    distinct = sorted(set(masks))
    while allowed:
        choice = (allowed & -allowed).bit_length() - 1
        kept.append(choice)
        replaced = market.by_capacity.dominated(market.pool_type_of[choice].free_capacity)
        for mask in distinct:
            if not mask >> choice & 1:
                replaced &= ~mask
        allowed &= ~(replaced | 1 << choice)
    return kept


def offerings_up_to_size(ranks: Sequence[tuple[int, int]], size: int) -> int:
    """Choices of at most so many millicores."""
    mask = 0
    for cores, choices in ranks:
        if cores > size:
            break
        mask |= choices
    return mask


def _smallest(ranks: Sequence[tuple[int, int]], mask: int) -> int:
    return next((cores for cores, choices in ranks if choices & mask), 0)
