"""What functions reach: in a VPC by NAT gateways and VPC endpoints, outside of VPCs what is public.

A function in a VPC has no public address, so that an internet gateway leads nowhere. Security groups, network ACLs and
endpoint policies are not looked at.
Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc-internet.html
"""

from collections.abc import Mapping
from typing import Any

from moto.ec2.models import ec2_backends

from local.aws.calls.request import AwsRequest, ConnectionDropped
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

EVERYWHERE = "0.0.0.0/0"
# Services whose endpoints are routes of a route table.
GATEWAYS = ("s3", "dynamodb")


class FunctionNetworks:
    """Subnets by access key of the processes of functions; () = outside of VPCs."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._backend: Any = ec2_backends[emulator.account][emulator.region]
        self.subnets: dict[str, tuple[str, ...]] = {}

    def check(self, request: AwsRequest) -> None:
        """Raises ConnectionDropped for a call of a function that has no way to the service."""
        subnets = self._subnets_of(request.access_key)
        if subnets and not all(self._reaches_service(subnet, request.service) for subnet in subnets):
            raise ConnectionDropped

    def reaches_cluster(self, access_key: str, config: Mapping[str, Any]) -> bool:
        """Whether who signed with the key reaches the API server of a cluster with this `resourcesVpcConfig`."""
        if not self._is_held(access_key):
            return True
        subnets = self._subnets_of(access_key)
        is_open = bool(config["endpointPublicAccess"]) and EVERYWHERE in config["publicAccessCidrs"]
        if not subnets:
            return is_open
        if config["endpointPrivateAccess"] and all(self.vpc_of(subnet) == config["vpcId"] for subnet in subnets):
            return True
        return is_open and all(map(self._has_way_out, subnets))

    def _is_held(self, access_key: str) -> bool:
        """Whether the key's chain begins at a function, and the rule holds."""
        is_function = self._emulator.original_access_key(access_key) in self.subnets
        return is_function and self._emulator.strictness.holds(Rule.FUNCTION_NETWORKS)

    def _subnets_of(self, access_key: str) -> tuple[str, ...]:
        return self.subnets[self._emulator.original_access_key(access_key)] if self._is_held(access_key) else ()

    def _reaches_service(self, subnet: str, service: str) -> bool:
        return self._has_way_out(subnet) or any(
            endpoint.vpc_id == self.vpc_of(subnet)
            # moto keeps those that were deleted.
            and endpoint.state == "available"
            and endpoint.service_name.rpartition(".")[2] == service
            and self._leads_to(endpoint, subnet, service)
            for endpoint in self._backend.vpc_end_points.values()
        )

    def _leads_to(self, endpoint: Any, subnet: str, service: str) -> bool:
        """A gateway from the subnets whose route table has it, an interface by the service's usual name."""
        if service in GATEWAYS:
            return self._route_table(subnet).id in endpoint.route_table_ids
        return bool(endpoint.private_dns_enabled)

    def _has_way_out(self, subnet: str) -> bool:
        return any(
            route.destination_cidr_block == EVERYWHERE
            and (route.nat_gateway or route.transit_gateway or route.vpc_pcx or route.interface or route.instance)
            for route in self._route_table(subnet).routes
        )

    def _route_table(self, subnet: str) -> Any:
        """The subnet's own route table, or the VPC's main one."""
        tables = [table for table in self._backend.route_tables.values() if table.vpc_id == self.vpc_of(subnet)]
        own = [table for table in tables if any(one.get("SubnetId") == subnet for one in table.associations)]
        return (own or [table for table in tables if table.main_association_id])[0]

    def vpc_of(self, subnet: str) -> str:
        """The VPC of a subnet."""
        return str(self._backend.get_subnet(subnet).vpc_id)
