"""A cluster's managed node groups, as far as they show in EKS's answers and in the access entries that they make.

Source: https://docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.eks.backend import EksBackend
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

# The role of the group that every cluster has, and the group's name.
ROLE, NAME = "dev-eks-node-group-role", "system"


@dataclass
class Nodegroups:
    """Node groups by cluster and name. See `Emulator.component`."""

    emulator: Emulator
    groups: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def create(self, cluster: str, name: str, role: str) -> None:
        """The group, and with it the access entry of its role, unless there is one."""
        eks = self.emulator.component(EksBackend)
        arn = f"arn:aws:iam::{self.emulator.account}:role/{role}"
        place = f"{self.emulator.region}:{self.emulator.account}"
        self.groups.setdefault(cluster, {})[name] = {
            "nodegroupName": name,
            "nodegroupArn": f"arn:aws:eks:{place}:nodegroup/{cluster}/{name}/1",
            "clusterName": cluster,
            "nodeRole": arn,
            "status": "ACTIVE",
            "capacityType": "ON_DEMAND",
            "amiType": "AL2023_x86_64_STANDARD",
            "instanceTypes": ["m6i.large"],
            "subnets": list(eks.cluster(cluster)["resourcesVpcConfig"]["subnetIds"]),
            "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 0},
            "health": {"issues": []},
            "createdAt": datetime.now(UTC),
            "modifiedAt": datetime.now(UTC),
            "tags": {},
        }
        # Where there are no access entries, EKS writes the role into aws-auth.
        if eks.cluster(cluster)["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
            return
        if arn not in {entry.principal for entry in eks.access_entries(cluster)}:
            eks.create_access_entry(cluster, arn, type="EC2_LINUX")

    def of(self, cluster: str) -> dict[str, dict[str, Any]]:
        self.emulator.component(EksBackend).cluster(cluster)
        return self.groups.get(cluster, {})


def add(emulator: Emulator) -> None:
    nodegroups = emulator.component(Nodegroups)
    emulator.component(EksBackend).on_registration.append(lambda name, body: _create_usual(nodegroups, name, body))

    def describe(request: AwsRequest) -> AwsResponse:
        cluster, name = request.params["clusterName"], request.params["nodegroupName"]
        if name not in nodegroups.of(cluster):
            raise AwsError("ResourceNotFoundException", f"No node group found for name: {name}.")
        return request.reply({"nodegroup": nodegroups.of(cluster)[name]})

    def listed(request: AwsRequest) -> AwsResponse:
        params = request.params
        asked = {"MaxResults": params.get("maxResults"), "NextToken": params.get("nextToken")}
        names, token = page(sorted(nodegroups.of(params["clusterName"])), asked, default=100)
        return request.reply({"nodegroups": names} | ({"nextToken": token["NextToken"]} if token else {}))

    emulator.handle("eks", "DescribeNodegroup", describe)
    emulator.handle("eks", "ListNodegroups", listed)


def _create_usual(nodegroups: Nodegroups, cluster: str, body: Mapping[str, Any]) -> None:
    """The groups that the registration names (name to role), or the usual one."""
    usual = {NAME: ROLE} if nodegroups.emulator.strictness.holds(Rule.NODE_GROUP_ACCESS_ENTRY) else {}
    for name, role in body.get("nodegroups", usual).items():
        nodegroups.create(cluster, name, role)
