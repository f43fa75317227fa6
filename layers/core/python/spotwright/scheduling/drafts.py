"""A node that was decided, from the shape it was packed for to what may be launched."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from spotwright.model import labels, quantity, resources
from spotwright.model.instancetype import PICOUSD, Offering
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.volumes import driver_of
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.conceding import given_up
from spotwright.scheduling.market import Goods, Market, Vector, bits
from spotwright.scheduling.openkeys import FREE, OpenKeys
from spotwright.scheduling.plan import Alternative, NewNode
from spotwright.scheduling.problem import Allowance
from spotwright.scheduling.strays import strays, where

# A launch sends at most 60 types to EC2 after its own filters; more only make claims and decisions long.
MOST_TYPES: Final = 100
# Where a pool asks for a number of different values, as many as Karpenter keeps.
MOST_WITH_MINIMUM: Final = 600
_ALTERNATIVES: Final = 4
_PLACE: Final = (labels.ZONE, labels.CAPACITY_TYPE)


class Member:
    """How many pods of one class each node of a draft holds, under the demand they were placed by."""

    __slots__ = ("cls", "count", "demand")

    def __init__(self, cls: PodClass, demand: Demand, count: int) -> None:
        self.cls = cls
        self.demand = demand
        self.count = count


class Draft:
    """Equal nodes to make. ``choice``: what they were packed for; ``mask``: every choice that would do.

    ``copies``: the pods of each node, by name.
    """

    __slots__ = ("choice", "copies", "fields", "keys", "market", "mask", "members", "pins", "used")

    def __init__(self, market: Market, choice: int, members: Sequence[Member], keys: OpenKeys) -> None:
        self.market = market
        self.choice = choice
        self.members = tuple(members)
        self.keys = keys
        self.copies: list[tuple[str, ...]] = []
        self.pins = Requirements()
        self.used = _used(market, members)
        self.fields = FREE
        self.mask = market.of_template[market.goods_of[choice].template] & market.fitting(self.used)

    def narrow(self, asked: Iterable[tuple[int, int]]) -> None:
        """Leave what these demands leave: (choices, open keys) of each."""
        for choices, fields in asked:
            self.mask &= choices
            self.fields &= fields
        mask = self.market.settled(self.keys.narrow(self.mask, self.fields), self.choice)
        self.mask = self.market.enough(mask & self.market.plain) or mask

    @property
    def goods(self) -> Goods:
        """The cheapest that would do."""
        return self.market.goods_of[(self.mask & -self.mask).bit_length() - 1]

    @property
    def template(self) -> int:
        return self.market.goods_of[self.choice].template


def _used(market: Market, members: Iterable[Member]) -> Vector:
    total = [0] * len(market.dimensions)
    for member in members:
        for place, name in enumerate(market.dimensions):
            total[place] += member.cls.requests.get(name, 0) * member.count
    return tuple(total)


def keep_limits(drafts: Sequence[Draft], allowance: Allowance) -> None:
    """Drop choices until the limits hold whichever is launched.

    ``allowance``: what the limits left before any of these nodes, per template of their one market. A pool far from
    its limits keeps everything; near them, a node keeps what counts no more than what it was packed for.
    """
    for number, left in enumerate(allowance.left):
        ours = [one for one in drafts if one.template == number]
        if not ours or not left:
            continue
        nodes = {resources.NODES: sum(len(one.copies) for one in ours)}
        largest = resources.add(*(resources.scale(_largest(one, left), len(one.copies)) for one in ours), nodes)
        if any(largest.get(name, 0) > amount for name, amount in left.items()):
            for one in ours:
                one.mask &= _no_larger(one, left)


def _largest(draft: Draft, limited: Iterable[str]) -> dict[str, int]:
    kept = [goods.type.capacity for goods in draft.market.goods if goods.mask & draft.mask]
    return {name: max(one.get(name, 0) for one in kept) for name in limited if name != resources.NODES}


def _no_larger(draft: Draft, limited: Iterable[str]) -> int:
    ours = draft.market.goods_of[draft.choice].type.capacity
    mask = 0
    for goods in draft.market.goods:
        if goods.mask & draft.mask and all(goods.type.capacity.get(name, 0) <= ours.get(name, 0) for name in limited):
            mask |= goods.mask
    return mask


def finished(draft: Draft) -> tuple[NewNode, ...]:
    """The nodes as a plan states them."""
    market, template = draft.market, draft.market.templates[draft.template]
    if market.divided[draft.template]:
        draft.mask = _meant(draft)
    goods, mask = _types(draft)
    names = tuple(dict.fromkeys(one.type.name for one in goods))
    requirements = _achieved(draft.market, mask, _requirements(draft, goods, mask))
    cheapest = (mask & -mask).bit_length() - 1
    binding = _binding(draft)
    others = _alternatives(draft, mask, cheapest)
    node = NewNode(
        node_pool=template.pool.name,
        node_class=template.pool.node_class_ref.name,
        pods=(),
        instance_types=names,
        requirements=requirements.selectors(),
        labels=template.labels | _resolved(draft, requirements),
        taints=template.pool.taints,
        startup_taints=template.pool.startup_taints,
        requests=_requests(draft, goods),
        price_picousd_per_hour=market.prices[cheapest],
        capacity_type=market.offers[cheapest].capacity_type,
        zones=_values(market, labels.ZONE, mask),
        reason=_reason(draft, cheapest, names, binding, others),
        binding_resource=binding,
        alternatives=others,
        given_up=given_up(
            (one.cls, one.demand, one.count) for one in draft.members if one.demand is not one.cls.demands[0]
        ),
        price_overlaid=any(one.type.price_overlaid for one in goods),
        capacity_overlaid=any(one.type.capacity_overlaid for one in goods),
    )
    return tuple(msgspec.structs.replace(node, pods=tuple(sorted(pods))) for pods in draft.copies)


def _meant(draft: Draft) -> int:
    """Its choices, so few that a launch can take no other offering; minValues come first.

    The cheapest stays: where its own type is the trouble, no type is bought in those zones, or as that capacity type.
    """
    market, mask = draft.market, draft.mask
    cheapest = (mask & -mask).bit_length() - 1
    own, offer = market_type(market, cheapest), market.offers[cheapest]
    lost = _strays(draft, mask)
    for key in sorted(_PLACE, key=lambda key: any(where(one, key) == where(offer, key) for one in lost.get(own, ()))):
        away = frozenset(where(one, key) for one in lost.get(own, ())) - {where(offer, key)}
        if away:
            mask &= market.meeting(Requirement(key, True, away))
            lost = _strays(draft, mask)
    for goods in market.goods:
        if goods.type.name in lost and goods.type.name != own:
            mask &= ~goods.mask
    return market.enough(mask) or draft.mask


def _strays(draft: Draft, mask: int) -> dict[str, list[Offering]]:
    goods = [one for one in draft.market.goods if one.mask & mask]
    requirements = _requirements(draft, goods, mask)
    return strays(draft.market, draft.template, mask, requirements, _requests(draft, goods))


def _types(draft: Draft) -> tuple[list[Goods], int]:
    """The cheapest types, with all that is left of each, and the choices that they leave."""
    found: list[Goods] = []
    names: set[str] = set()
    left, kept = draft.mask, 0
    most = MOST_WITH_MINIMUM if draft.market.least[draft.template] else MOST_TYPES
    while left and len(names) < most:
        goods = draft.market.goods_of[(left & -left).bit_length() - 1]
        left &= ~goods.mask
        kept |= goods.mask
        names.add(goods.type.name)
        found.append(goods)
    divided = names & draft.market.divided[draft.template]
    rest = [one for one in draft.market.goods if one.mask & left and one.type.name in divided] if divided else []
    return [*found, *rest], draft.mask & reduce(or_, (one.mask for one in rest), kept)


def _values(market: Market, key: str, mask: int) -> tuple[str, ...]:
    statements = market.statements(key)
    return tuple(sorted(value for value, choices in statements.items() if isinstance(value, str) and choices & mask))


def _requirements(draft: Draft, goods: Iterable[Goods], mask: int) -> Requirements:
    """What a NodeClaim asks for that is to be one of these choices."""
    together = draft.market.templates[draft.template].requirements.intersection(draft.pins)
    asked = dict.fromkeys(one for member in draft.members for one in member.demand.requirements.by_key.values())
    together = together.intersection(asked)
    narrowed = [
        Requirement(labels.INSTANCE_TYPE, False, frozenset(one.type.name for one in goods)),
        Requirement(labels.CAPACITY_TYPE, False, frozenset(_values(draft.market, labels.CAPACITY_TYPE, mask))),
    ]
    if _is_divided(draft, goods):
        zones, every = (
            _values(draft.market, labels.ZONE, one) for one in (mask, draft.market.of_template[draft.template])
        )
        if zones != every:
            narrowed.append(Requirement(labels.ZONE, False, frozenset(zones)))
    reservation = draft.market.reservations[draft.choice]
    if reservation:
        narrowed.append(Requirement(labels.RESERVATION_ID, False, frozenset((reservation,))))
    return together.intersection(narrowed)


def _is_divided(draft: Draft, goods: Iterable[Goods]) -> bool:
    """Whether a type has other resources in some offerings: then a claim says where all of its pods have room."""
    divided = draft.market.divided[draft.template]
    return bool(divided) and any(one.type.name in divided for one in goods)


def _achieved(market: Market, mask: int, requirements: Requirements) -> Requirements:
    """Requirements whose minValues are no more than what the types keep; less only where that is allowed."""
    changed = {}
    for one in requirements:
        if one.min_values:
            kept = market.distinct(one.key, mask, at_most=one.min_values)
            changed[one.key] = msgspec.structs.replace(one, min_values=kept)
    return Requirements(requirements.by_key | changed)


def _resolved(draft: Draft, requirements: Requirements) -> dict[str, str]:
    """A value for every label of the user's own that must be there."""
    known = draft.market.templates[draft.template].known
    left = draft.fields & draft.keys.start(draft.choice)
    found = {}
    for one in requirements:
        open_key = draft.keys.get(one.key)
        absent = open_key.absent(left) if open_key else one.allows_absence
        if one.key not in known and not absent:
            found[one.key] = one.sole_value or (open_key.named(left) if open_key else None) or some_value(one)
    return found


