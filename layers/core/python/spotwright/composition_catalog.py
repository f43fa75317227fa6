"""The composition root of the catalog function: the common ports of a cluster and those of its own."""

from collections.abc import Mapping
from dataclasses import dataclass

from spotwright import composition
from spotwright.adapters import aws_sessions, pricing
from spotwright.adapters.ec2 import Ec2
from spotwright.adapters.ec2_network import Selection
from spotwright.adapters.ec2_region import Ec2Region
from spotwright.adapters.iam import InstanceProfiles
from spotwright.aws.sizing import Overheads
from spotwright.failures import InvalidRequest
from spotwright.model.fleet import ClusterFacts
from spotwright.settings import Environment
from spotwright.workflows.ports import BlobPort, ClusterPort, DoorbellPort, StatePort


@dataclass(frozen=True)
class CatalogPorts:
    """See workflows.catalog_ports.Cataloguing."""

    cluster: ClusterPort
    state: StatePort
    blobs: BlobPort
    bells: DoorbellPort
    market: Ec2Region
    selection: Selection
    profiles: InstanceProfiles
    templates: Ec2
    facts: ClusterFacts
    region: str
    node_roles: tuple[str, ...]
    overheads: Overheads


def ports(cluster: str, environment: Environment) -> CatalogPorts:
    """The ports of one cluster of the cell; raises InvalidRequest for a setting that means nothing."""
    common = composition.ports(cluster)
    given = environment.clusters[cluster].settings
    role = common.role_arn
    isolated = given.get("ISOLATED_VPC") in (True, "true")
    asked = None if isolated else pricing.endpoint_region(common.region)
    prices = aws_sessions.pricing(role, region=asked) if asked else None
    return CatalogPorts(
        cluster=common.cluster,
        state=common.state,
        blobs=common.blobs,
        bells=common.bells,
        market=Ec2Region(aws_sessions.ec2(role), prices, region=common.region),
        selection=Selection(aws_sessions.ec2(role), aws_sessions.ssm(role)),
        profiles=InstanceProfiles(aws_sessions.iam(role)),
        templates=common.ec2,
        facts=common.facts,
        region=common.region,
        node_roles=common.node_roles,
        overheads=overheads(given),
    )


def overheads(given: Mapping[str, str | int | float | bool]) -> Overheads:
    """A cluster's sizing settings under Karpenter's names; raises InvalidRequest naming the wrong one."""
    share = str(given.get("VM_MEMORY_OVERHEAD_PERCENT", Overheads().vm_memory_overhead_percent))
    enis = given.get("RESERVED_ENIS", 0)
    try:
        if not 0 <= float(share) < 1:
            raise ValueError
    except ValueError:
        raise InvalidRequest(f"setting VM_MEMORY_OVERHEAD_PERCENT: {share!r} is not a share from 0 to 1") from None
    try:
        return Overheads(share, int(enis))
    except ValueError:
        raise InvalidRequest(f"setting RESERVED_ENIS: {enis!r} is not a number") from None
