"""NodePools of one weight, and the nodes they make for the pods that wait."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from spotwright.model import resources
from spotwright.model.company import HostPort
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.taints import untolerated
from spotwright.scheduling.bonds import bonds, crowds
from spotwright.scheduling.bounding import HOST, Lot, bound
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.drafts import Draft, Member, keep_limits
from spotwright.scheduling.market import Market, Vector
from spotwright.scheduling.openkeys import OpenKeys
from spotwright.scheduling.packing import Items
from spotwright.scheduling.problem import Allowance, Answer, Problem, up_to
from spotwright.scheduling.search import SIZES, cheapest
from spotwright.scheduling.templates import Daemon, Template
from spotwright.scheduling.topology import Topology
from spotwright.scheduling.waiting import Waiting

# Of so many states of the limits it is known what they allow.
_OPENED: Final = 1000
# Rules on hosts that a lower bound knows of.
_RULES: Final = 4


class Tier:
    """Pools of one weight share a market: among them only the price decides.

    ``asked``: every demand that may come, and labels that rules look at with the values they know: what open keys
    must tell apart. ``reserved``: instances left by capacity reservation, shared by all tiers.
    """

    def __init__(
        self,
        market: Market,
        daemons: Sequence[Daemon],
        used: Mapping[str, Mapping[str, int]],
        asked: Iterable[Requirements],
        reserved: dict[str, int],
    ) -> None:
        self.market = market
        self.daemons = daemons
        self.keys = OpenKeys(market, asked)
        self.before = Allowance([_left(one, used.get(one.pool.name, {})) for one in market.templates], reserved)
        self.allowance = self.before.copy()
        self.allowance.reserved = reserved
        self.drafts: list[Draft] = []
        self._masks: dict[int, tuple[Demand, int]] = {}
        self._opened: dict[object, int] = {}

    def mask(self, demand: Demand) -> int:
        """Choices whose labels and taints a demand accepts."""
        known = self._masks.get(id(demand))
        if known is None:
            known = self._masks[id(demand)] = (demand, self._mask(demand))
        return known[1]

    def open(self, mask: int, fields: int) -> int:
        """Choices of a mask that can have what is left of open keys, without pools that keep too few kinds."""
        return self.market.enough(self.keys.narrow(mask, fields))

    def _mask(self, demand: Demand) -> int:
        mask = self.market.meeting_all(demand.requirements)
        for template, ours in zip(self.market.templates, self.market.of_template, strict=True):
            if template.taints and untolerated(template.taints, demand.tolerations):
                mask &= ~ours
        return mask

    def without_ports(self, ports: Sequence[HostPort]) -> int:
        """Choices whose DaemonSets leave these host ports free."""
        mask = self.market.all
        for daemon in self.daemons if ports else ():
            if any(one.clashes(other) for one in daemon.ports for other in ports):
                for goods in self.market.goods:
                    if self.market.templates[goods.template].runs(daemon, goods.type):
                        mask &= ~goods.mask
        return mask

    def values(self, key: str, mask: int, fields: int) -> Iterator[str | None]:
        """Values that a label can still have, sorted; None first where it may stay away."""
        found: set[str] = set()
        absent = False
        for statement, choices in self.market.statements(key).items():
            if choices & mask:
                if isinstance(statement, str):
                    found.add(statement)
                elif statement is None or (isinstance(statement, Requirement) and statement.allows_absence):
                    absent = True
        open_key = self.keys.get(key)
        if open_key is not None:
            left = self.keys.starts(mask) & fields
            found = set(open_key.possible(left))
            absent = open_key.absent(left)
        yield from (None,) if absent else ()
        yield from sorted(found)

    def certain(self, key: str, mask: int) -> str | None:
        """The value of a label if every choice states the same one."""
        stated = [one for one, choices in self.market.statements(key).items() if choices & mask]
        return stated[0] if len(stated) == 1 and isinstance(stated[0], str) else None

    def holding(self, mask: int, used: Sequence[int], most: int | None) -> int:
        """Choices with so much room, plain ones if possible, of at most so many millicores.

        ``most`` None: within the usual bound on node size if possible.
        """
        fitting = self.market.enough(mask & self.market.fitting(used))
        bounded = self.market.enough(fitting & up_to(self.market.ranks, SIZES[0] if most is None else most))
        fitting = bounded or (fitting if most is None else 0)
        return self.market.enough(fitting & self.market.plain) or fitting

    def cheapest(self, mask: int, *, instead_of: int) -> int:
        """The cheapest choice that the limits allow when another node is given back; -1 if there is none."""
        if any(self.allowance.left) or self.market.reserved:
            mask &= self._open_instead_of(instead_of)
        return (mask & -mask).bit_length() - 1

    def _open_instead_of(self, choice: int) -> int:
        """Choices that the limits allow when a node is given back; choice -1 = none is."""
        goods = self.market.goods_of[choice] if choice >= 0 else None
        given_back = (id(goods), self.market.reservations[choice] if goods else "")
        left = [tuple(one.values()) for one in self.allowance.left]
        look = (given_back, tuple(left), tuple(self.allowance.reserved.values()))
        known = self._opened.get(look)
        if known is None:
            allowance = self.allowance.copy()
            if goods:
                allowance.spend(self.market, choice, -1)
            if len(self._opened) > _OPENED:
                self._opened.clear()
            known = self._opened[look] = allowance.open(self.market)
        return known

    def price(self, choice: int) -> int:
        return self.market.prices[choice] if choice >= 0 else 0

    def cores(self, choice: int) -> int:
        """Millicores of a choice's type."""
        return self.market.goods_of[choice].type.capacity.get(resources.CPU, 0) if choice >= 0 else 0

    def serve(self, waiting: Iterable[Waiting], topology: Topology, budget: int) -> int:
        """Make nodes for as many as possible; the work it took."""
        ours = [one for one in waiting if one.keys and one.demand is not None]
        masks = [self._open(one) for one in ours]
        units = 0
        # What is reserved is paid for: it is used up before anything is bought.
        for sold in (self.market.reserved, self.market.all & ~self.market.reserved):
            for together in _components([mask & sold for mask in masks]):
                several = [masks[j] & sold for j in together]
                units += self._serve([ours[j] for j in together], several, topology, budget - units)
        return units

    def _open(self, waiting: Waiting) -> int:
        """Choices with room for a pod, whose daemons leave its host ports free."""
        assert waiting.demand is not None
        mask = self.mask(waiting.demand) & self.market.fitting(waiting.size)
        return mask & self.without_ports(waiting.cls.host_ports)

    def _serve(self, ours: Sequence[Waiting], masks: Sequence[int], topology: Topology, budget: int) -> int:
        asked = [self.keys.asked(one.demand.requirements) for one in ours if one.demand is not None]
        bound = bonds([(one.cls, one.demand) for one in ours if one.demand is not None], topology)
        problem = Problem(self.market, Items([one.size for one in ours]), masks, asked, self.keys, bound)
        units = 0
        while True:
            answer = cheapest(problem, [len(one.keys) for one in ours], self.allowance, budget - units)
            units += answer.units
            if not answer.batches:
                return units
            self._draft(answer, ours, list(zip(masks, asked, strict=True)))
            self.allowance.left = answer.allowance.left
            self.allowance.reserved.update(answer.allowance.reserved)

    def _draft(self, answer: Answer, ours: Sequence[Waiting], asked: Sequence[tuple[int, int]]) -> None:
        for batch in answer.batches:
            members = [_member(ours[j], count) for j, count in sorted(batch.pods.items())]
            draft = Draft(self.market, batch.choice, members, self.keys)
            draft.narrow(asked[j] for j in batch.pods)
            for _ in range(batch.copies):
                # In the order of the members.
                draft.copies.append(
                    tuple(key for j, count in sorted(batch.pods.items()) for key in ours[j].take(count))
                )
            self.drafts.append(draft)

    def bound(self, topology: Topology) -> int:
        """What the pods of its nodes cost at least in these pools, in picodollars per hour."""
        counts: dict[tuple[int, int], int] = {}
        pairs: dict[tuple[int, int], tuple[PodClass, Demand]] = {}
        for draft in self.drafts:
            for one in draft.members:
                look = one.cls.index, id(one.demand)
                pairs[look] = one.cls, one.demand
                counts[look] = counts.get(look, 0) + one.count * len(draft.copies)
        ours = list(pairs)
        shares = _hosts([pairs[look] for look in ours], [counts[look] for look in ours], topology)
        lots: dict[tuple[Vector, int, tuple[int, ...]], int] = {}
        for j, look in enumerate(ours):
            cls, demand = pairs[look]
            size = tuple([cls.requests.get(name, 0) for name in self.market.dimensions])
            lot = size, self.mask(demand), tuple([share.get(j, 0) for share in shares])
            lots[lot] = lots.get(lot, 0) + counts[look]
        return bound(self.market, [Lot(count, *lot) for lot, count in sorted(lots.items())])

    def settle(self) -> list[Draft]:
        """All nodes, with the limits kept whatever is launched."""
        keep_limits(self.drafts, self.before)
        return self.drafts


