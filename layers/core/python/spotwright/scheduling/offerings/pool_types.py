"""Instance types as the NodePools of one weight would run them, and their offerings, cheapest first."""

from collections.abc import Mapping, Sequence

import msgspec

from spotwright.model import resources
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES, csi_driver
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate

type Vector = tuple[int, ...]
"""An amount of each resource, in the order of the dimensions of a plan: cpu, memory, pods, others."""

type PoolTypeKey = tuple[int, int]
"""A type of a NodePool, whatever index it is in: the place of its template, and the identity of the type."""


class TypeAdjustment(msgspec.Struct, frozen=True):
    """How a type counts where limits are prices. ``surcharge``: on the price of its offerings, in picodollars per hour;
    ``free_capacity``, ``counted_capacity``: instead of its own.
    """

    surcharge: int
    free_capacity: Vector
    counted_capacity: Mapping[str, int]


class PoolInstanceType:
    """An instance type as one NodePool would run it. A type whose resources differ by offering is several of these.

    ``free_capacity``: allocatable without DaemonSets, per dimension; ``daemon_overhead``: what those request;
    ``counted_capacity``: what a node planned for it counts against limits (``offerings/counted_capacity.py``);
    ``offerings``: the numbers of its offerings, as bits.
    """

    __slots__ = (
        "counted_capacity",
        "daemon_overhead",
        "free_capacity",
        "instance_type",
        "offerings",
        "template_index",
    )

    def __init__(
        self, template_index: int, instance_type: InstanceType, daemon_overhead: dict[str, int], free_capacity: Vector
    ) -> None:
        self.template_index = template_index
        self.instance_type = instance_type
        self.daemon_overhead = daemon_overhead
        self.free_capacity = free_capacity
        self.counted_capacity: Mapping[str, int] = instance_type.capacity
        self.offerings = 0

    @property
    def key(self) -> PoolTypeKey:
        return self.template_index, id(self.instance_type)

    def counted(self, resource: str) -> int:
        """What a node planned for this type counts against a limit of its NodePool."""
        return 1 if resource == resources.NODES else self.counted_capacity.get(resource, 0)


class PoolOfferings:
    """What some templates can buy. ``pool_type_of[i]`` and ``offerings[i]`` describe offering i.

    ``offerings_of_template``: by template, the numbers of its offerings as bits; ``too_small_for_daemons``: by
    template, types without room for their DaemonSets whose resources a NodeOverlay states. ``prices``: what offerings
    count as in choosing, with the surcharges of ``adjustments``.
    """

    def __init__(
        self,
        templates: Sequence[NodeClaimTemplate],
        daemons: Sequence[DaemonSetPod],
        dimensions: Sequence[str],
        adjustments: Mapping[PoolTypeKey, TypeAdjustment],
    ) -> None:
        self._dimensions = dimensions
        self._csi_drivers = [(name, driver) for name in dimensions if (driver := csi_driver(name))]
        self.pool_type_of: list[PoolInstanceType] = []
        self.offerings: list[Offering] = []
        self.prices: list[int] = []
        self.offerings_of_template = [0] * len(templates)
        self.too_small_for_daemons: list[list[InstanceType]] = [[] for _ in templates]
        pool_types = [
            pool_type
            for number, template in enumerate(templates)
            for pool_type in self._pool_types(number, template, daemons)
        ]
        for pool_type in pool_types if adjustments else ():
            if adjustment := adjustments.get(pool_type.key):
                pool_type.free_capacity = adjustment.free_capacity
                pool_type.counted_capacity = adjustment.counted_capacity
        self._number_offerings(templates, pool_types, adjustments)
        self.pool_types = [pool_type for pool_type in pool_types if pool_type.offerings]

    def _pool_types(
        self, number: int, template: NodeClaimTemplate, daemons: Sequence[DaemonSetPod]
    ) -> list[PoolInstanceType]:
        """The types that a template allows and that have room for its DaemonSets."""
        instance_types = template.compatible_instance_types()
        pool_types = []
        for instance_type, overhead in zip(
            instance_types, template.daemon_overheads(instance_types, daemons), strict=True
        ):
            free_capacity = self._free_capacity(instance_type, overhead)
            if min(free_capacity) >= 0:
                pool_types.append(PoolInstanceType(number, instance_type, overhead, free_capacity))
            elif instance_type.capacity_overlay_applied:
                self.too_small_for_daemons[number].append(instance_type)
        return pool_types

    def _free_capacity(self, instance_type: InstanceType, overhead: dict[str, int]) -> Vector:
        allocatable = instance_type.allocatable
        if self._csi_drivers:
            allocatable = allocatable | {
                name: instance_type.attachable_volumes.get(driver, UNLIMITED_VOLUMES)
                for name, driver in self._csi_drivers
            }
        return tuple([allocatable.get(name, 0) - overhead.get(name, 0) for name in self._dimensions])

    def _number_offerings(
        self,
        templates: Sequence[NodeClaimTemplate],
        pool_types: Sequence[PoolInstanceType],
        adjustments: Mapping[PoolTypeKey, TypeAdjustment],
    ) -> None:
        found: list[tuple[int, str, int, str, str, int, PoolInstanceType, Offering]] = []
        # A reservation is of one type in one zone, and a node counts on one reservation.
        demands_several = [any(least > 1 for least in template.min_values.values()) for template in templates]
        for pool_type in pool_types:
            name, number = pool_type.instance_type.name, pool_type.template_index
            adjustment = adjustments.get(pool_type.key)
            surcharge = adjustment.surcharge if adjustment else 0
            for offering in pool_type.instance_type.offerings:
                if (
                    offering.available
                    and templates[number].allows(offering)
                    and not (offering.reservation_capacity and demands_several[number])
                ):
                    price, zone, kind = (
                        offering.weighed_price + surcharge,
                        offering.zone,
                        offering.capacity_type,
                    )
                    found.append((price, name, number, zone, kind, len(found), pool_type, offering))
        # No two entries agree in all of their first six fields.
        found.sort()
        for index, (price, *_, pool_type, offering) in enumerate(found):
            self.prices.append(price)
            pool_type.offerings |= 1 << index
            self.offerings_of_template[pool_type.template_index] |= 1 << index
            self.pool_type_of.append(pool_type)
            self.offerings.append(offering)
