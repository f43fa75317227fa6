"""A cluster, and an instance whose user data is right in every byte; tests change one thing."""

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from local.boot.capacity import InstanceType
from local.boot.join_check import Cluster, Instance, JoiningNode, JoinRefusal, check_join

# A multiple of three bytes: base64 then has no bits that do not matter.
AUTHORITY = b"-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUWxy\n-----END CERTIFICATE-----\n"
ROLE = "KarpenterNodeRole-dev"
CLUSTER = Cluster("dev", "https://127.0.0.1:6443", AUTHORITY, "172.20.0.0/16", "vpc-1")
INSTANCE_TYPE = InstanceType(vcpus=2, memory_mib=8192, architectures=("x86_64",), local_storage_gb=0, eni_max_pods=29)

type Document = dict[str, Any]


def node_config() -> Document:
    """The NodeConfig of a node of CLUSTER."""
    return {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": {
                "name": "dev",
                "apiServerEndpoint": "https://127.0.0.1:6443",
                "certificateAuthority": base64.b64encode(AUTHORITY).decode(),
                "cidr": "172.20.0.0/16",
            },
            "containerd": {},
            "instance": {"localStorage": {}},
            "kubelet": {
                "config": {
                    "clusterDNS": ["172.20.0.10"],
                    "maxPods": 29,
                    "registerWithTaints": [
                        {"key": "spot", "value": "only", "effect": "NoSchedule"},
                        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
                    ],
                },
                "flags": ['--node-labels="karpenter.sh/nodepool=default,node-group-type=spot"'],
            },
        },
    }


def mime(*parts: tuple[str, str]) -> str:
    """A MIME message of (content type, text) parts, as base64."""
    lines = ["MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="//"', ""]
    for kind, text in parts:
        lines += ["--//", f"Content-Type: {kind}", "", text]
    return base64.b64encode("\r\n".join([*lines, "--//--", ""]).encode()).decode()


def user_data(*documents: Document) -> str:
    return mime(*(("application/node.eks.aws", yaml.safe_dump(document)) for document in documents))


def instance(**changes: Any) -> Instance:
    """A running instance of CLUSTER's VPC with right user data, but for `changes`."""
    right = Instance(
        id="i-1",
        state="running",
        launch_time=0.0,
        type="m5.large",
        zone="ap-northeast-2a",
        zone_id="apne2-az1",
        region="ap-northeast-2",
        private_ip="192.168.0.4",
        private_dns_name="ip-192-168-0-4.ap-northeast-2.compute.internal",
        user_data=user_data(node_config()),
        role_name=ROLE,
        image_architecture="x86_64",
        vpc_id="vpc-1",
        volume_gib=0,
    )
    return replace(right, **changes)


@pytest.fixture
def verdict() -> Callable[..., JoiningNode | JoinRefusal]:
    """verdict(document=..., entries=..., **instance changes): would it join?"""

    def ask(
        document: Document | None = None, entries: dict[str, str] | None = None, **changes: Any
    ) -> JoiningNode | JoinRefusal:
        if document is not None:
            changes["user_data"] = user_data(document)
        return check_join(
            instance(**changes), CLUSTER, {ROLE: "EC2_LINUX"} if entries is None else entries, INSTANCE_TYPE
        )

    return ask
