"""Pods that still have no place, class by class."""

from collections.abc import Iterable

from spotwright.model import resources
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.offerings.pool_types import Vector

_ALWAYS = (resources.CPU, resources.MEMORY, resources.PODS)


class PendingClass:
    """The pods of a class that have no place yet, and how many of its preferences are given up.

    ``size``: what one pod requests, in the order of the plan's resources.
    """

    __slots__ = ("pod_class", "pod_keys", "relaxation_level", "size")

    def __init__(self, pod_class: PodClass, size: Vector) -> None:
        self.pod_class = pod_class
        self.pod_keys = list(pod_class.pod_keys)
        self.size = size
        self.relaxation_level = 0

    @property
    def pod_requirements(self) -> PodRequirements:
        """What the pods ask for now. Only for a class that ``can_be_placed``."""
        return self.pod_class.requirement_levels[self.relaxation_level]

    @property
    def can_be_placed(self) -> bool:
        """True when pods are left and their node selector and node affinity do not contradict each other."""
        return bool(self.pod_keys and self.pod_class.requirement_levels)

    def take(self, count: int) -> tuple[str, ...]:
        """The keys of the next pods; they are no longer pending."""
        taken = tuple(self.pod_keys[:count])
        del self.pod_keys[:count]
        return taken

    def relax_all(self) -> None:
        """Give up all preferences."""
        self.relaxation_level = max(self.relaxation_level, self.pod_class.first_required_level)

    def relax(self) -> bool:
        """Give up one preference; False when none is left."""
        if self.relaxation_level + 1 >= len(self.pod_class.requirement_levels):
            return False
        self.relaxation_level += 1
        return True


class AssignedPods(PendingClass):
    """Pods of a class that are to be in certain domains. ``is_pinned``: rules between pods count on these domains.

    ``may_lose``, ``may_gain``: how many pods these domains may pass on to, and take from, other domains of the class;
    ``gained``: how many they have taken.
    """

    __slots__ = ("_pod_requirements", "gained", "is_pinned", "may_gain", "may_lose", "parent")

    def __init__(self, parent: PendingClass, pod_requirements: PodRequirements, *, is_pinned: bool) -> None:
        super().__init__(parent.pod_class, parent.size)
        self.pod_keys = []
        self.parent = parent
        self.is_pinned = is_pinned
        self.may_lose = self.may_gain = self.gained = 0
        self._pod_requirements = pod_requirements

    @property
    def pod_requirements(self) -> PodRequirements:
        return self._pod_requirements

    def gain(self, pod_keys: Iterable[str]) -> None:
        """Take pods from other domains of the class."""
        before = len(self.pod_keys)
        self.pod_keys += pod_keys
        self.gained += len(self.pod_keys) - before

    def lose(self, count: int) -> tuple[str, ...]:
        """Pass on so many pods to other domains of the class."""
        self.gained -= count
        return self.take(count)

    def return_unplaced(self) -> None:
        """Give pods that found no node back to their class."""
        self.parent.pod_keys = sorted([*self.parent.pod_keys, *self.pod_keys])
        self.pod_keys = []


def resource_dimensions(classes: Iterable[PodClass]) -> tuple[str, ...]:
    """The resources that matter: cpu, memory and pods first, then by name what else is requested."""
    requested = {name for pod_class in classes for name in pod_class.requests}
    return (*_ALWAYS, *sorted(requested.difference(_ALWAYS)))


def build_pending_classes(classes: Iterable[PodClass], dimensions: tuple[str, ...]) -> list[PendingClass]:
    """All pods of these classes, pending."""
    return [
        PendingClass(pod_class, tuple(pod_class.requests.get(name, 0) for name in dimensions)) for pod_class in classes
    ]
