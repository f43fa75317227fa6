"""NodePools of one weight: what they can launch for a pod, and what their limits leave."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.kubernetes.taints import untolerated_taints
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.offerings.counted_capacity import Bundle, build_bundles
from spotwright.scheduling.offerings.limit_prices import LimitPrices, add_limit_prices
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolTypeKey
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.known_packings import KnownPackings
from spotwright.scheduling.packing.problem import RemainingLimits, offerings_up_to_size
from spotwright.scheduling.packing.search import NODE_SIZE_BOUNDS_MILLICORES

# For so many states of the limits a weight group remembers which offerings they allow.
_REMEMBERED_LIMIT_STATES: Final = 1000


class LimitPolicy(msgspec.Struct, frozen=True):
    """How an attempt treats the limits of NodePools.

    ``enforced``: False plans as if there were none; ``prices``: what is added to prices for what counts against a
    limit, None where types count as they are, without the others that minValues need beside them; ``withheld``: by
    NodePool, what its limits leave less than they do; ``respects_preferences``: False where pods give up all of their
    preferences; ``reserved_first``: False where what is reserved is taken as anything else is, at the price of limits.
    """

    enforced: bool = True
    respects_preferences: bool = True
    prices: LimitPrices | None = None
    withheld: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    reserved_first: bool = True

    def remaining(self, template: NodeClaimTemplate, usage: Mapping[str, int]) -> dict[str, int]:
        """What a NodePool's limits leave to this attempt: only its limited resources."""
        if not self.enforced:
            return {}
        pool = template.nodepool
        withheld = self.withheld.get(pool.name, {})
        return {name: limit - usage.get(name, 0) - withheld.get(name, 0) for name, limit in pool.limits.items()}


ENFORCED: Final = LimitPolicy()
IGNORED: Final = LimitPolicy(enforced=False)


