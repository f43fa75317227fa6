"""A stack with Spotwright really deployed on it, once per session; and how each test looks at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.aws.strictness import Rule, lenient_by_default
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.stack import Stack, StackOptions
from tests.e2e.deployed_stack import DeployedStack


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, CdkDeployment]]:
    """The local stack after `cdk bootstrap` and `cdk deploy`, with tags on everything that takes them and the gates on
    for what is kept without pods."""
    directory: Path = tmp_path_factory.mktemp("deployed")
    # Other tests run beside these: that a process takes long to start then says nothing of the function.
    options = StackOptions(lenient=[*lenient_by_default(), Rule.INIT_DURATION])
    command = forwarder_command(directory)
    with Stack.start(directory, forwarder_command=command, options=options, report=lambda _: None) as stack:
        roles = (
            "dev-eks-node-group-role",
            f"KarpenterNodeRole-{stack.cluster}",
            f"karpenterNodeRole-{stack.cluster}",
        )
        deployment = CdkDeployment(stack, node_roles=roles)
        deployment.context["tags"] = {"team": "platform"}
        deployment.settings["FEATURE_GATES"] = "StaticCapacity=true,CapacityBuffer=true"
        deployment.deploy()
        yield stack, deployment


@pytest.fixture
def deployed_stack(deployed: tuple[Stack, CdkDeployment]) -> Iterator[DeployedStack]:
    """The deployed stack with basic-gen6.yaml and no pods of ours; afterwards nothing of ours is left."""
    made = DeployedStack(*deployed)
    made.apply("basic-gen6.yaml")
    yield made
    made.stack.control("DELETE", "/_local/faults")
    made.stack.kubectl("delete", "deployment", "inflate", "--ignore-not-found")
    # Nodes would be bought for pods that run when their NodeClaims are deleted.
    made.wait_until("the pods of inflate are told to stop", lambda: not made.staying("inflate"), seconds=60)
    made.stack.kubectl("delete", "nodeclaims", "--all", "--timeout=280s")
    # A plan of a state from before the pods were told to stop may buy nodes for them, which go when they are empty, one
    # after the other.
    made.wait_until("no instance is left", lambda: not made.instances(), seconds=120)