def _hosts(
    classes: Sequence[tuple[PodClass, Demand]], counts: Sequence[int], topology: Topology
) -> list[dict[int, int]]:
    """What part of a host one pod takes up, by the class's place, for each of the rules that need most hosts."""
    ruled = [j for j, (cls, demand) in enumerate(classes) if demand.spreads or demand.apart or cls.host_ports]
    found = crowds(bonds([classes[j] for j in ruled], topology))
    needed = sorted(
        ((sum(counts[ruled[k]] for k in several) / cap, cap, several) for cap, several in found), reverse=True
    )
    return [{ruled[k]: HOST // cap for k in several} for _, cap, several in needed[:_RULES]]


def _member(waiting: Waiting, count: int) -> Member:
    demand = waiting.demand
    assert demand is not None
    return Member(waiting.cls, demand, count)


class Markets:
    """Markets by their pools and resources: attempts at one plan share them."""

    def __init__(self, daemons: Sequence[Daemon]) -> None:
        self.daemons = daemons
        self._known: dict[object, Market] = {}

    def of(self, templates: Sequence[Template], names: Sequence[str]) -> Market:
        look = (tuple(map(id, templates)), tuple(names))
        if look not in self._known:
            # The market keeps its templates, so nobody else gets their ids.
            self._known[look] = Market(templates, self.daemons, names)
        return self._known[look]


def tiers(
    templates: Sequence[Template],
    markets: Markets,
    names: Sequence[str],
    used: Mapping[str, Mapping[str, int]],
    asked: Sequence[Requirements],
    reserved: dict[str, int],
) -> list[Tier]:
    """One tier per weight, heaviest first. ``reserved``: instances left by capacity reservation."""
    by_weight = groupby(templates, key=lambda one: one.pool.weight)
    sold = (markets.of(list(alike), names) for _, alike in by_weight)
    return [Tier(market, markets.daemons, used, asked, reserved) for market in sold]


def _left(template: Template, used: Mapping[str, int]) -> dict[str, int]:
    limits = template.pool.limits
    return {name: limit - used.get(name, 0) for name, limit in resources.subtract(limits, {}).items()}


def _components(masks: Sequence[int]) -> list[list[int]]:
    """Classes by the choices they share, directly or through others; those without any choice are left out."""
    found: list[tuple[int, list[int]]] = []
    for j, mask in enumerate(masks):
        if not mask:
            continue
        apart, together = [], [j]
        for other, members in found:
            if other & mask:
                mask |= other
                together += members
            else:
                apart.append((other, members))
        found = [*apart, (mask, together)]
    return sorted(sorted(members) for _, members in found)
