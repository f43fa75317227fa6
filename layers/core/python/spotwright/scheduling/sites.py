"""Nodes in the making whose pods have rules about each other: each pod narrows what its node can become."""

from collections.abc import Iterator, Sequence
from itertools import product

from spotwright.model import labels
from spotwright.model.company import HostPort
from spotwright.model.requirements import Requirement, Requirements, conjunction
from spotwright.model.taints import Taint
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.drafts import Draft, Member
from spotwright.scheduling.openkeys import FREE
from spotwright.scheduling.problem import NODE_FEE
from spotwright.scheduling.rules import Rule
from spotwright.scheduling.tiers import Tier
from spotwright.scheduling.waiting import Waiting

# A pod joins a node only while the node stays within this size; one that needs more gets it on a node of its own.
_SIZE = 48_000


class State:
    """What a node can still become: choices, open keys, and what volumes and rules between pods ask of its labels."""

    __slots__ = ("fields", "mask", "pins")

    def __init__(self, mask: int, fields: int = FREE, pins: Requirements | None = None) -> None:
        self.mask = mask
        self.fields = fields
        self.pins = pins or Requirements()


class Site:
    """A node in the making. ``state`` narrows with every pod; ``choice`` is the cheapest that would do now."""

    __slots__ = ("choice", "counted", "members", "name", "ports", "seated", "state", "template", "tier", "used")

    def __init__(self, name: str, tier: Tier, template: int, state: State) -> None:
        self.name = name
        self.tier = tier
        self.template = template
        self.state = state
        self.choice = -1
        self.used = (0,) * len(tier.market.dimensions)
        self.members: list[tuple[PodClass, int]] = []
        self.seated: list[tuple[Demand, tuple[str, ...]]] = []
        self.counted: dict[str, int] = {}
        self.ports: tuple[HostPort, ...] = ()

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.tier.market.templates[self.template].taints

    def domain(self, key: str) -> str | None:
        if key == labels.HOSTNAME:
            return self.name
        return self.state.pins.get(key).sole_value or self.tier.certain(key, self.state.mask)

    def may_meet(self, requirements: Requirements) -> bool:
        return bool(self.tier.market.meeting_all(requirements) & self.state.mask)

    def add(self, waiting: Waiting, demand: Demand, state: State, choice: int) -> None:
        """Seat the next pod of a class; limits follow the choice."""
        if self.choice >= 0:
            self.tier.allowance.spend(self.tier.market, self.choice, -1)
        self.tier.allowance.spend(self.tier.market, choice, 1)
        self.choice, self.ports = choice, self.ports + waiting.cls.host_ports
        self.top_up(waiting, demand, 1, state)

    def alike(self) -> int:
        """Choices of the type it counts on, under the same capacity type or reservation."""
        market = self.tier.market
        kind = market.offers[self.choice].capacity_type
        same = market.goods_of[self.choice].mask & market.meeting(
            Requirement(labels.CAPACITY_TYPE, False, frozenset((kind,)))
        )
        return market.settled(same, self.choice)

    def top_up(self, waiting: Waiting, demand: Demand, count: int, state: State) -> None:
        """Seat pods that its type has room for; the zone may become another."""
        alike = state.mask & self.alike()
        if not alike >> self.choice & 1:
            self.choice = (alike & -alike).bit_length() - 1
        self.used = tuple(one + count * other for one, other in zip(self.used, waiting.size, strict=True))
        self.members.append((waiting.cls, count))
        self.seated.append((demand, waiting.take(count)))
        self.state = state

    @staticmethod
    def of(draft: Draft, tier: Tier, pods: tuple[str, ...], name: str) -> "Site":
        """A node that was packed, as one that may take more."""
        site = Site(name, tier, draft.template, State(draft.mask, draft.fields, draft.pins))
        site.choice, site.used = draft.choice, draft.used
        left = list(pods)
        for member in draft.members:
            site.members.append((member.cls, member.count))
            site.seated.append((member.demand, tuple(left[: member.count])))
            site.ports += member.cls.host_ports * member.count
            del left[: member.count]
        return site

    def draft(self) -> Draft:
        """The node as decided."""
        members = [
            Member(cls, demand, count) for (cls, count), (demand, _) in zip(self.members, self.seated, strict=True)
        ]
        draft = Draft(self.tier.market, self.choice, members, self.tier.keys)
        draft.pins = self.state.pins
        draft.narrow([(self.state.mask, self.state.fields)])
        draft.copies.append(tuple(key for _, keys in self.seated for key in keys))
        return draft


class Option:
    """A way to seat one pod. ``cost``: what it adds to the price, in picodollars per hour."""

    __slots__ = ("choice", "cost", "rank", "site", "state")

    def __init__(self, site: Site, state: State, choice: int, rank: int, cost: int) -> None:
        self.site = site
        self.state = state
        self.choice = choice
        self.rank = rank
        self.cost = cost


