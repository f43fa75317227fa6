"""A NodeOverlay (karpenter.sh/v1alpha1): what the user knows better about prices and capacity than the cloud says."""

import msgspec

from spotwright.model.objects import Condition, Metadata
from spotwright.model.requirements import Selector


class NodeOverlay(msgspec.Struct, frozen=True):
    """A NodeOverlay.

    ``price``: USD per hour as written, replaces the price; ``price_adjustment``: ``+0.05``, ``-0.05``, ``+10%``,
    ``-10%``. At most one of the two, "" = unset. ``capacity``: amounts of extended resources that nodes will have.
    Overlays of greater ``weight`` win. ``unreadable``: why the rest of it cannot be read; such an overlay does nothing.
    """

    metadata: Metadata
    requirements: tuple[Selector, ...] = ()
    price: str = ""
    price_adjustment: str = ""
    capacity: dict[str, int] = {}
    weight: int = 0
    conditions: tuple[Condition, ...] = ()
    unreadable: str = ""

    @property
    def name(self) -> str:
        return self.metadata.name
