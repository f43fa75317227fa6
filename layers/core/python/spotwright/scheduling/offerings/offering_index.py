"""What can be bought now in the NodePools of one weight, cheapest first.

An offering here is an instance type of a NodePool in one zone under one capacity type. Offerings are numbered by price,
and sets of them are integers (``bit_sets``): requirements together are an AND, the lowest bit is the cheapest offering.
Labels that an offering leaves open (a pool says only ``Exists``, a type runs several systems) are in
``undetermined_labels``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, Offering, is_exotic
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.offerings.bit_sets import to_bits
from spotwright.scheduling.offerings.capacity_index import CapacityIndex
from spotwright.scheduling.offerings.label_index import LabelIndex
from spotwright.scheduling.offerings.pool_types import PoolOfferings, PoolTypeKey, TypeAdjustment


class OfferingIndex:
    """The offerings of some templates. ``pool_type_of[i]``, ``offerings[i]`` and ``prices[i]`` describe offering i.

    ``prices``: what they count as; what an offering costs may be less, where it was often interrupted.
    """

    def __init__(
        self,
        templates: Sequence[NodeClaimTemplate],
        daemons: Sequence[DaemonSetPod],
        dimensions: Sequence[str],
        adjustments: Mapping[PoolTypeKey, TypeAdjustment] = MappingProxyType({}),
    ) -> None:
        """``dimensions``: names of the resources that matter, cpu, memory and pods first; ``adjustments``: types
        that count otherwise than they are.
        """
        self.templates = templates
        self.dimensions = dimensions
        pool_offerings = PoolOfferings(templates, daemons, dimensions, adjustments)
        self.pool_types = pool_offerings.pool_types
        self.pool_type_of = pool_offerings.pool_type_of
        self.offerings = pool_offerings.offerings
        self.offerings_of_template = pool_offerings.offerings_of_template
        self.too_small_for_daemons = pool_offerings.too_small_for_daemons
        self.prices = pool_offerings.prices
        self.all_offerings = (1 << len(self.offerings)) - 1
        self.reservation_ids = [_reservation_id(offering) for offering in self.offerings]
        self.min_values = [dict(template.min_values) for template in templates]
        self.by_capacity = CapacityIndex(self.pool_types, len(dimensions), self.all_offerings)
        self.by_label = LabelIndex(templates, pool_offerings, self.all_offerings)

    @cached_property
    def penalized(self) -> int:
        """Offerings that count dearer than they are."""
        return to_bits([number for number, offering in enumerate(self.offerings) if offering.penalty_percent])

    @cached_property
    def offering_keys(self) -> list[tuple[PoolTypeKey, int]]:
        """What identifies each offering in all indexes of the same templates."""
        return [
            (pool_type.key, id(offering)) for pool_type, offering in zip(self.pool_type_of, self.offerings, strict=True)
        ]

    @cached_property
    def number_of_key(self) -> dict[tuple[PoolTypeKey, int], int]:
        """The offerings by what identifies them."""
        return {key: number for number, key in enumerate(self.offering_keys)}

    @cached_property
    def reserved_offerings(self) -> int:
        """Offerings of capacity reservations."""
        return to_bits([number for number, reservation in enumerate(self.reservation_ids) if reservation])

    @cached_property
    def reserved_only_types(self) -> int:
        """Offerings of types of which nothing but reservations is on offer."""
        return sum(
            pool_type.offerings for pool_type in self.pool_types if not pool_type.offerings & ~self.reserved_offerings
        )

    @cached_property
    def general_purpose(self) -> int:
        """Offerings without GPUs or accelerators that are not bare metal: what a pod gets unless it needs more."""
        return sum(pool_type.offerings for pool_type in self.pool_types if not is_exotic(pool_type.instance_type))

    @cached_property
    def split_types(self) -> list[frozenset[str]]:
        """By template: names of types that have other resources in some offerings than in others."""
        return [_split_type_names(template.instance_types) for template in self.templates]

    def same_reservation(self, offerings: int, chosen: int) -> int:
        """Those of the offerings that a node may still use once it counts on one: of one reservation, or of none."""
        if not self.reserved_offerings:
            return offerings
        chosen_id = self.reservation_ids[chosen]
        if not chosen_id:
            return offerings & ~self.reserved_offerings
        return offerings & to_bits([number for number, id_ in enumerate(self.reservation_ids) if id_ == chosen_id])

    def keep_min_values(self, offerings: int) -> int:
        """The offerings without those of pools that keep fewer distinct values in them than their minValues ask."""
        for min_values, of_template in zip(self.min_values, self.offerings_of_template, strict=True):
            kept = offerings & of_template
            if (
                min_values
                and kept
                and any(
                    self.by_label.count_values(key, kept, at_most=number) < number for key, number in min_values.items()
                )
            ):
                offerings &= ~of_template
        return offerings


def _split_type_names(instance_types: Iterable[InstanceType]) -> frozenset[str]:
    counts = Counter(instance_type.name for instance_type in instance_types if instance_type.capacity_overlay_applied)
    return frozenset(name for name, count in counts.items() if count > 1)


def _reservation_id(offering: Offering) -> str:
    stated = offering.requirements.by_key.get(labels.RESERVATION_ID)
    return (stated.sole_value or "") if stated is not None else ""
