"""A stack with Spotwright really deployed on it, once per session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.demo.deploy import Deployment, forwarder_process
from local.stack import Stack


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Deployment]]:
    """The local stack after `cdk bootstrap` and `cdk deploy`, with tags on everything that takes them."""
    directory: Path = tmp_path_factory.mktemp("deployed")
    with Stack.start(directory, forwarder=forwarder_process(directory), report=lambda _: None) as stack:
        roles = (
            "dev-eks-node-group-role",
            f"KarpenterNodeRole-{stack.cluster}",
            f"karpenterNodeRole-{stack.cluster}",
        )
        deployment = Deployment(stack, node_roles=roles)
        deployment.context["tags"] = {"team": "platform"}
        deployment.deploy()
        yield stack, deployment
