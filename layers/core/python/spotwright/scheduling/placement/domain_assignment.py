"""Domains for pods with rules, before their nodes are packed: the zone, capacity type or rack that a pod will be in.

Once every pod knows its domains, only rules within one host are left, and packing by price can keep these.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import Requirement, Requirements, conjunction
from spotwright.scheduling.capacity.pending_pods import AssignedPods, PendingClass
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_classes import PodClass, PodCount
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.topology.domain_rules import DomainRule, TopologySpreadRule
from spotwright.scheduling.topology.topology import Topology


class DomainOption(msgspec.Struct, frozen=True):
    """Domains that some node could have: label → value, None where the label would be absent.

    ``weight_group`` and ``offerings``: where such a node would be bought; ``price``: of the cheapest such node;
    ``weight_rank``: how many weight groups are heavier.
    """

    domains: dict[str, str | None]
    pod_requirements: PodRequirements
    price: int
    weight_group: WeightGroup
    offerings: int
    weight_rank: int


class AssignedDomains:
    """A node to come, as rules between pods see it: its domains are settled, its host is not."""

    __slots__ = ("_option", "pod_counts", "recorded_counts")

    def __init__(self, option: DomainOption, pod_class: PodClass, count: int) -> None:
        self._option = option
        self.pod_counts = [PodCount(pod_class, option.pod_requirements, count)]
        self.recorded_counts: dict[str, int] = {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self._option.weight_group.cheapest_template(self._option.offerings).taints

    def domain(self, key: str) -> str | None:
        if key in self._option.domains:
            return self._option.domains[key]
        return None if key == labels.HOSTNAME else self._option.weight_group.certain_value(key, self._option.offerings)

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        offering_index = self._option.weight_group.offering_index
        return bool(offering_index.by_label.meeting_all(requirements) & self._option.offerings)


def allow_exchanges(assigners: Sequence["DomainAssigner"]) -> None:
    """Let pods of spreads that concern no other pods change their domains while nodes are packed."""
    spreads = [(assigner, spread) for assigner in assigners if (spread := assigner.exchangeable_spread) is not None]
    concerned = Counter(id(spread.group) for _, spread in spreads)
    for assigner, spread in spreads:
        if concerned[id(spread.group)] == 1:
            assigner.allow_exchange(spread)


class DomainAssigner:
    """Assigns domains to the pods of one class."""

    def __init__(
        self,
        pending_class: PendingClass,
        topology: Topology,
        weight_groups: Sequence[WeightGroup],
        volume_topology: VolumeTopology,
    ) -> None:
        self._pending_class = pending_class
        self._topology = topology
        rules = topology.domain_rules(pending_class.pod_class, pending_class.pod_requirements)
        self._rules = [rule for rule in rules if rule.topology_key != labels.HOSTNAME]
        self._options = _options(
            pending_class,
            self._rules,
            weight_groups,
            volume_topology.node_requirements(pending_class.pod_class.pod),
        )
        self._assigned: dict[int, AssignedPods] = {}

    def assign(self, at_most: int) -> int:
        """Give up to so many pods their domains; how many pods got them."""
        left = at_most
        while left and self._pending_class.pod_keys:
            place = _best(self._options, self._rules)
            if place < 0:
                break
            option, count = self._options[place], 1 if self._rules else left
            if place not in self._assigned:
                self._assigned[place] = AssignedPods(
                    self._pending_class, option.pod_requirements, is_pinned=bool(self._rules)
                )
            self._assigned[place].pod_keys += self._pending_class.take(count)
            self._topology.record(AssignedDomains(option, self._pending_class.pod_class, count))
            left -= count
        return at_most - left

    def assigned_pods(self) -> list[AssignedPods]:
        """Pods by their domains, which are now part of their requirements."""
        return [self._assigned[place] for place in sorted(self._assigned)]

    @property
    def exchangeable_spread(self) -> TopologySpreadRule | None:
        """See ``Topology.exchangeable_spread``; None where no pod got a domain, or NodePools of several weights serve
        the domains."""
        if not self._assigned or len({option.weight_rank for option in self._options}) > 1:
            return None
        return self._topology.exchangeable_spread(self._pending_class.pod_class, self._pending_class.pod_requirements)

    def allow_exchange(self, spread: TopologySpreadRule) -> None:
        """Let pods change their domains, within the skew, for those where they make nodes cheaper."""
        changes = spread.changes_within_skew()
        for place, option in enumerate(self._options):
            pods = self._assigned.get(place)
            if pods is None:
                pods = self._assigned[place] = AssignedPods(
                    self._pending_class, option.pod_requirements, is_pinned=True
                )
            pods.may_lose, pods.may_gain = changes.get(option.domains[spread.topology_key] or "", (0, 0))

    def record_exchanges(self) -> None:
        """Count the pods that changed their domains where they are now."""
        for place, pods in sorted(self._assigned.items()):
            if pods.gained:
                option = self._options[place]
                self._topology.record(AssignedDomains(option, self._pending_class.pod_class, pods.gained))
                pods.gained = 0


def _options(
    pending_class: PendingClass,
    rules: Sequence[DomainRule],
    weight_groups: Sequence[WeightGroup],
    volume_requirements: Sequence[Requirements],
) -> list[DomainOption]:
    """Every combination of domains that some NodePool can serve, each with the heaviest NodePools that can."""
    keys = sorted({rule.topology_key for rule in rules})
    options: dict[tuple[str | None, ...], DomainOption] = {}
    for pod_requirements in _with_volumes(pending_class.pod_requirements, volume_requirements):
        for weight_rank, group in enumerate(weight_groups):
            offerings = group.offerings_for_pod(pending_class, pod_requirements)
            label_bits = group.undetermined_labels.requirement_bits(pod_requirements.requirements)
            possible = group.possible_offerings(offerings, label_bits)
            if not possible:
                continue
            values_by_key = {key: tuple(group.possible_values(key, possible, label_bits)) for key in keys}
            for values in group.value_combinations(values_by_key, offerings):
                if values not in options:
                    domains = dict(zip(keys, values, strict=True))
                    option = _option(group, weight_rank, pod_requirements, offerings, domains)
                    if option is not None:
                        options[values] = option
    return [options[values] for values in sorted(options, key=lambda values: tuple(value or "" for value in values))]


def _with_volumes(
    pod_requirements: PodRequirements, volume_requirements: Sequence[Requirements]
) -> Iterator[PodRequirements]:
    """The pod's requirements in each of the places of its volumes that they allow."""
    if not volume_requirements:
        yield pod_requirements
    for reachable in volume_requirements:
        requirements = conjunction((*pod_requirements.requirements, *reachable))
        if requirements is not None:
            yield msgspec.structs.replace(pod_requirements, requirements=requirements)


