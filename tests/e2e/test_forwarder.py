"""On the deployed stack the forwarder gets its credentials, though its pods are as new as its association."""

import pytest

from tests.e2e.deployed_stack import DeployedStack

pytestmark = pytest.mark.stack


def test_the_forwarder_runs_with_its_role_and_writes_its_heartbeat(deployed_stack: DeployedStack) -> None:
    """A pod that was admitted before its Pod Identity association counted would never be told of the agent."""
    deployed_stack.scale(1)
    deployed_stack.wait_until("inflate runs", lambda: deployed_stack.running("inflate") == 1, seconds=120)
    deployed_stack.wait_until("the forwarder's heartbeat", lambda: deployed_stack.heartbeat() != "", seconds=60)
    before = deployed_stack.heartbeat()
    deployed_stack.wait_until("another heartbeat", lambda: deployed_stack.heartbeat() != before, seconds=60)
