"""What the account holds before anybody deploys: the cluster's network, node roles, EC2's role for spot, and images."""

import json
from typing import Any

from moto.iam.models import iam_backends

from local.aws.ec2 import network
from local.aws.ec2.catalog import images
from local.aws.emulator import Emulator

NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
NODE_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
SPOT_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "spot.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def add(emulator: Emulator) -> None:
    network.cluster_network(emulator, emulator.cluster)
    for role in (
        f"KarpenterNodeRole-{emulator.cluster}",
        f"karpenterNodeRole-{emulator.cluster}",
        "dev-eks-node-group-role",
    ):
        create_node_role(emulator, role)
    _create_spot_role(emulator)
    images.register_images(emulator)


def _create_spot_role(emulator: Emulator) -> None:
    """As in every account that has had a spot instance."""
    backend: Any = iam_backends[emulator.account]["aws"]
    backend.create_role(
        role_name="AWSServiceRoleForEC2Spot",
        assume_role_policy_document=json.dumps(SPOT_TRUST),
        path="/aws-service-role/spot.amazonaws.com/",
        permissions_boundary=None,
        description="EC2 starts spot instances with it",
        tags=[],
        max_session_duration="3600",
    )


def create_node_role(emulator: Emulator, name: str) -> str:
    """A role for nodes, as the Karpenter guide makes it; returns its ARN."""
    backend: Any = iam_backends[emulator.account]["aws"]
    role = backend.create_role(
        role_name=name,
        assume_role_policy_document=json.dumps(NODE_TRUST),
        path="/",
        permissions_boundary=None,
        description="Nodes",
        tags=[],
        max_session_duration="3600",
    )
    for policy in NODE_POLICIES:
        backend.attach_role_policy(f"arn:aws:iam::aws:policy/{policy}", name)
    return str(role.arn)
