"""EKS's add-ons: which are installed. What they run in the cluster comes with the control plane."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.eks.backend import EksBackend
from local.aws.emulator import Emulator

POD_IDENTITY_AGENT = "eks-pod-identity-agent"
# What the console installs in a new cluster, the Pod Identity agent among it.
USUAL = ("coredns", POD_IDENTITY_AGENT, "kube-proxy", "vpc-cni")
VERSIONS = {
    "coredns": "v1.12.4-eksbuild.1",
    POD_IDENTITY_AGENT: "v1.3.8-eksbuild.2",
    "kube-proxy": "v1.35.0-eksbuild.1",
    "vpc-cni": "v1.20.4-eksbuild.1",
}


@dataclass
class Addons:
    """The add-ons of each cluster by name. See `Emulator.component`."""

    emulator: Emulator
    installed: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def install(self, cluster: str, name: str) -> dict[str, Any]:
        of_cluster = self.installed.setdefault(cluster, {})
        if name not in VERSIONS:
            raise AwsError("InvalidParameterException", f"Addon {name} specified is not supported")
        if name in of_cluster:
            raise AwsError("ResourceInUseException", "Addon already exists.")
        place = f"{self.emulator.region}:{self.emulator.account}"
        of_cluster[name] = {
            "addonName": name,
            "clusterName": cluster,
            "status": "ACTIVE",
            "addonVersion": VERSIONS[name],
            "health": {"issues": []},
            "addonArn": f"arn:aws:eks:{place}:addon/{cluster}/{name}/{uuid.uuid4()}",
            "createdAt": datetime.now(UTC),
            "modifiedAt": datetime.now(UTC),
            "tags": {},
        }
        return of_cluster[name]

    def addon(self, cluster: str, name: str) -> dict[str, Any]:
        self.emulator.component(EksBackend).cluster(cluster)
        if name not in self.installed.get(cluster, {}):
            raise AwsError("ResourceNotFoundException", f"No addon: {name} found in cluster: {cluster}")
        return self.installed[cluster][name]

    def names(self, cluster: str) -> list[str]:
        self.emulator.component(EksBackend).cluster(cluster)
        return sorted(self.installed.get(cluster, {}))


def add(emulator: Emulator) -> None:
    addons, eks = emulator.component(Addons), emulator.component(EksBackend)
    eks.on_registration.append(lambda name, body: _install_usual(addons, name, body))

    def create(request: AwsRequest) -> AwsResponse:
        eks.cluster(request.params["clusterName"])
        return request.reply({"addon": addons.install(request.params["clusterName"], request.params["addonName"])})

    def describe(request: AwsRequest) -> AwsResponse:
        return request.reply({"addon": addons.addon(request.params["clusterName"], request.params["addonName"])})

    def delete(request: AwsRequest) -> AwsResponse:
        found = addons.addon(request.params["clusterName"], request.params["addonName"])
        del addons.installed[found["clusterName"]][found["addonName"]]
        return request.reply({"addon": found | {"status": "DELETING"}})

    def listed(request: AwsRequest) -> AwsResponse:
        params = request.params
        asked = {"MaxResults": params.get("maxResults"), "NextToken": params.get("nextToken")}
        names, token = page(addons.names(params["clusterName"]), asked, default=100)
        return request.reply({"addons": names} | ({"nextToken": token["NextToken"]} if token else {}))

    answers = {"CreateAddon": create, "DescribeAddon": describe, "DeleteAddon": delete, "ListAddons": listed}
    for action, answer in answers.items():
        emulator.handle("eks", action, answer)


def _install_usual(addons: Addons, cluster: str, body: Mapping[str, Any]) -> None:
    """The add-ons that the registration names, or the usual ones."""
    addons.installed[cluster] = {}
    for name in body.get("addons", USUAL):
        addons.install(cluster, name)
