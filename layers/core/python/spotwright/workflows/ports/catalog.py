"""What the catalog and the status of an EC2NodeClass are made from: EC2's offerings, prices, selectors, IAM."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from spotwright.aws.images.amis import Image
from spotwright.aws.instance_types.price_file import PriceFile
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.nodeclass.readiness import DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.model.ec2.fleet import InstanceProfile
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    CapacityReservationSelectorTerm,
    PlacementGroup,
    PlacementGroupSelector,
    SelectorTerm,
)


class RegionPort(Protocol):
    def read(self, now: datetime, previous: RegionFacts | None = None) -> RegionFacts:
        """Everything that EC2 sells, read to the end; prices that cannot be had are noted, the rest raises.

        ``previous``: the region of last time, whose prices stand where there are no newer ones.
        """
        ...


class AccountPricesPort(Protocol):
    def read(self) -> tuple[PriceFile, str]:
        """The account's price rules, none without a file; and what is wrong with the file, then without rules."""
        ...


class ZonalShiftPort(Protocol):
    def shifted_zone_ids(self, now: datetime) -> frozenset[str]:
        """Ids of the zones that the cluster's traffic is shifted away from now."""
        ...


class SelectorPort(Protocol):
    """What selector terms find. Terms are OR-ed; lists are complete and sorted by id."""

    def subnets(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSubnet, ...]: ...
    def security_groups(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSecurityGroup, ...]: ...

    def capacity_reservations(
        self, terms: Sequence[CapacityReservationSelectorTerm]
    ) -> tuple[CapacityReservation, ...]:
        """The active ones, with how many instances each has left; () for no terms."""
        ...

    def placement_group(self, selector: PlacementGroupSelector) -> PlacementGroup | None:
        """The group if it can be used; None when there is none of that name or id."""
        ...

    def parameters(self, names: Sequence[str]) -> Mapping[str, str]:
        """Values of SSM parameters; those that do not exist are missing."""
        ...

    def images(self, ids: Sequence[str], terms: Sequence[SelectorTerm]) -> tuple[Image, ...]: ...


class InstanceProfilePort(Protocol):
    """IAM instance profiles."""

    def role_of(self, name: str) -> str | None:
        """The role's name, "" when the profile has none; None when there is no such profile."""
        ...

    def ensure(self, *, name: str, path: str, role: str, tags: Mapping[str, str]) -> None:
        """Make the profile hold exactly that role; NotFound when the role does not exist (nothing is left behind)."""
        ...

    def names_under(self, path: str) -> tuple[str, ...]:
        """Names of the profiles whose path starts so, sorted."""
        ...

    def profiles_under(self, path: str) -> tuple[InstanceProfile, ...]:
        """The profiles whose path starts so, by name."""
        ...

    def read(self, name: str) -> InstanceProfile | None:
        """One profile with its tags, asked for by name; None when there is none."""
        ...

    def delete(self, name: str) -> None:
        """Delete, role taken out first; one that is gone is no error."""
        ...
