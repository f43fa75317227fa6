"""A NodeOverlay (karpenter.sh/v1alpha1): prices and capacity of instance types that a user states."""

import msgspec

from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement


class NodeOverlay(msgspec.Struct, frozen=True):
    """A NodeOverlay.

    ``price``: USD per hour as written, replaces the price; ``price_adjustment``: ``+0.05``, ``-0.05``, ``+10%``,
    ``-10%``. At most one of the two is set, "" = unset. ``capacity``: extended resources that nodes will have.
    Overlays of greater ``weight`` win. ``read_error``: why the rest cannot be read; such an overlay has no effect.
    """

    metadata: ObjectMeta
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    price: str = ""
    price_adjustment: str = ""
    capacity: dict[str, int] = {}
    weight: int = 0
    conditions: tuple[Condition, ...] = ()
    read_error: str = msgspec.field(default="", name="unreadable")

    @property
    def name(self) -> str:
        return self.metadata.name
