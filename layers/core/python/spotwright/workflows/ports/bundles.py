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
from spotwright.workflows.ports.cluster import ClusterPort, EventPort
from spotwright.workflows.ports.cluster_state import ClusterStatePort
from spotwright.workflows.ports.doorbells import DoorbellPort
from spotwright.workflows.ports.ec2 import DryRunPort, Ec2Port, LaunchTemplatePort
from spotwright.workflows.ports.provisioners import OtherProvisionerPort
from spotwright.workflows.ports.state import BlobPort, InstanceCatalogPort, StatePort


class CatalogPorts(Protocol):
    """The ports of ``catalog``."""

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
        """None without dry runs (setting DISABLE_DRY_RUN)."""
        ...


class LifecyclePorts(Protocol):
    """The ports of ``lifecycle``. ``facts``: EKS's description of the cluster."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def events(self) -> EventPort:
        """For Events of what is done, which may be recorded later; ``cluster`` records them at once."""
        ...

    @property
    def cluster_state(self) -> ClusterStatePort: ...
    @property
    def ec2(self) -> Ec2Port: ...
    @property
    def other_provisioners(self) -> OtherProvisionerPort: ...
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
    """The ports of ``interrupt``, of one cluster."""

    @property
    def state(self) -> StatePort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...


class ListingPorts(Protocol):
    """The ports of a snapshot that is read from the API server."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def settings(self) -> Settings: ...


class SnapshotPorts(ListingPorts, Protocol):
    """The ports of a snapshot."""

    @property
    def cluster_state(self) -> ClusterStatePort: ...


class ProvisionPorts(SnapshotPorts, Protocol):
    """The ports of ``provision`` and ``disrupt``."""

    @property
    def catalogs(self) -> InstanceCatalogPort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...


class SweepPorts(Protocol):
    """The ports of ``sweep``."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def cluster_state(self) -> ClusterStatePort: ...
    @property
    def ec2(self) -> Ec2Port: ...
    @property
    def other_provisioners(self) -> OtherProvisionerPort: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def doorbells(self) -> DoorbellPort: ...
    @property
    def catalogs(self) -> InstanceCatalogPort: ...
    @property
    def settings(self) -> Settings: ...