def join(
    site: Site, waiting: Waiting, demand: Demand, rules: Sequence[Rule], volumes: Sequence[Requirements]
) -> Option | None:
    """The best way for one more pod to join a node in the making; None if it cannot."""
    if not all(rule.allows(site.name) for rule in rules if rule.key == labels.HOSTNAME):
        return None
    if any(ours.clashes(port) for ours in waiting.cls.host_ports for port in site.ports):
        return None
    used = [one + other for one, other in zip(site.used, waiting.size, strict=True)]
    tier, before = site.tier, site.tier.price(site.choice)
    if not site.state.mask & tier.market.fitting(used):
        return None
    most = max(_SIZE, tier.cores(site.choice))
    best: Option | None = None
    for state, rank in _states(tier, site.state, waiting, demand, rules, volumes):
        mask = tier.holding(state.mask, used, most)
        choice = tier.cheapest(mask, instead_of=site.choice)
        if choice >= 0:
            option = Option(site, State(mask, state.fields, state.pins), choice, rank, tier.price(choice) - before)
            best = _better(best, option)
    return best


def found(
    name: str, tier: Tier, waiting: Waiting, demand: Demand, rules: Sequence[Rule], volumes: Sequence[Requirements]
) -> Option | None:
    """The best node of its own for a pod; None if the tier has none."""
    if not all(rule.allows(name) for rule in rules if rule.key == labels.HOSTNAME):
        return None
    best: Option | None = None
    for state, rank in _states(tier, State(tier.market.all), waiting, demand, rules, volumes):
        mask = tier.holding(state.mask, waiting.size, None)
        choice = tier.cheapest(mask, instead_of=-1)
        if choice >= 0:
            template = tier.market.goods_of[choice].template
            ours = tier.market.settled(mask & tier.market.of_template[template], choice)
            site = Site(name, tier, template, State(ours))
            option = Option(site, State(ours, state.fields, state.pins), choice, rank, tier.price(choice) + NODE_FEE)
            best = _better(best, option)
    return best


def _better(best: Option | None, other: Option) -> Option:
    if best is None or (other.rank, other.cost) < (best.rank, best.cost):
        return other
    return best


def _states(
    tier: Tier, start: State, waiting: Waiting, demand: Demand, rules: Sequence[Rule], volumes: Sequence[Requirements]
) -> Iterator[tuple[State, int]]:
    """What is left of a node with the pod on it, one for each choice of volumes' places and of domains."""
    mask = start.mask & tier.mask(demand) & tier.without_ports(waiting.cls.host_ports)
    if not mask:
        return
    fields = start.fields & tier.keys.asked(demand.requirements)
    if not volumes:
        mask = tier.keys.narrow(mask, fields)
        if mask:
            yield from _pinned(tier, State(mask, fields, start.pins), rules)
        return
    for reachable in volumes:
        pins = conjunction((*start.pins, *reachable))
        if pins is None:
            continue
        near = mask & tier.market.meeting_all(reachable)
        left = fields & tier.keys.asked(reachable)
        near = tier.keys.narrow(near, left)
        if near:
            yield from _pinned(tier, State(near, left, pins), rules)


def _pinned(tier: Tier, state: State, rules: Sequence[Rule]) -> Iterator[tuple[State, int]]:
    """Every combination of domains that all rules allow."""
    keys = sorted({rule.key for rule in rules if rule.key != labels.HOSTNAME})
    if not keys:
        yield state, 0
        return
    choices = [_domains(tier, state, key, [rule for rule in rules if rule.key == key]) for key in keys]
    for several in product(*choices):
        fixed = Requirements(
            {
                key: Requirement(key, False, frozenset((value,)))
                for key, (value, _) in zip(keys, several, strict=True)
                if value is not None
            }
        )
        fields = state.fields & tier.keys.asked(fixed)
        mask = tier.keys.narrow(state.mask & tier.market.meeting_all(fixed), fields)
        if mask:
            yield State(mask, fields, state.pins.intersection(fixed)), sum(rank for _, rank in several)


def _domains(tier: Tier, state: State, key: str, rules: Sequence[Rule]) -> list[tuple[str | None, int]]:
    """The values of a label that are possible and allowed, with their rank; (None, 0) where it may stay away."""
    sole = state.pins.get(key).sole_value
    values = [sole] if sole is not None else tier.values(key, state.mask, state.fields)
    allowed = (one for one in values if all(rule.allows(one) for rule in rules))
    return [(one, 0 if one is None else sum(rule.rank(one) for rule in rules)) for one in allowed]
