"""What the catalog workflow needs beyond the common ports."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from spotwright.aws.images.amis import Image
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.offerings import RegionFacts
from spotwright.aws.instance_types.price_file import PriceFile
from spotwright.aws.nodeclass.readiness import DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.model.ec2.fleet import ClusterFacts, Instance, InstanceProfile, LaunchTemplate
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    CapacityReservationSelectorTerm,
    PlacementGroup,
    PlacementGroupSelector,
    SelectorTerm,
)
from spotwright.workflows.ports import BlobPort, ClusterPort, DoorbellPort, StatePort


class RegionPort(Protocol):
    def read(self, now: datetime, before: RegionFacts | None = None) -> RegionFacts:
        """Everything that EC2 sells, read to the end; prices that cannot be had are noted, the rest raises.

        ``before``: the region of last time, whose prices stand where there are no newer ones.
        """
        ...


class AccountPricesPort(Protocol):
    def read(self) -> tuple[PriceFile, str]:
        """The account's price rules, none without a file; and what is wrong with the file, then without rules."""
        ...


class ShiftsPort(Protocol):
    def zones(self, now: datetime) -> frozenset[str]:
        """Ids of the zones that the cluster's traffic is shifted away from now."""
        ...


class SelectionPort(Protocol):
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


class ProfilePort(Protocol):
    """IAM instance profiles."""

    def role_of(self, name: str) -> str | None:
        """The role's name, "" when the profile has none; None when there is no such profile."""
        ...

    def ensure(self, *, name: str, path: str, role: str, tags: Mapping[str, str]) -> None:
        """Make the profile hold exactly that role; NotFound when the role does not exist (nothing is left behind)."""
        ...

    def under(self, path: str) -> tuple[str, ...]:
        """Names of the profiles whose path starts so, sorted."""
        ...

    def listed(self, path: str) -> tuple[InstanceProfile, ...]:
        """The profiles whose path starts so, by name."""
        ...

    def read(self, name: str) -> InstanceProfile | None:
        """One profile with its tags, asked for by name; None when there is none."""
        ...

    def delete(self, name: str) -> None:
        """Delete, role taken out first; one that is gone is no error."""
        ...


class TemplatePort(Protocol):
    def launch_templates(self, node_class: str = "") -> tuple[LaunchTemplate, ...]:
        """This cluster's templates, of one class when it is named; by id."""
        ...

    def delete_launch_template(self, template_id: str) -> None: ...
    def instances_of_cluster(self) -> tuple[Instance, ...]:
        """What may have been started from them; see Ec2Port."""
        ...


class TrialPort(Protocol):
    """Calls that find out whether EC2 would do something."""

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None: ...

    def ensure_launch_template(
        self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]
    ) -> tuple[str, str]: ...

    def dry_run(self, operation: str, request: Mapping[str, Any]) -> None:
        """CreateFleet or RunInstances with DryRun set; nothing is raised when EC2 would do it."""
        ...


class Cataloguing(Protocol):
    """Everything the workflow may reach of one cluster."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def bells(self) -> DoorbellPort: ...
    @property
    def market(self) -> RegionPort: ...
    @property
    def selection(self) -> SelectionPort: ...
    @property
    def profiles(self) -> ProfilePort | None:
        """None where IAM is out of reach (setting ISOLATED_VPC)."""
        ...

    @property
    def templates(self) -> TemplatePort: ...
    @property
    def facts(self) -> ClusterFacts: ...
    @property
    def region(self) -> str: ...
    @property
    def node_roles(self) -> tuple[str, ...]: ...
    @property
    def overheads(self) -> Overheads: ...
    @property
    def reserved_capacity(self) -> bool:
        """The gate ReservedCapacity: without it no reservation is looked for."""
        ...

    @property
    def account_prices(self) -> AccountPricesPort: ...
    @property
    def shifts(self) -> ShiftsPort | None:
        """None where the cluster does not follow zonal shifts."""
        ...

    @property
    def trials(self) -> TrialPort | None:
        """None where classes are not tried (setting DISABLE_DRY_RUN)."""
        ...