class WeightGroup:
    """NodePools of one weight. Among them only the price decides.

    ``requirements``: all that pods may ask for, and labels that rules between pods look at with the values these know:
    what undetermined labels must tell apart. ``reserved``: instances left by capacity reservation, shared by all
    weight groups. ``known_packings``: of all attempts at one plan. ``reserved_first``: see ``LimitPolicy``.
    """

    def __init__(
        self,
        offering_index: OfferingIndex,
        daemonset_pods: Sequence[DaemonSetPod],
        usage_by_nodepool: Mapping[str, Mapping[str, int]],
        requirements: Iterable[Requirements],
        reserved: dict[str, int],
        limit_policy: LimitPolicy,
        known_packings: KnownPackings,
    ) -> None:
        self.known_packings = known_packings
        self.reserved_first = limit_policy.reserved_first
        self.offering_index = offering_index
        self._daemonset_pods = daemonset_pods
        self.undetermined_labels = UndeterminedLabels(offering_index, requirements)
        self.initial_limits = RemainingLimits(
            [
                limit_policy.remaining(template, usage_by_nodepool.get(template.nodepool.name, {}))
                for template in offering_index.templates
            ],
            reserved,
        )
        self.limits = self.initial_limits.copy()
        self.limits.by_reservation = reserved
        self._compatible: dict[int, tuple[PodRequirements, int]] = {}
        self._within_limits: dict[object, int] = {}

    def compatible_offerings(self, pod_requirements: PodRequirements) -> int:
        """Offerings whose labels and taints the pod accepts."""
        cached = self._compatible.get(id(pod_requirements))
        if cached is None:
            # The entry keeps the object, so that its id stays its own.
            cached = self._compatible[id(pod_requirements)] = pod_requirements, self._find_compatible(pod_requirements)
        return cached[1]

    def _find_compatible(self, pod_requirements: PodRequirements) -> int:
        index = self.offering_index
        offerings = index.by_label.meeting_all(pod_requirements.requirements)
        for template, of_template in zip(index.templates, index.offerings_of_template, strict=True):
            if template.taints and untolerated_taints(template.taints, pod_requirements.tolerations):
                offerings &= ~of_template
        return offerings

    def offerings_without_port_conflicts(self, host_ports: Sequence[HostPort]) -> int:
        """Offerings whose DaemonSets leave these host ports free."""
        offerings = self.offering_index.all_offerings
        for daemonset_pod in self._daemonset_pods if host_ports else ():
            if any(taken.conflicts_with(port) for taken in daemonset_pod.host_ports for port in host_ports):
                for pool_type in self.offering_index.pool_types:
                    template = self.offering_index.templates[pool_type.template_index]
                    if template.runs_daemonset(daemonset_pod, pool_type.instance_type):
                        offerings &= ~pool_type.offerings
        return offerings

    def offerings_for_pod(self, pending_class: PendingClass, pod_requirements: PodRequirements) -> int:
        """Offerings that one pod of a class can have to itself, as far as their labels are determined."""
        offerings = self.compatible_offerings(pod_requirements)
        offerings &= self.offering_index.by_capacity.with_room(pending_class.size)
        return offerings & self.offerings_without_port_conflicts(pending_class.pod_class.host_ports)

    def possible_offerings(self, offerings: int, label_bits: int) -> int:
        """The part of these offerings that can have what is left of undetermined labels and keeps minValues."""
        return self.offering_index.keep_min_values(self.undetermined_labels.narrow(offerings, label_bits))

    def possible_values(self, key: str, offerings: int, label_bits: int) -> Iterator[str | None]:
        """Values that a label can still have, sorted; None first where the label may be absent."""
        values: set[str] = set()
        absent = False
        for statement, stating in self.offering_index.by_label.statements(key).items():
            if stating & offerings:
                if isinstance(statement, str):
                    values.add(statement)
                elif statement is None or (isinstance(statement, Requirement) and statement.allows_absence):
                    absent = True
        label = self.undetermined_labels.get(key)
        if label is not None:
            left = self.undetermined_labels.initial_bits_of_any(offerings) & label_bits
            values, absent = set(label.possible_values(left)), label.allows_absence(left)
        yield from (None,) if absent else ()
        yield from sorted(values)

    def value_combinations(
        self, values_by_key: Mapping[str, Sequence[str | None]], offerings: int
    ) -> Iterator[tuple[str | None, ...]]:
        """Every combination of these values that some of the offerings can have, in the order of their product; None:
        nothing is asked for.

        Of labels that depend on each other, such as type, family and size, hardly any combination exists: a value that
        none of the offerings left has is not combined with further ones.
        """
        meeting = self.offering_index.by_label.meeting
        choices = [
            [
                (value, -1 if value is None else meeting(Requirement(key, False, frozenset((value,)))))
                for value in values
            ]
            for key, values in values_by_key.items()
        ]
        yield from _combinations(choices, offerings)

    def certain_value(self, key: str, offerings: int) -> str | None:
        """The value of a label if all these offerings state the same one."""
        statements = self.offering_index.by_label.statements(key).items()
        stated = [statement for statement, stating in statements if stating & offerings]
        return stated[0] if len(stated) == 1 and isinstance(stated[0], str) else None

    def suitable_offerings(self, offerings: int, usage: Sequence[int], millicores: int | None) -> int:
        """The part of these offerings with room for the usage, general purpose types if possible.

        ``millicores``: size of the largest node allowed; None = within the usual size of nodes if possible.
        """
        index = self.offering_index
        fitting = index.keep_min_values(offerings & index.by_capacity.with_room(usage))
        largest = NODE_SIZE_BOUNDS_MILLICORES[0] if millicores is None else millicores
        bounded = index.keep_min_values(fitting & offerings_up_to_size(index.by_capacity.by_millicores, largest))
        fitting = bounded or (fitting if millicores is None else 0)
        return index.keep_min_values(fitting & index.general_purpose) or fitting

    def cheapest_offering(self, offerings: int, *, instead_of: int) -> int:
        """The cheapest that the limits allow once a node of ``instead_of`` is given back; -1 = none, in both."""
        if any(self.limits.by_template) or self.offering_index.reserved_offerings:
            offerings &= self._offerings_within_limits(instead_of)
        return (offerings & -offerings).bit_length() - 1

    def _offerings_within_limits(self, instead_of: int) -> int:
        index = self.offering_index
        pool_type = index.pool_type_of[instead_of] if instead_of >= 0 else None
        given_back = (id(pool_type), index.reservation_ids[instead_of] if pool_type else "")
        left = tuple([tuple(limits.values()) for limits in self.limits.by_template])
        key = (given_back, left, tuple(self.limits.by_reservation.values()))
        if key not in self._within_limits:
            limits = self.limits.copy()
            if pool_type:
                limits.spend(index, instead_of, -1)
            if len(self._within_limits) > _REMEMBERED_LIMIT_STATES:
                self._within_limits.clear()
            self._within_limits[key] = limits.allowed_offerings(index)
        return self._within_limits[key]

    def cheapest_template(self, offerings: int) -> NodeClaimTemplate:
        """The NodePool of the cheapest of these offerings."""
        first = (offerings & -offerings).bit_length() - 1
        return self.offering_index.templates[self.offering_index.pool_type_of[first].template_index]

    def price(self, offering: int) -> int:
        return self.offering_index.prices[offering] if offering >= 0 else 0

    def millicores(self, offering: int) -> int:
        """The cpu of an offering's type."""
        if offering < 0:
            return 0
        return self.offering_index.pool_type_of[offering].instance_type.capacity.get(resources.CPU, 0)


