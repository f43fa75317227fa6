"""A NodeOverlay (karpenter.sh/v1alpha1): what the user knows better about prices and capacity than the cloud says."""

import msgspec

from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement


class NodeOverlay(msgspec.Struct, frozen=True):
    """A NodeOverlay.

    ``price``: USD per hour as written, replaces the price; ``price_adjustment``: ``+0.05``, ``-0.05``, ``+10%``,
    ``-10%``. At most one of the two, "" = unset. ``capacity``: amounts of extended resources that nodes will have.
    Overlays of greater ``weight`` win. ``read_error``: why the rest of it cannot be read; such an overlay does nothing.
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
