"""Domains for pods with rules, before their nodes are packed: which zone, capacity type or rack each will be in.

Once every pod knows its domains, only rules on hosts are left, and those can be kept while nodes are packed by price.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from spotwright.model import labels
from spotwright.model.requirements import Requirement, Requirements, conjunction
from spotwright.model.taints import Taint
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.rules import Rule
from spotwright.scheduling.tiers import Tier
from spotwright.scheduling.topology import Topology
from spotwright.scheduling.waiting import Share, Waiting


class Option(msgspec.Struct, frozen=True):
    """Domains that some node could have: label → value, None where the label would be absent.

    ``price``: of the cheapest such node; ``tier`` and ``mask``: where it would be bought; ``turn``: how many tiers are
    heavier.
    """

    domains: dict[str, str | None]
    demand: Demand
    price: int
    tier: Tier
    mask: int
    turn: int


class Expected:
    """A node that is going to be, as rules see it: its domains are settled, its host is not."""

    __slots__ = ("_option", "counted", "members")

    def __init__(self, option: Option, cls: PodClass, count: int) -> None:
        self._option = option
        self.members = [(cls, count)]
        self.counted: dict[str, int] = {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        first = (self._option.mask & -self._option.mask).bit_length() - 1
        return self._option.tier.market.templates[self._option.tier.market.goods_of[first].template].taints

    def domain(self, key: str) -> str | None:
        if key in self._option.domains:
            return self._option.domains[key]
        return None if key == labels.HOSTNAME else self._option.tier.certain(key, self._option.mask)

    def may_meet(self, requirements: Requirements) -> bool:
        return bool(self._option.tier.market.meeting_all(requirements) & self._option.mask)


class Assigner:
    """Gives pods of one class their domains, one by one or all at once."""

    def __init__(
        self, waiting: Waiting, demand: Demand, topology: Topology, tiers: Sequence[Tier], disks: Disks
    ) -> None:
        self._waiting = waiting
        self._topology = topology
        rules = topology.rules(waiting.cls, demand)
        self._rules = [rule for rule in rules if rule.key != labels.HOSTNAME]
        self._options = _options(waiting, demand, self._rules, tiers, disks.reachable(waiting.cls.pod))
        self._shares: dict[int, Share] = {}

    def assign(self, most: int) -> int:
        """Give up to so many pods their domains; how many got them."""
        left = most
        while left and self._waiting.keys:
            place = _best(self._options, self._rules)
            if place < 0:
                break
            count = 1 if self._rules else left
            if place not in self._shares:
                share = Share(self._waiting, self._options[place].demand, pinned=bool(self._rules))
                self._shares[place] = share
            self._shares[place].keys += self._waiting.take(count)
            self._topology.note(Expected(self._options[place], self._waiting.cls, count))
            left -= count
        return most - left

    def shares(self) -> list[Share]:
        """Pods by their domains, each with those in its demand."""
        return [self._shares[place] for place in sorted(self._shares)]


def _options(
    waiting: Waiting, demand: Demand, rules: Sequence[Rule], tiers: Sequence[Tier], volumes: Sequence[Requirements]
) -> list[Option]:
    """Every combination of domains and volumes' places that a NodePool can serve, the heaviest that can."""
    keys = sorted({rule.key for rule in rules})
    found: dict[tuple[str | None, ...], Option] = {}
    for narrowed in _reaching(demand, volumes):
        for turn, tier in enumerate(tiers):
            labelled = (
                tier.mask(narrowed) & tier.market.fitting(waiting.size) & tier.without_ports(waiting.cls.host_ports)
            )
            fields = tier.keys.asked(narrowed.requirements)
            mask = tier.open(labelled, fields)
            for several in product(*(list(tier.values(key, mask, fields)) for key in keys)) if mask else ():
                if several not in found:
                    option = _option(tier, turn, narrowed, labelled, dict(zip(keys, several, strict=True)))
                    if option is not None:
                        found[several] = option
    return [found[several] for several in sorted(found, key=lambda one: tuple(value or "" for value in one))]


def _reaching(demand: Demand, volumes: Sequence[Requirements]) -> Iterator[Demand]:
    """The demand in each of the volumes' places that it can meet; itself if they can be anywhere."""
    if not volumes:
        yield demand
    for reachable in volumes:
        wanted = conjunction((*demand.requirements, *reachable))
        if wanted is not None:
            yield msgspec.structs.replace(demand, requirements=wanted)


def _option(tier: Tier, turn: int, demand: Demand, labelled: int, domains: dict[str, str | None]) -> Option | None:
    """``labelled``: the choices with room for a pod whose labels meet the demand, open keys aside."""
    fixed = [Requirement(key, False, frozenset((value,))) for key, value in domains.items() if value is not None]
    pinned = demand
    if fixed:
        pinned = msgspec.structs.replace(demand, requirements=demand.requirements.intersection(fixed))
        labelled &= tier.market.meeting_all(pinned.requirements.by_key[one.key] for one in fixed)
    mask = tier.open(labelled, tier.keys.asked(pinned.requirements))
    choice = tier.cheapest(mask & tier.market.plain or mask, instead_of=-1) if mask else -1
    return Option(domains, pinned, tier.price(choice), tier, mask, turn) if choice >= 0 else None


def _best(options: Sequence[Option], rules: Sequence[Rule]) -> int:
    """The option all rules allow that is emptiest, then of the heaviest pools, then cheapest; -1 if there is none."""
    best, found = (0, 0, 0), -1
    for place, option in enumerate(options):
        if all(rule.allows(option.domains[rule.key]) for rule in rules):
            domains = ((rule, option.domains[rule.key]) for rule in rules)
            rank = (sum(rule.rank(value) for rule, value in domains if value is not None), option.turn, option.price)
            if found < 0 or rank < best:
                best, found = rank, place
    return found
