"""A packing problem over one offering index, and the packing that solves it."""

from collections.abc import Mapping, Sequence
from typing import Final

from spotwright.model import resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED, LabelState, UndeterminedLabels
from spotwright.scheduling.packing.bins import BinConstraints, Items
from spotwright.scheduling.packing.host_constraints import HostConstraint, HostState, fit_on_one_host

# What a node costs besides its instance: a root volume, and whatever is licensed or monitored per host. USD per hour.
PER_NODE_COST_PICOUSD_PER_HOUR: Final = 3 * PICOUSD // 1000


class PackedNodes:
    """``node_count`` equal nodes of one offering, with ``pod_counts`` pods per class on each of them."""

    __slots__ = ("node_count", "offering", "pod_counts")

    def __init__(self, offering: int, node_count: int, pod_counts: dict[int, int]) -> None:
        self.offering = offering
        self.node_count = node_count
        self.pod_counts = pod_counts


class RemainingLimits:
    """What NodePool limits and capacity reservations leave. ``by_template``: per template, only its limited resources;
    ``by_reservation``: instances by reservation.
    """

    __slots__ = ("by_reservation", "by_template")

    def __init__(self, by_template: Sequence[dict[str, int]], by_reservation: Mapping[str, int]) -> None:
        self.by_template = [dict(left) for left in by_template]
        self.by_reservation = dict(by_reservation)

    def copy(self) -> "RemainingLimits":
        return RemainingLimits(self.by_template, self.by_reservation)

    def max_nodes(self, offering_index: OfferingIndex, offering: int, wanted: int) -> int:
        """How many more nodes of an offering are allowed, up to ``wanted``."""
        pool_type = offering_index.pool_type_of[offering]
        for name, amount in self.by_template[pool_type.template_index].items():
            size = pool_type.counted(name)
            if size > 0:
                wanted = min(wanted, amount // size)
            elif amount < 0:
                wanted = 0
        if offering_index.reservation_ids[offering]:
            wanted = min(wanted, self.by_reservation.get(offering_index.reservation_ids[offering], 0))
        return max(wanted, 0)

    def allowed_offerings(self, offering_index: OfferingIndex) -> int:
        """Offerings of which at least one node is allowed."""
        allowed = 0
        for left, offerings in zip(self.by_template, offering_index.offerings_of_template, strict=True):
            allowed |= self._within_limits(offering_index, offerings, left) if left else offerings
        for offering in iterate_bits(allowed & offering_index.reserved_offerings):
            if not self.max_nodes(offering_index, offering, 1):
                allowed &= ~(1 << offering)
        return allowed

    @staticmethod
    def _within_limits(offering_index: OfferingIndex, offerings: int, left: Mapping[str, int]) -> int:
        """Those of a template's offerings that its limits allow, and all whose instance types are only reserved."""
        allowed = offerings
        for name, amount in left.items():
            if name != resources.NODES:
                allowed &= offering_index.by_capacity.up_to(name, amount)
            elif amount < 1:
                allowed = 0
        return allowed | offerings & offering_index.reserved_only_types

    def spend(self, offering_index: OfferingIndex, offering: int, node_count: int) -> None:
        pool_type = offering_index.pool_type_of[offering]
        left = self.by_template[pool_type.template_index]
        for name in left:
            left[name] -= node_count * pool_type.counted(name)
        if offering_index.reservation_ids[offering]:
            self.by_reservation[offering_index.reservation_ids[offering]] -= node_count


class Exchange:
    """Classes of equal pods that differ in the offerings open to them, and whose pods may pass from one to another.

    ``any_class``: a class without pods that stands for any of them, open to all their offerings; ``bounds``: by class,
    the fewest pods and the most that it may have.
    """

    __slots__ = ("any_class", "bounds")

    def __init__(self, any_class: int, bounds: Mapping[int, tuple[int, int]]) -> None:
        self.any_class = any_class
        self.bounds = bounds


class PackingProblem:
    """Classes of pods that may share nodes, and the offerings each class may use.

    ``label_bits``: by class, what its requirements leave of ``undetermined_labels``; ``host_constraints``: by class.
    """

    __slots__ = (
        "exchanges",
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
        offering_index: OfferingIndex,
        items: Items,
        offerings: Sequence[int],
        label_bits: Sequence[int],
        undetermined_labels: UndeterminedLabels,
        host_constraints: Sequence[HostConstraint | None],
        exchanges: Sequence[Exchange] = (),
    ) -> None:
        self.offering_index = offering_index
        self.items = items
        self.offerings = offerings
        self.label_bits = label_bits
        self.undetermined_labels = undetermined_labels
        self.host_constraints = host_constraints
        self.has_host_constraints = any(host_constraints)
        self.exchanges = tuple(exchanges)

    def bin_constraints(self, offering: int) -> BinConstraints | None:
        """What limits the pods of a new node of this offering besides its capacity."""
        label_state = (
            LabelState(self.undetermined_labels, self.label_bits, self.undetermined_labels.initial_bits(offering))
            if self.undetermined_labels
            else None
        )
        return HostState(self.host_constraints, label_state) if self.has_host_constraints else label_state


class Packing:
    """The new nodes, the pods per class that none of them holds, the limits left, and the units of work it took.

    ``is_cheapest``: proven that no nodes of any offerings hold these pods for less, limits aside.
    """

    __slots__ = ("is_cheapest", "limits", "nodes", "unpacked", "work_units")

    def __init__(self, nodes: list[PackedNodes], unpacked: list[int], limits: RemainingLimits, work_units: int) -> None:
        self.nodes = nodes
        self.unpacked = unpacked
        self.limits = limits
        self.work_units = work_units
        self.is_cheapest = False

    def cost(self, offering_index: OfferingIndex) -> int:
        return sum(
            (offering_index.prices[packed_nodes.offering] + PER_NODE_COST_PICOUSD_PER_HOUR) * packed_nodes.node_count
            for packed_nodes in self.nodes
        )


def candidate_offerings(
    problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, size_bound: int
) -> list[int]:
    """Offerings worth trying: within the limits, not dominated, and of at most ``size_bound`` millicores; a class that
    fits on none of these gets the smallest that hold it."""
    offering_index = problem.offering_index
    within_limits, candidates = limits.allowed_offerings(offering_index), 0
    by_millicores = offering_index.by_capacity.by_millicores
    for j, offerings in enumerate(problem.offerings):
        if counts[j]:
            fitting = offerings & within_limits & offering_index.by_capacity.with_room(problem.items.sizes[j])
            fitting = fitting & offering_index.general_purpose or fitting
            candidates |= fitting & offerings_up_to_size(by_millicores, size_bound) or fitting & offerings_up_to_size(
                by_millicores, smallest_size(by_millicores, fitting)
            )
    # When a NodePool reaches its limits, the other pools' offerings must still be there.
    limited = (
        offerings
        for left, offerings in zip(limits.by_template, offering_index.offerings_of_template, strict=True)
        if left
    )
    return undominated_offerings(
        offering_index,
        candidates,
        (*problem.offerings, *problem.undetermined_labels.equivalent_offerings(), *limited),
    )


def offerings_that_fit(problem: PackingProblem, pods: Mapping[int, int], allowed: int) -> int:
    """Offerings among ``allowed`` that hold so many pods of each class; general-purpose ones unless none is."""
    fitting = all_offerings_that_fit(problem, pods, allowed)
    return fitting & problem.offering_index.general_purpose or fitting


def all_offerings_that_fit(problem: PackingProblem, pods: Mapping[int, int], allowed: int) -> int:
    """Offerings among ``allowed`` that hold so many pods of each class."""
    offering_index = problem.offering_index
    used, label_bits = [0] * len(offering_index.dimensions), UNCONSTRAINED
    if problem.has_host_constraints and not fit_on_one_host(problem.host_constraints, pods):
        return 0
    for j, count in pods.items():
        allowed &= problem.offerings[j]
        label_bits &= problem.label_bits[j]
        for d, amount in problem.items.needs[j]:
            used[d] += amount * count
    fitting = problem.undetermined_labels.narrow(allowed & offering_index.by_capacity.with_room(used), label_bits)
    return offering_index.keep_min_values(fitting)


def undominated_offerings(offering_index: OfferingIndex, allowed: int, offering_sets: Sequence[int]) -> list[int]:
    """Offerings without a cheaper one that has at least their free capacity and is in each set that they are in."""
    kept = []
    distinct_sets = sorted(set(offering_sets))
    while allowed:
        offering = (allowed & -allowed).bit_length() - 1
        kept.append(offering)
        dominated = offering_index.by_capacity.dominated(offering_index.pool_type_of[offering].free_capacity)
        for offerings in distinct_sets:
            if not offerings >> offering & 1:
                dominated &= ~offerings
        allowed &= ~(dominated | 1 << offering)
    return kept


def offerings_up_to_size(by_millicores: Sequence[tuple[int, int]], size_bound: int) -> int:
    """Offerings of at most so many millicores."""
    offerings = 0
    for millicores, of_this_size in by_millicores:
        if millicores > size_bound:
            break
        offerings |= of_this_size
    return offerings


def size_bound_of(offering_index: OfferingIndex, packing: Packing, size_bound: int) -> int:
    """The bound, or the size of the largest node of the packing if that is larger, in millicores."""
    types = (offering_index.pool_type_of[packed_nodes.offering].instance_type for packed_nodes in packing.nodes)
    return max(size_bound, *(instance_type.capacity.get(resources.CPU, 0) for instance_type in types))


def smallest_size(by_millicores: Sequence[tuple[int, int]], offerings: int) -> int:
    """Millicores of the smallest of these offerings; 0 without any."""
    return next((millicores for millicores, of_this_size in by_millicores if of_this_size & offerings), 0)


def connected_classes(offerings: Sequence[int]) -> list[list[int]]:
    """Classes that share offerings, directly or through other classes; classes without any offering are left out."""
    components: list[tuple[int, list[int]]] = []
    for j, mask in enumerate(offerings):
        if not mask:
            continue
        separate, together = [], [j]
        for component, classes in components:
            if component & mask:
                mask |= component
                together += classes
            else:
                separate.append((component, classes))
        components = [*separate, (mask, together)]
    return sorted(sorted(classes) for _, classes in components)