def _option(
    group: WeightGroup,
    weight_rank: int,
    pod_requirements: PodRequirements,
    offerings: int,
    domains: dict[str, str | None],
) -> DomainOption | None:
    """``offerings``: that can take the pod, as far as labels are determined."""
    fixed = [Requirement(key, False, frozenset((value,))) for key, value in domains.items() if value is not None]
    if fixed:
        requirements = pod_requirements.requirements.intersection(fixed)
        pod_requirements = msgspec.structs.replace(pod_requirements, requirements=requirements)
        offerings &= group.offering_index.by_label.meeting_all(
            requirements.by_key[requirement.key] for requirement in fixed
        )
    label_bits = group.undetermined_labels.requirement_bits(pod_requirements.requirements)
    offerings = group.possible_offerings(offerings, label_bits)
    if not offerings:
        return None
    cheapest = group.cheapest_offering(offerings & group.offering_index.general_purpose or offerings, instead_of=-1)
    if cheapest < 0:
        return None
    return DomainOption(domains, pod_requirements, group.price(cheapest), group, offerings, weight_rank)


def _best(options: Sequence[DomainOption], rules: Sequence[DomainRule]) -> int:
    """The option with the fewest pods that all rules allow, then of the heaviest pools, then cheapest; -1 = none."""
    best, best_place = (0, 0, 0), -1
    for place, option in enumerate(options):
        if all(rule.allows(option.domains[rule.topology_key]) for rule in rules):
            domains = ((rule, option.domains[rule.topology_key]) for rule in rules)
            rank = (
                sum(rule.rank(domain) for rule, domain in domains if domain is not None),
                option.weight_rank,
                option.price,
            )
            if best_place < 0 or rank < best:
                best, best_place = rank, place
    return best_place
