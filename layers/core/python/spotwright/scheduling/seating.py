"""Pods that have rules about each other, seated one by one.

Every pod goes where all rules hold at that moment: on a node that exists, else on the node in the making to which it
adds least, or on one of its own. Pods that find no place are tried again as long as others find one, since they may
have waited for these.
"""

from collections.abc import Iterable, Iterator, Sequence

from spotwright.model.requirements import Requirements
from spotwright.scheduling.classes import Demand
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.rooms import Room, Vacancies, Welcome
from spotwright.scheduling.rules import Rule
from spotwright.scheduling.sites import Option, Site, found, join
from spotwright.scheduling.tiers import Tier
from spotwright.scheduling.topology import Topology
from spotwright.scheduling.waiting import Waiting


class Seating:
    """The places of one plan, as seats for pods with rules.

    ``wide``: pods that others want on their very host keep apart, so that there are hosts enough.
    """

    def __init__(
        self, rooms: Sequence[Room], tiers: Sequence[Tier], topology: Topology, disks: Disks, *, wide: bool = False
    ) -> None:
        self.wide = wide
        self.vacancies = Vacancies(rooms)
        self.tiers = tiers
        self.topology = topology
        self.disks = disks
        self.sites: list[Site] = []
        self.units = 0

    def seat(self, waiting: Iterable[Waiting]) -> int:
        """Seat as many as possible, wherever that is; how many were."""
        total, seated = 0, -1
        while seated:
            seated = sum(self._seat_class(one, one.demand) for one in waiting if one.keys and one.demand is not None)
            total += seated
        return total

    def seat_in_rooms(self, waiting: Waiting, demand: Demand) -> int:
        """Seat pods of a class on nodes there are; how many were."""
        rules = self.topology.rules(waiting.cls, demand)
        volumes = self.disks.reachable(waiting.cls.pod)
        seated = 0
        for room in self.open_rooms(waiting):
            if not waiting.keys:
                break
            self.units += 1
            while waiting.keys and self._takes(room, waiting, rules, volumes):
                self._give(room, waiting)
                seated += 1
        return seated

    def has_rooms(self, waiting: Waiting) -> bool:
        """True when some node that exists could hold another pod of a class, rules aside."""
        return next(self.open_rooms(waiting), None) is not None

    def open_rooms(self, waiting: Waiting) -> Iterator[Room]:
        """Nodes that exist and could hold another pod of a class, rules aside."""
        welcome = Welcome([waiting])
        return (room for room in self.vacancies.fitting(waiting.size) if welcome.of(room.host))

    def _give(self, room: Room, waiting: Waiting) -> None:
        room.seat(waiting, self.disks)
        self.topology.note(room)

    def _seat_class(self, waiting: Waiting, demand: Demand) -> int:
        """How many pods of a class found a seat."""
        rules = self.topology.rules(waiting.cls, demand)
        volumes = self.disks.reachable(waiting.cls.pod)
        rooms, seated = list(self.open_rooms(waiting)), 0
        while waiting.keys and self._seat_one(waiting, demand, rules, volumes, rooms):
            seated += 1
        return seated

    def _seat_one(
        self,
        waiting: Waiting,
        demand: Demand,
        rules: Sequence[Rule],
        volumes: Sequence[Requirements],
        rooms: Sequence[Room],
    ) -> bool:
        for room in rooms:
            self.units += 1
            if self._takes(room, waiting, rules, volumes):
                self._give(room, waiting)
                return True
        option = self._best_site(waiting, demand, rules, volumes)
        if option is None:
            return False
        if option.site.choice < 0:
            self.sites.append(option.site)
        option.site.add(waiting, demand, option.state, option.choice)
        self.topology.note(option.site)
        return True

    def _takes(self, room: Room, waiting: Waiting, rules: Sequence[Rule], volumes: Sequence[Requirements]) -> bool:
        if not room.fits(waiting.size):
            return False
        if not all(rule.allows(room.domain(rule.key)) for rule in rules):
            return False
        if volumes and not any(room.host.admits(one) for one in volumes):
            return False
        if any(ours.clashes(port) for ours in waiting.cls.host_ports for port in room.ports):
            return False
        return not self.disks.full(room.host, room.attached, self.disks.attachments(waiting.cls.pod))

    def _best_site(
        self, waiting: Waiting, demand: Demand, rules: Sequence[Rule], volumes: Sequence[Requirements]
    ) -> Option | None:
        """The cheapest seat on a node in the making, or on a new one of the heaviest pools that make one."""
        options = []
        keeps_apart = self.wide and self.topology.wanted_on_host(waiting.cls)
        for site in self.sites:
            self.units += 1
            option = join(site, waiting, demand, rules, volumes)
            if option is not None:
                if option.cost <= 0 and not keeps_apart:
                    return option
                options.append(option)
        name = f"new node {len(self.sites) + 1}"
        for tier in self.tiers:
            self.units += 1
            option = found(name, tier, waiting, demand, rules, volumes)
            if option is not None:
                options.append(option)
                break
        if keeps_apart:
            return min(options, key=lambda one: (_alike(one.site, waiting), one.cost), default=None)
        return min(options, key=lambda one: one.cost, default=None)


def _alike(site: Site, waiting: Waiting) -> int:
    """How many pods of a class a node has."""
    return sum(count for cls, count in site.members if cls is waiting.cls)