class OfferingIndexCache:
    """Offering indexes by their NodePools and resources, and packings; all attempts at one plan share them."""

    def __init__(self, daemonset_pods: Sequence[DaemonSetPod]) -> None:
        self.daemonset_pods = daemonset_pods
        self.known_packings = KnownPackings()
        self._indexes: dict[object, OfferingIndex] = {}
        self._bundles: dict[object, dict[PoolTypeKey, Bundle]] = {}
        self._policies: list[LimitPolicy] = []

    def get(
        self, templates: Sequence[NodeClaimTemplate], dimensions: Sequence[str], limit_policy: LimitPolicy
    ) -> OfferingIndex:
        key = (tuple(map(id, templates)), tuple(dimensions))
        if key not in self._indexes:
            # The index keeps its templates, so that their ids stay their own.
            self._indexes[key] = OfferingIndex(templates, self.daemonset_pods, dimensions)
        if limit_policy.prices is None:
            return self._indexes[key]
        index, priced_key = self._indexes[key], (key, id(limit_policy.prices))
        if priced_key not in self._indexes:
            if key not in self._bundles:
                self._bundles[key] = build_bundles(index)
            # So with the policy and its prices.
            self._policies.append(limit_policy)
            self._indexes[priced_key] = add_limit_prices(
                index, self.daemonset_pods, limit_policy.prices, self._bundles[key]
            )
        return self._indexes[priced_key]


def build_weight_groups(
    templates: Sequence[NodeClaimTemplate],
    offering_indexes: OfferingIndexCache,
    dimensions: Sequence[str],
    usage_by_nodepool: Mapping[str, Mapping[str, int]],
    requirements: Sequence[Requirements],
    reserved: dict[str, int],
    limit_policy: LimitPolicy,
) -> list[WeightGroup]:
    """A group for each weight, heaviest first. ``reserved``: instances left by capacity reservation."""
    by_weight = groupby(templates, key=lambda template: template.nodepool.weight)
    indexes = (offering_indexes.get(list(same_weight), dimensions, limit_policy) for _, same_weight in by_weight)
    return [
        WeightGroup(
            index,
            offering_indexes.daemonset_pods,
            usage_by_nodepool,
            requirements,
            reserved,
            limit_policy,
            offering_indexes.known_packings,
        )
        for index in indexes
    ]


def _combinations(
    choices: Sequence[Sequence[tuple[str | None, int]]], offerings: int
) -> Iterator[tuple[str | None, ...]]:
    """``choices``: for each label its values, each with the offerings that can have it."""
    if not choices:
        yield ()
        return
    for value, meeting in choices[0]:
        if left := offerings & meeting:
            yield from ((value, *others) for others in _combinations(choices[1:], left))