def some_value(requirement: Requirement) -> str:
    """A value that the requirement allows: the first it lists, or the smallest number."""
    if not requirement.complement:
        return min(requirement.values)
    number = requirement.gte or 0
    while not requirement.has(str(number)):
        number += 1
    return str(number)


def _requests(draft: Draft, kept: Sequence[Goods]) -> dict[str, int]:
    """What the pods ask for, and the least that the daemons will."""
    overheads = {id(goods.overhead): goods.overhead for goods in kept}
    names = {name for one in overheads.values() for name in one}
    least = {name: min(one.get(name, 0) for one in overheads.values()) for name in names}
    pods = dict(zip(draft.market.dimensions, draft.used, strict=True))
    return {name: size for name, size in sorted(resources.add(pods, least).items()) if size and not driver_of(name)}


def _binding(draft: Draft) -> str:
    """The resource of which least is left on the cheapest type, by share."""
    room = draft.goods.room
    shares = [used / size if size else 0.0 for used, size in zip(draft.used, room, strict=True)]
    return draft.market.dimensions[shares.index(max(shares))]


def _alternatives(draft: Draft, mask: int, cheapest: int) -> tuple[Alternative, ...]:
    """The next best types, and the best under each other capacity type."""
    market, found = draft.market, list[int]()
    seen = {market_type(market, cheapest)}
    for choice in bits(mask):
        if len(found) == _ALTERNATIVES:
            break
        if market_type(market, choice) not in seen:
            seen.add(market_type(market, choice))
            found.append(choice)
    for value, choices in market.statements(labels.CAPACITY_TYPE).items():
        other = choices & mask
        if value != market.offers[cheapest].capacity_type and other:
            found.append((other & -other).bit_length() - 1)
    return tuple(_alternative(market, choice) for choice in sorted(set(found)))


