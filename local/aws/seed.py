"""What the account holds before anybody deploys: the cluster's network, node roles and the images of EKS."""

import json
from typing import Any

from moto.iam.models import iam_backends

from local.aws import images, network
from local.aws.world import World

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


def add(world: World) -> None:
    network.of(world, world.cluster)
    for role in (
        f"KarpenterNodeRole-{world.cluster}",
        f"karpenterNodeRole-{world.cluster}",
        "dev-eks-node-group-role",
    ):
        node_role(world, role)
    images.register(world)


def node_role(world: World, name: str) -> str:
    """A role for nodes, as the Karpenter guide makes it; returns its ARN."""
    backend: Any = iam_backends[world.account]["aws"]
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
