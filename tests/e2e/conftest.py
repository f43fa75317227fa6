"""A stack with Spotwright really deployed on it, once per session; and a world on it for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.demo.deploy import Deployment, forwarder_process
from local.stack import Stack
from tests.e2e.world import World


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Deployment]]:
    """The local stack after `cdk bootstrap` and `cdk deploy`, with tags on everything that takes them and the gates on
    for what is kept without pods."""
    directory: Path = tmp_path_factory.mktemp("deployed")
    with Stack.start(directory, forwarder=forwarder_process(directory), report=lambda _: None) as stack:
        roles = (
            "dev-eks-node-group-role",
            f"KarpenterNodeRole-{stack.cluster}",
            f"karpenterNodeRole-{stack.cluster}",
        )
        deployment = Deployment(stack, node_roles=roles)
        deployment.context["tags"] = {"team": "platform"}
        deployment.settings["FEATURE_GATES"] = "StaticCapacity=true,CapacityBuffer=true"
        deployment.deploy()
        yield stack, deployment


@pytest.fixture
def world(deployed: tuple[Stack, Deployment]) -> Iterator[World]:
    """The deployed stack with basic-gen6.yaml and no pods of ours; afterwards nothing of ours is left."""
    made = World(*deployed)
    made.apply("basic-gen6.yaml")
    yield made
    made.stack.control("DELETE", "/_local/faults")
    made.stack.kubectl("delete", "deployment", "inflate", "--ignore-not-found")
    made.stack.kubectl("delete", "nodeclaims", "--all", "--timeout=120s")
    made.until("no instance is left", lambda: not made.instances(), seconds=60)
