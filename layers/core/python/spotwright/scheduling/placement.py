"""The working state of one plan: rooms, markets, rules, and who still waits."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property

import msgspec

from spotwright.model.company import LabelSelector
from spotwright.model.labels import HOSTNAME
from spotwright.model.pod import Pod
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.model.taints import Effect
from spotwright.model.volumes import slot
from spotwright.scheduling import reservations
from spotwright.scheduling.assigning import Assigner
from spotwright.scheduling.classes import Demand, PodClass, Taste, group
from spotwright.scheduling.disks import Disks, shared_claims
from spotwright.scheduling.hosts import Fleet
from spotwright.scheduling.leftover import top_up
from spotwright.scheduling.rooms import Room, Welcome, occupy
from spotwright.scheduling.seating import Seating
from spotwright.scheduling.sites import Site
from spotwright.scheduling.tally import Residents
from spotwright.scheduling.templates import Daemon, Template
from spotwright.scheduling.tiers import Markets, Tier, tiers
from spotwright.scheduling.topology import Topology
from spotwright.scheduling.waiting import Share, Waiting, dimensions, queue

_NAME_LABEL = "kubernetes.io/metadata.name"


class World(msgspec.Struct, frozen=True, dict=True):
    """What every attempt at a plan shares. ``moving``: pods to place, by key."""

    snapshot: Snapshot
    standing: Fleet
    templates: Sequence[Template]
    daemons: Sequence[Daemon]
    disks: Disks
    moving: frozenset[str]

    @property
    def settings(self) -> Settings:
        return self.snapshot.settings

    @cached_property
    def namespaces(self) -> dict[str, dict[str, str]]:
        """Labels of every namespace that is known or has a pod."""
        seen = {pod.metadata.namespace for pod in self.snapshot.pods}
        known = self.snapshot.namespaces
        return {name: {_NAME_LABEL: name} | known.get(name, {}) for name in sorted(seen.union(known))}

    @cached_property
    def residents(self) -> Residents:
        """The pods that stay where they are."""
        return Residents((*self.standing.hosts, *self.standing.leaving), self.moving)

    @cached_property
    def markets(self) -> Markets:
        return Markets(self.daemons)

    @cached_property
    def taste(self) -> Taste:
        taints = [*(one.taints for one in self.standing.hosts), *(one.taints for one in self.templates)]
        return Taste(
            respects=self.settings.preference_policy != "Ignore",
            soft_taints=any(one.effect == Effect.PREFER_NO_SCHEDULE for several in taints for one in several),
            label_keys=_label_keys(self.snapshot.pods),
        )


def _label_keys(pods: Iterable[Pod]) -> tuple[str, ...] | None:
    """Pod labels that some rule looks at; None if there is no rule."""
    ruled = [pod for pod in pods if pod.apart or pod.spreads or pod.near or pod.rather_near or pod.rather_apart]
    if not ruled:
        return None
    return tuple(sorted({one.key for pod in ruled for selector in _selectors(pod) for one in selector or ()}))


def _selectors(pod: Pod) -> Iterator[LabelSelector]:
    yield from (one.selector for one in pod.spreads)
    yield from (one.selector for one in (*pod.near, *pod.apart))
    yield from (one.company.selector for one in (*pod.rather_near, *pod.rather_apart))


class Placement:
    """Who is placed where so far. ``held_back``: followers that may not cause a node.

    ``bands``: pods in the order in which they are served; what is left to one band is what those before it left.
    ``occupy``: how pods without rules fill the nodes there are. ``singly``: pods whose classes are seated one by one
    even where all others are packed at once.

    ``stuck``: a pod of each class that found no node in its domains when all were packed at once.
    """

    def __init__(
        self,
        world: World,
        bands: Sequence[Sequence[Pod]],
        templates: Sequence[Template],
        *,
        wide: bool = False,
        occupy: Callable[[Sequence[Room], Sequence[Waiting]], int] = occupy,
        singly: Set[str] = frozenset(),
    ) -> None:
        together = [group(pods, world.taste) for pods in bands]
        classes = [one for several in together for one in several]
        for number, one in enumerate(classes):
            one.index = number
        _count_volumes(classes, [pod for several in bands for pod in several], templates, world.disks)
        names = dimensions(classes)
        standing = world.standing
        self.topology = Topology(standing.hosts, templates, world.namespaces, world.residents)
        self.topology.learn(classes)
        self.rooms = [Room(host, names, world.disks) for host in standing.hosts]
        asked = list(_asked(classes, self.topology, world.disks))
        reserved = reservations.left(templates, world.snapshot)
        self.tiers: list[Tier] = tiers(templates, world.markets, names, standing.used, asked, reserved)
        self.seating = Seating(self.rooms, self.tiers, self.topology, world.disks, wide=wide)
        self.bands = [queue(several, names) for several in together]
        self._occupy = occupy
        self._singly = singly
        self.stuck: list[str] = []
        self.waiting: list[Waiting] = [one for several in self.bands for one in several]
        self.held_back: list[Pod] = []
        self.units = 0

    def run(self, budget: int, *, at_once: bool) -> bool:
        """Place what can be placed; those without a place give in step by step.

        ``at_once``: pods with rules get their domains first and are packed by price with all others. False when a pod
        then found no node in the domain that others already counted on; then all must be placed one by one.
        """
        for one in self.waiting:
            self._lower(one)
        # Who comes first may have waited for somebody who came later.
        again = [self.waiting] if len(self.bands) > 1 else []
        for number, waiting in enumerate([*self.bands, *again]):
            if number:
                self._reopen()
            if not self._serve([one for one in waiting if one.keys], budget, at_once=at_once):
                return False
        for site in self.seating.sites:
            site.tier.drafts.append(site.draft())
        self.units += self.seating.units
        return True

    def _serve(self, trying: Sequence[Waiting], budget: int, *, at_once: bool) -> bool:
        while trying:
            ruled = [one for one in trying if one.demand and self.topology.entangled(one.cls, one.demand)]
            bound = {id(one) for one in ruled}
            free = [one for one in trying if id(one) not in bound]
            shares = self._settle(ruled) if at_once else []
            if not at_once:
                self.seating.seat(ruled)
            self.units += self._occupy(self.rooms, free)
            self.units += top_up(self.seating.sites, [*free, *shares], self.topology)
            for tier in self.tiers:
                self.units += tier.serve([*free, *shares], self.topology, budget - self.units)
            self.stuck = [one.cls.keys[0] for one in shares if one.keys and one.pinned]
            if self.stuck:
                return False
            for share in shares:
                share.give_back()
            # Who has rules may have waited for somebody who gives in only now.
            left = [one for one in trying if one.keys]
            gave_in = {id(one) for one in left if one.give_in()}
            for one in left:
                self._lower(one)
            trying = [one for one in left if id(one) in gave_in or id(one) in bound] if gave_in else []
            if trying:
                self._reopen()
        return True

    def _lower(self, waiting: Waiting) -> None:
        """Give up what no node has, whoever is on it: so the class is packed with all others, not after them."""
        while waiting.demand is not None and not self._possible(waiting, waiting.demand) and waiting.give_in():
            pass

    def _possible(self, waiting: Waiting, demand: Demand) -> bool:
        if any(tier.mask(demand) & tier.market.fitting(waiting.size) for tier in self.tiers):
            return True
        welcome = Welcome([waiting])
        return any(welcome.of(room.host) for room in self.rooms)

    def _reopen(self) -> None:
        """Let nodes that were packed take more, now that some pods have given in."""
        for tier in self.tiers:
            for draft in tier.drafts:
                for pods in draft.copies:
                    name = f"new node {len(self.seating.sites) + 1}"
                    site = Site.of(draft, tier, pods, name)
                    self.topology.adopt(site)
                    self.seating.sites.append(site)
            tier.drafts.clear()

    def _settle(self, ruled: Sequence[Waiting]) -> list[Share]:
        """Seats for those who must share a host, seats on nodes there are, and domains for the rest.

        As long as somebody finds a place others may have waited for it.
        """
        shares: list[Share] = []
        progress = -1
        while progress:
            progress = 0
            for one in ruled:
                if one.keys and one.demand is not None:
                    progress += self._settle_class(one, one.demand, shares)
        return shares

    def _settle_class(self, waiting: Waiting, demand: Demand, shares: list[Share]) -> int:
        before = len(waiting.keys)
        if self.topology.tight(waiting.cls, demand) or waiting.cls.keys[0] in self._singly:
            return self.seating.seat([waiting])
        assigner = Assigner(waiting, demand, self.topology, self.tiers, self.seating.disks)
        moved = -1
        # A node that was full for a spread has its turn again once other domains have theirs.
        while waiting.keys and moved:
            moved = self.seating.seat_in_rooms(waiting, demand)
            if not moved:
                moved = assigner.assign(1 if self.seating.has_rooms(waiting) else len(waiting.keys))
        shares += assigner.shares()
        return before - len(waiting.keys)

    def held_by_limits(self) -> list[str]:
        """Pods without a place for which a node could be bought if there were no limits."""
        return [
            key
            for one in self.waiting
            if one.keys and one.demand is not None
            for tier in self.tiers
            if any(tier.allowance.left) and tier.mask(one.demand) & tier.market.fitting(one.size)
            for key in one.keys
        ]

    def left(self) -> set[str]:
        """Pods without a place, by key."""
        return {key for one in self.waiting for key in one.keys}

    def exchange(self, names: Mapping[str, str]) -> None:
        """Let pods take each other's places."""
        for draft in (draft for tier in self.tiers for draft in tier.drafts):
            draft.copies = [tuple([names.get(key, key) for key in keys]) for keys in draft.copies]
        for room in self.rooms:
            room.given = [names.get(key, key) for key in room.given]
        for one in self.waiting:
            one.keys = sorted(names.get(key, key) for key in one.keys)

    def unwilling(self, told: Set[str]) -> set[str]:
        """Those of the pods that have no place or gave up something for it."""
        return {key for one in self.waiting if one.keys or one.step for key in one.cls.keys if key in told}

    def price(self) -> int:
        """What the nodes to make cost, in picodollars per hour."""
        return sum(tier.market.prices[draft.choice] * len(draft.copies) for tier in self.tiers for draft in tier.drafts)

    def betters(self, other: "Placement") -> bool:
        """True when no pod fares worse than in another attempt, and more pods are placed or they cost less."""
        ours, theirs = self._conceded(), other._conceded()
        if any(conceded > theirs[key] for key, conceded in ours.items()):
            return False
        return (
            sum(left for left, _ in ours.values()) < sum(left for left, _ in theirs.values())
            or self.price() < other.price()
        )

    def _conceded(self) -> dict[str, tuple[bool, int]]:
        """Per pod: whether it has no place, and how far its class has given in."""
        return {
            key: (key in left, one.step) for one in self.waiting for left in (set(one.keys),) for key in one.cls.keys
        }

    def by_tier(self, pods: Sequence[Pod]) -> list[list[Pod]]:
        """Pods by the tier that made their node, lightest first; before them those that got no new node.

        In this order, pods that may use a heavier pool first take what is left on nodes that others need anyway.
        """
        made = {
            key: number
            for number, tier in enumerate(self.tiers)
            for draft in tier.drafts
            for keys in draft.copies
            for key in keys
        }
        if len(set(made.values())) < 2:
            return [list(pods)]
        found: dict[int, list[Pod]] = {}
        for pod in pods:
            found.setdefault(made.get(pod.key, len(self.tiers)), []).append(pod)
        return [found[number] for number in sorted(found, reverse=True)]

    @property
    def has_rules(self) -> bool:
        """True when the pods around it decide where some pod goes."""
        return any(one.cls.demands and self.topology.entangled(one.cls, one.cls.demands[0]) for one in self.waiting)

    @property
    def lacks_hosts(self) -> bool:
        """True when somebody is left who must share a host with other pods, and these were placed."""
        left = (one.demand for one in self.waiting if one.keys and one.demand is not None)
        return any(company.key == HOSTNAME for demand in left for company in demand.near)

    @property
    def fills_rooms(self) -> bool:
        return any(room.given for room in self.rooms)

    @property
    def places_any(self) -> bool:
        return any(tier.drafts for tier in self.tiers) or self.fills_rooms


def _count_volumes(
    classes: Iterable[PodClass], pods: Sequence[Pod], templates: Iterable[Template], disks: Disks
) -> None:
    """Volumes become requests where a type limits how many can be attached."""
    several = [one for one in classes if one.pod.volume_claims]
    if several:
        limited = {slot(driver) for one in templates for type_ in one.types for driver in type_.attachable}
        shared = shared_claims(pods)
        for one in several:
            taken = disks.slots(one.pod, shared).items()
            one.requests |= {name: count for name, count in taken if name in limited}


def _asked(classes: Iterable[PodClass], topology: Topology, disks: Disks) -> Iterator[Requirements]:
    for cls in classes:
        yield from (demand.requirements for demand in cls.demands)
        if cls.pod.volume_claims:
            yield from disks.reachable(cls.pod)
    for key, values in sorted(topology.keys().items()):
        yield Requirements({key: Requirement(key, False, frozenset(values))})
