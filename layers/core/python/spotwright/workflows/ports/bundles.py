"""Everything that a workflow may reach of one cluster, as one Protocol for each workflow."""

from typing import Protocol

from spotwright.aws.instance_types.capacity import Overheads
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.snapshot import Settings
from spotwright.workflows.ports.catalog import (
    AccountPricesPort,
    InstanceProfilePort,
    RegionPort,
    SelectorPort,
    ZonalShiftPort,
)
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.doorbells import DoorbellPort
from spotwright.workflows.ports.ec2 import DryRunPort, Ec2Port, LaunchTemplatePort
from spotwright.workflows.ports.state import BlobPort, InstanceCatalogPort, StatePort


class CatalogPorts(Protocol):
    """Everything the workflow may reach of one cluster."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...
    @property
    def region_source(self) -> RegionPort: ...
    @property
    def selectors(self) -> SelectorPort: ...
    @property
    def instance_profiles(self) -> InstanceProfilePort | None:
        """None where IAM is out of reach (setting ISOLATED_VPC)."""
        ...

    @property
    def launch_templates(self) -> LaunchTemplatePort: ...
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
    def zonal_shifts(self) -> ZonalShiftPort | None:
        """None where the cluster does not follow zonal shifts."""
        ...

    @property
    def dry_runs(self) -> DryRunPort | None:
        """None where classes are not tried (setting DISABLE_DRY_RUN)."""
        ...


class LifecyclePorts(Protocol):
    """What the one hand reaches. ``facts``: what EKS says of the cluster."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def ec2(self) -> Ec2Port: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...
    @property
    def catalogs(self) -> InstanceCatalogPort: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def facts(self) -> ClusterFacts: ...


class InterruptPorts(Protocol):
    """What writing a notice down needs, of one cluster."""

    @property
    def state(self) -> StatePort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...


class SnapshotPorts(Protocol):
    """Where a snapshot comes from."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def settings(self) -> Settings: ...


class ProvisionPorts(SnapshotPorts, Protocol):
    """What a planner reaches."""

    @property
    def catalogs(self) -> InstanceCatalogPort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...


class SweepPorts(Protocol):
    """What a sweep reaches."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def ec2(self) -> Ec2Port: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...
    @property
    def catalogs(self) -> InstanceCatalogPort: ...
    @property
    def settings(self) -> Settings: ...
