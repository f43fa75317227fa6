"""A pod, as far as it decides about nodes."""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.company import Company, HostPort, Spread, Wish
from spotwright.model.objects import Metadata
from spotwright.model.requirements import Selector
from spotwright.model.taints import Toleration

# How a pod's ``unhandled`` names its device claims.
DEVICE_CLAIMS: Final = "spec.resourceClaims"


class Pod(msgspec.Struct, frozen=True):
    """A pod.

    ``requests``: what the scheduler counts, ``pods: 1`` included (cpu millicores, memory bytes).
    ``node_affinity``: required OR-terms, each a conjunction; empty = no demand.
    ``unhandled``: constraints it carries that the planner does not handle, as field paths; such a pod is
    reported unschedulable with that reason, never placed wrongly.
    ``node_preferences``: (weight, conjunction). ``near`` and ``apart``: required pod affinity and anti-affinity;
    ``rather_near`` and ``rather_apart``: the preferred ones. ``volume_claims``: names in the pod's namespace.
    ``problem``: why the pod cannot be read (a malformed quantity …), naming field and value; "" = fine.
    """

    metadata: Metadata
    requests: dict[str, int] = {}
    node_selector: dict[str, str] = {}
    node_affinity: tuple[tuple[Selector, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    priority_class: str = ""
    scheduler: str = "default-scheduler"
    node_name: str = ""
    nominated_node: str = ""
    phase: str = "Pending"
    unschedulable: bool = False
    started: datetime | None = None
    termination_grace_seconds: int = 30
    ready: bool = False
    unhandled: tuple[str, ...] = ()
    problem: str = ""
    node_preferences: tuple[tuple[int, tuple[Selector, ...]], ...] = ()
    spreads: tuple[Spread, ...] = ()
    near: tuple[Company, ...] = ()
    apart: tuple[Company, ...] = ()
    rather_near: tuple[Wish, ...] = ()
    rather_apart: tuple[Wish, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volume_claims: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Neither finished nor being deleted."""
        return not self.terminal and self.metadata.deleting is None

    def owned_by(self, kind: str) -> bool:
        return any(owner.kind == kind for owner in self.metadata.owners)

    @property
    def mirror(self) -> bool:
        """A static pod's shadow: owned by its Node."""
        return self.owned_by("Node")


class DaemonSet(msgspec.Struct, frozen=True):
    """A DaemonSet: what one of its pods would ask of a new node. ``template.metadata`` names the DaemonSet."""

    metadata: Metadata
    template: Pod


class PodDisruptionBudget(msgspec.Struct, frozen=True):
    """A budget: ``selector`` None selects nothing, () everything in the namespace.

    ``unreadable``: why the rest of it cannot be read; then it allows nothing to anybody in its namespace.
    """

    metadata: Metadata
    selector: tuple[Selector, ...] | None
    disruptions_allowed: int = 0
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"
    unreadable: str = ""
