"""Pods that still have no place, class by class."""

from collections.abc import Iterable

from spotwright.model import resources
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.market import Vector

_ALWAYS = (resources.CPU, resources.MEMORY, resources.PODS)


class Waiting:
    """The pods of a class that are left, and how far they have given in."""

    __slots__ = ("cls", "keys", "size", "step")

    def __init__(self, cls: PodClass, size: Vector) -> None:
        self.cls = cls
        self.keys = list(cls.keys)
        self.size = size
        self.step = 0

    @property
    def demand(self) -> Demand | None:
        """What they ask for now; None if they contradict themselves whatever they give up."""
        return self.cls.demands[self.step] if self.cls.demands else None

    def take(self, count: int) -> tuple[str, ...]:
        """The next pods, by name."""
        taken = tuple(self.keys[:count])
        del self.keys[:count]
        return taken

    def give_in(self) -> bool:
        """Ask for less; False when there is nothing left to give up."""
        if self.step + 1 >= len(self.cls.demands):
            return False
        self.step += 1
        return True


class Share(Waiting):
    """Pods of a class whose domains are settled. ``pinned``: others count on these domains."""

    __slots__ = ("_demand", "parent", "pinned")

    def __init__(self, parent: Waiting, demand: Demand, *, pinned: bool) -> None:
        super().__init__(parent.cls, parent.size)
        self.keys = []
        self.parent = parent
        self.pinned = pinned
        self._demand = demand

    @property
    def demand(self) -> Demand | None:
        return self._demand

    def give_back(self) -> None:
        """Pods that found no node wait with the others again."""
        self.parent.keys = sorted([*self.parent.keys, *self.keys])
        self.keys = []


def dimensions(classes: Iterable[PodClass]) -> tuple[str, ...]:
    """The resources that matter: cpu, memory and pods first, then by name what else is asked for."""
    asked = {name for one in classes for name in one.requests}
    return (*_ALWAYS, *sorted(asked.difference(_ALWAYS)))


def queue(classes: Iterable[PodClass], names: tuple[str, ...]) -> list[Waiting]:
    """All pods of these classes, waiting."""
    return [Waiting(one, tuple(one.requests.get(name, 0) for name in names)) for one in classes]