def market_type(market: Market, choice: int) -> str:
    return market.goods_of[choice].type.name


def _alternative(market: Market, choice: int) -> Alternative:
    offer = market.offers[choice]
    return Alternative(market_type(market, choice), offer.capacity_type, offer.zone, market.prices[choice])


def _reason(draft: Draft, cheapest: int, names: Sequence[str], binding: str, others: Sequence[Alternative]) -> str:
    market, offer = draft.market, draft.market.offers[cheapest]
    pods = sum(member.count for member in draft.members)
    place = market.dimensions.index(binding)
    used, room = draft.used[place], market.goods_of[cheapest].room[place]
    text = (
        f"{market_type(market, cheapest)} {offer.capacity_type} at {dollars(market.prices[cheapest])} is the cheapest"
        f" of {_count(len(names), 'type')} with room for {_count(pods, 'pod')};"
        f" {_filled(binding, used, room)}"
    )
    for other in others[:1]:
        text += f"; next is {other.instance_type} {other.capacity_type} at {dollars(other.price_picousd_per_hour)}"
    return text


def _filled(binding: str, used: int, room: int) -> str:
    driver = driver_of(binding)
    if driver:
        return f"its volumes fill it: {used} of {room} that it can attach through {driver}"
    return f"{binding} fills it: {quantity.text(binding, used)} of {_rounded(binding, room)} that daemons leave"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rounded(resource: str, size: int) -> str:
    return f"{size // 2**20}Mi" if resource == resources.MEMORY and size % 2**20 else quantity.text(resource, size)


def dollars(picousd: int) -> str:
    """``$0.3060/h``."""
    return f"${picousd / PICOUSD:.4f}/h"
