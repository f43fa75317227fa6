"""The adapters of the catalog function: those that all functions share, and its own."""

from dataclasses import dataclass

from spotwright.adapters.aws import clients, pricing
from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.adapters.aws.ec2.selection import Selection
from spotwright.adapters.aws.iam import InstanceProfiles
from spotwright.adapters.aws.s3.account_prices import AccountPrices
from spotwright.adapters.aws.zonal_shifts import ZonalShifts
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.composition import cluster_clients
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.settings import Environment, catalog_settings
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.doorbells import DoorbellPort
from spotwright.workflows.ports.state import BlobPort, StatePort


@dataclass(frozen=True)
class CatalogClients:
    """See workflows.ports.bundles.CatalogPorts."""

    cluster: ClusterPort
    state: StatePort
    blobs: BlobPort
    doorbells: DoorbellPort
    region_source: Ec2Region
    selectors: Selection
    instance_profiles: InstanceProfiles | None
    launch_templates: Ec2
    facts: ClusterFacts
    region: str
    node_roles: tuple[str, ...]
    overheads: Overheads
    reserved_capacity: bool
    account_prices: AccountPrices
    zonal_shifts: ZonalShifts | None = None
    dry_runs: Ec2 | None = None


def ports(cluster: str, environment: Environment) -> CatalogClients:
    """The ports of one cluster of the cell; raises InvalidRequest for a setting that means nothing."""
    common = cluster_clients.ports(cluster)
    buying = catalog_settings(environment.clusters[cluster].settings)
    role = common.role_arn
    price_region = None if buying.isolated_vpc else pricing.endpoint_region(common.region)
    prices = clients.pricing(role, region=price_region) if price_region else None
    return CatalogClients(
        cluster=common.cluster,
        state=common.state,
        blobs=common.blobs,
        doorbells=common.doorbells,
        region_source=Ec2Region(clients.ec2(role), prices, region=common.region),
        selectors=Selection(clients.ec2(role), clients.ssm(role)),
        instance_profiles=None if buying.isolated_vpc else InstanceProfiles(clients.iam(role)),
        launch_templates=common.ec2,
        facts=common.facts,
        region=common.region,
        node_roles=common.node_roles,
        overheads=buying.overheads,
        reserved_capacity=buying.reserved_capacity,
        account_prices=AccountPrices(common.blobs, cluster=cluster),
        zonal_shifts=_shifts(common.facts.arn, role) if buying.zonal_shift else None,
        dry_runs=common.ec2 if buying.dry_runs else None,
    )


def _shifts(arn: str, role: str) -> ZonalShifts:
    return ZonalShifts(clients.client("arc-zonal-shift", role), arn)
