"""Domains for pods with rules, before their nodes are packed: which zone, capacity type or rack each will be in.

Once every pod knows its domains, only rules on hosts are left, and those can be kept while nodes are packed by price.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import Requirement, Requirements, conjunction
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.placement.pending_pods import AssignedPods, PendingClass
from spotwright.scheduling.placement.weight_groups import WeightGroup
from spotwright.scheduling.topology.domain_rules import DomainRule
from spotwright.scheduling.topology.topology import Topology


class DomainOption(msgspec.Struct, frozen=True):
    """Domains that some node could have: label → value, None where the label would be absent.

    ``price``: of the cheapest such node; ``weight_group`` and ``offerings``: where it would be bought; ``weight_rank``:
    how many tiers are heavier.
    """

    domains: dict[str, str | None]
    pod_requirements: PodRequirements
    price: int
    weight_group: WeightGroup
    offerings: int
    weight_rank: int


class AssignedDomains:
    """A node that is going to be, as rules see it: its domains are settled, its host is not."""

    __slots__ = ("_option", "pod_counts", "recorded_counts")

    def __init__(self, option: DomainOption, cls: PodClass, count: int) -> None:
        self._option = option
        self.pod_counts = [(cls, count)]
        self.recorded_counts: dict[str, int] = {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        first = (self._option.offerings & -self._option.offerings).bit_length() - 1
        return self._option.weight_group.offering_index.templates[
            self._option.weight_group.offering_index.pool_type_of[first].template_index
        ].taints

    def domain(self, key: str) -> str | None:
        if key in self._option.domains:
            return self._option.domains[key]
        return None if key == labels.HOSTNAME else self._option.weight_group.certain_value(key, self._option.offerings)

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return bool(
            self._option.weight_group.offering_index.offerings_meeting_all(requirements) & self._option.offerings
        )


class DomainAssigner:
    """Gives pods of one class their domains, one by one or all at once."""

    def __init__(
        self,
        waiting: PendingClass,
        demand: PodRequirements,
        topology: Topology,
        tiers: Sequence[WeightGroup],
        disks: VolumeTopology,
    ) -> None:
        self._waiting = waiting
        self._topology = topology
        rules = topology.domain_rules(waiting.pod_class, demand)
        self._rules = [rule for rule in rules if rule.topology_key != labels.HOSTNAME]
        self._options = _options(waiting, demand, self._rules, tiers, disks.node_requirements(waiting.pod_class.pod))
        self._shares: dict[int, AssignedPods] = {}

    def assign(self, most: int) -> int:
        """Give up to so many pods their domains; how many got them."""
        left = most
        while left and self._waiting.pod_keys:
            place = _best(self._options, self._rules)
            if place < 0:
                break
            count = 1 if self._rules else left
            if place not in self._shares:
                share = AssignedPods(self._waiting, self._options[place].pod_requirements, is_pinned=bool(self._rules))
                self._shares[place] = share
            self._shares[place].pod_keys += self._waiting.take(count)
            self._topology.record(AssignedDomains(self._options[place], self._waiting.pod_class, count))
            left -= count
        return most - left

    def assigned_pods(self) -> list[AssignedPods]:
        """Pods by their domains, each with those in its demand."""
        return [self._shares[place] for place in sorted(self._shares)]


def _options(
    waiting: PendingClass,
    demand: PodRequirements,
    rules: Sequence[DomainRule],
    tiers: Sequence[WeightGroup],
    volumes: Sequence[Requirements],
) -> list[DomainOption]:
    """Every combination of domains and volumes' places that a NodePool can serve, the heaviest that can."""
    keys = sorted({rule.topology_key for rule in rules})
    found: dict[tuple[str | None, ...], DomainOption] = {}
    for narrowed in _reaching(demand, volumes):
        for turn, tier in enumerate(tiers):
            labelled = (
                tier.compatible_offerings(narrowed)
                & tier.offering_index.offerings_with_room(waiting.size)
                & tier.offerings_without_port_conflicts(waiting.pod_class.host_ports)
            )
            fields = tier.undetermined_labels.requirement_bits(narrowed.requirements)
            mask = tier.possible_offerings(labelled, fields)
            for several in product(*(list(tier.possible_values(key, mask, fields)) for key in keys)) if mask else ():
                if several not in found:
                    option = _option(tier, turn, narrowed, labelled, dict(zip(keys, several, strict=True)))
                    if option is not None:
                        found[several] = option
    return [found[several] for several in sorted(found, key=lambda one: tuple(value or "" for value in one))]


def _reaching(demand: PodRequirements, volumes: Sequence[Requirements]) -> Iterator[PodRequirements]:
    """The demand in each of the volumes' places that it can meet; itself if they can be anywhere."""
    if not volumes:
        yield demand
    for reachable in volumes:
        wanted = conjunction((*demand.requirements, *reachable))
        if wanted is not None:
            yield msgspec.structs.replace(demand, requirements=wanted)


def _option(
    tier: WeightGroup, turn: int, demand: PodRequirements, labelled: int, domains: dict[str, str | None]
) -> DomainOption | None:
    """``labelled``: the choices with room for a pod whose labels meet the demand, open keys aside."""
    fixed = [Requirement(key, False, frozenset((value,))) for key, value in domains.items() if value is not None]
    pinned = demand
    if fixed:
        pinned = msgspec.structs.replace(demand, requirements=demand.requirements.intersection(fixed))
        labelled &= tier.offering_index.offerings_meeting_all(
            pinned.requirements.by_key[requirement.key] for requirement in fixed
        )
    mask = tier.possible_offerings(labelled, tier.undetermined_labels.requirement_bits(pinned.requirements))
    choice = tier.cheapest_offering(mask & tier.offering_index.general_purpose or mask, instead_of=-1) if mask else -1
    return DomainOption(domains, pinned, tier.price(choice), tier, mask, turn) if choice >= 0 else None


def _best(options: Sequence[DomainOption], rules: Sequence[DomainRule]) -> int:
    """The option all rules allow that is emptiest, then of the heaviest pools, then cheapest; -1 if there is none."""
    best, found = (0, 0, 0), -1
    for place, option in enumerate(options):
        if all(rule.allows(option.domains[rule.topology_key]) for rule in rules):
            domains = ((rule, option.domains[rule.topology_key]) for rule in rules)
            rank = (
                sum(rule.rank(value) for rule, value in domains if value is not None),
                option.weight_rank,
                option.price,
            )
            if found < 0 or rank < best:
                best, found = rank, place
    return found
