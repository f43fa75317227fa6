"""Instance types with their offerings: what EC2 sells, in which zone, and at what price."""

from collections.abc import Iterable
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.requirements import Requirements

# Reserved offerings cost a ten-millionth of on-demand, so anything coarser than picodollars would tie them.
PICOUSD: Final = 10**12


_ACCELERATOR_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron")
_ACCELERATOR_LABELS: Final = (labels.INSTANCE_PREFIX + "gpu-count", labels.INSTANCE_PREFIX + "accelerator-count")
# Stands for every instance type, or every zone, in health rows.
WILDCARD: Final = "*"


class Offering(msgspec.Struct, frozen=True):
    """An instance type in a zone with a capacity type. ``reservation_capacity``: instances left; 0 = not reserved.

    ``unavailable_reason``: EC2's error code of a recent failure, "" = none. ``lacks_price``: only the missing price
    makes it unavailable. ``penalty_percent``: by how much it counts dearer in choosing; ``penalty_reason``: for what,
    "" = it counts as what it costs.
    """

    zone: str
    capacity_type: str
    price_picousd_per_hour: int
    available: bool = True
    requirements: Requirements = Requirements()
    reservation_capacity: int = 0
    unavailable_reason: str = ""
    lacks_price: bool = False
    penalty_percent: int = 0
    penalty_reason: str = ""

    @property
    def weighed_price(self) -> int:
        """What it counts as in choosing, in picodollars per hour."""
        return self.price_picousd_per_hour * (100 + self.penalty_percent) // 100


class InstanceType(msgspec.Struct, frozen=True):
    """An instance type as nodes of an EC2NodeClass have it.

    ``requirements``: its labels (zone and capacity type come from the offerings too).
    ``capacity`` and ``allocatable``: cpu millicores, memory bytes, pods; allocatable is capacity without kube-reserved,
    system-reserved and the eviction threshold.
    ``price_overlay_applied``, ``capacity_overlay_applied``: a NodeOverlay states some of its prices, or some of its
    resources. A type that has other resources in some offerings than in others stands in the catalog once for each
    amount, every time with the offerings in which it has that.
    ``attachable_volumes``: CSI driver → how many volumes of pods; without a limit it is missing.
    ``kubelet_reserved``: reserved amounts that the node's kubelet must be told, where the class states them as
    expressions.
    """

    name: str
    requirements: Requirements
    capacity: dict[str, int]
    allocatable: dict[str, int]
    offerings: tuple[Offering, ...]
    price_overlay_applied: bool = False
    capacity_overlay_applied: bool = False
    kubelet_reserved: dict[str, dict[str, str]] = {}
    attachable_volumes: dict[str, int] = {}


def is_exotic(instance_type: InstanceType) -> bool:
    """Bare metal, or with GPUs or accelerators: dear, slow to start, and rarely what a pod needs that asks for none.

    Not every accelerator is a resource of the node, and not every one has a label.
    """
    if instance_type.name.partition(".")[2].startswith("metal"):
        return True
    stated = (instance_type.requirements.by_key.get(key) for key in _ACCELERATOR_LABELS)
    return any(instance_type.capacity.get(name) for name in _ACCELERATOR_RESOURCES) or any(
        requirement is not None and not requirement.allows_absence for requirement in stated
    )


def drop_reserved_offerings(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    """The types without offerings of capacity reservations; the same objects where they have none."""
    kept = tuple(_without_reserved(instance_type) for instance_type in types)
    return (
        types
        if all(
            instance_type is other_instance_type for instance_type, other_instance_type in zip(kept, types, strict=True)
        )
        else kept
    )


def _without_reserved(instance_type: InstanceType) -> InstanceType:
    if all(offering.capacity_type != labels.RESERVED for offering in instance_type.offerings):
        return instance_type
    offerings = tuple(offering for offering in instance_type.offerings if offering.capacity_type != labels.RESERVED)
    return msgspec.structs.replace(instance_type, offerings=offerings)


def find_instance_type(
    types: Iterable[InstanceType], name: str, *, zone: str, capacity_type: str, reservation: str = ""
) -> InstanceType | None:
    """The type as an instance in this zone, of this capacity type and reservation, has it; None = it is not known.

    Where no offering is of that kind, what the catalog says first of the type.
    """
    named = [instance_type for instance_type in types if instance_type.name == name]
    if len(named) < 2:
        return named[0] if named else None
    return next(
        (
            instance_type
            for instance_type in named
            if any(_matches(offering, zone, capacity_type, reservation) for offering in instance_type.offerings)
        ),
        named[0],
    )


def _matches(offering: Offering, zone: str, capacity_type: str, reservation: str) -> bool:
    reservation_id = offering.requirements.get(labels.RESERVATION_ID).sole_value or ""
    return (offering.zone, offering.capacity_type, reservation_id) == (zone, capacity_type, reservation)


class Catalog(msgspec.Struct, frozen=True):
    """Instance types by EC2NodeClass name; the key "" stands for every class that is not listed.

    ``by_nodepool``: NodePools whose types are not those of their class, because NodeOverlays change them; see
    InstanceType for types that stand there more than once.
    ``shifted_zone_ids``: ids of zones that the cluster's traffic is shifted away from, sorted.
    """

    by_nodeclass: dict[str, tuple[InstanceType, ...]] = {}
    source: str = ""
    by_nodepool: dict[str, tuple[InstanceType, ...]] = {}
    shifted_zone_ids: tuple[str, ...] = ()

    def instance_types(self, nodeclass: str, nodepool: str = "") -> tuple[InstanceType, ...]:
        """The types of a class; as the overlays change them for a pool, if one is named."""
        if nodepool in self.by_nodepool:
            return self.by_nodepool[nodepool]
        return self.by_nodeclass.get(nodeclass, self.by_nodeclass.get("", ()))
