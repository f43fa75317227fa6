"""Pods that still have no place, class by class."""

from collections.abc import Iterable

from spotwright.model import resources
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements
from spotwright.scheduling.offerings.offering_index import Vector

_ALWAYS = (resources.CPU, resources.MEMORY, resources.PODS)


class PendingClass:
    """The pods of a class that are left, and how far they have given in."""

    __slots__ = ("pod_class", "pod_keys", "relaxation_level", "size")

    def __init__(self, cls: PodClass, size: Vector) -> None:
        self.pod_class = cls
        self.pod_keys = list(cls.pod_keys)
        self.size = size
        self.relaxation_level = 0

    @property
    def pod_requirements(self) -> PodRequirements | None:
        """What they ask for now; None if they contradict themselves whatever they give up."""
        return self.pod_class.requirement_levels[self.relaxation_level] if self.pod_class.requirement_levels else None

    def take(self, count: int) -> tuple[str, ...]:
        """The next pods, by name."""
        taken = tuple(self.pod_keys[:count])
        del self.pod_keys[:count]
        return taken

    def relax(self) -> bool:
        """Ask for less; False when there is nothing left to give up."""
        if self.relaxation_level + 1 >= len(self.pod_class.requirement_levels):
            return False
        self.relaxation_level += 1
        return True


class AssignedPods(PendingClass):
    """Pods of a class whose domains are settled. ``is_pinned``: others count on these domains."""

    __slots__ = ("_demand", "is_pinned", "parent")

    def __init__(self, parent: PendingClass, demand: PodRequirements, *, is_pinned: bool) -> None:
        super().__init__(parent.pod_class, parent.size)
        self.pod_keys = []
        self.parent = parent
        self.is_pinned = is_pinned
        self._demand = demand

    @property
    def pod_requirements(self) -> PodRequirements | None:
        return self._demand

    def return_unplaced(self) -> None:
        """Pods that found no node wait with the others again."""
        self.parent.pod_keys = sorted([*self.parent.pod_keys, *self.pod_keys])
        self.pod_keys = []


def resource_dimensions(classes: Iterable[PodClass]) -> tuple[str, ...]:
    """The resources that matter: cpu, memory and pods first, then by name what else is asked for."""
    asked = {name for pod_class in classes for name in pod_class.requests}
    return (*_ALWAYS, *sorted(asked.difference(_ALWAYS)))


def build_pending_classes(classes: Iterable[PodClass], names: tuple[str, ...]) -> list[PendingClass]:
    """All pods of these classes, waiting."""
    return [PendingClass(pod_class, tuple(pod_class.requests.get(name, 0) for name in names)) for pod_class in classes]
