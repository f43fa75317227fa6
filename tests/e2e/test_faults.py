"""Nothing is lost and nothing is bought twice when a function dies, the table does, or messages are not ours."""

import json
import subprocess
import time
from typing import Any

import pytest

from local.cdk_deployment import ROOT
from tests.e2e.deployed_stack import DeployedStack

pytestmark = pytest.mark.stack


def all_run(deployed_stack: DeployedStack, count: int = 5) -> None:
    deployed_stack.wait_until(f"{count} pods run", lambda: deployed_stack.running("inflate") == count, seconds=120)
    deployed_stack.wait_until(
        "every instance has its claim",
        lambda: deployed_stack.instances() == deployed_stack.claimed_instances(),
        seconds=30,
    )


def asked_for(calls: list[dict[str, Any]]) -> int:
    """Instances of the launches of CreateFleet calls: a refused one, such as of a template that is new, has another
    token next."""
    of_launch = {call["request"]["ClientToken"].rpartition("-")[0]: call["request"] for call in calls}
    return sum(request["TargetCapacitySpecification"]["TotalTargetCapacity"] for request in of_launch.values())


def each_was_asked_for(deployed_stack: DeployedStack, since: float, before: set[str]) -> None:
    """As many instances were bought since then, those that ended among them, as launches asked for."""

    def none_is_too_many() -> bool:
        calls = deployed_stack.calls("CreateFleet", since)
        return len(deployed_stack.all_instances() - before) == asked_for(calls) > 0

    deployed_stack.wait_until("each instance was asked for once", none_is_too_many, seconds=30)


def test_a_planner_that_dies_between_commit_and_doorbell_loses_nothing(deployed_stack: DeployedStack) -> None:
    started, before = time.time(), deployed_stack.all_instances()
    fault = {"service": "sqs", "action": "SendMessageBatch", "kind": "crash_caller_before_act", "function": "provision"}
    deployed_stack.stack.control("POST", "/_local/faults", fault | {"times": 1})
    deployed_stack.scale(5)
    all_run(deployed_stack)
    assert not deployed_stack.stack.control("GET", "/_local/faults").get("faults"), "the planner never died"
    each_was_asked_for(deployed_stack, started, before)


def test_a_function_that_dies_after_create_fleet_buys_once(deployed_stack: DeployedStack) -> None:
    started, before = time.time(), deployed_stack.all_instances()
    fault = {"service": "ec2", "action": "CreateFleet", "kind": "crash_caller_after_act", "function": "lifecycle"}
    deployed_stack.stack.control("POST", "/_local/faults", fault | {"times": 1})
    deployed_stack.scale(5)
    all_run(deployed_stack)
    calls = deployed_stack.calls("CreateFleet", started)
    assert len(calls) > len({c["request"]["ClientToken"] for c in calls}), "the call was never repeated"
    each_was_asked_for(deployed_stack, started, before)


def test_losing_the_table_in_the_middle_leaks_no_instance_and_hurts_no_pod(deployed_stack: DeployedStack) -> None:
    started = time.time()
    deployed_stack.scale(5)
    deployed_stack.wait_until(
        "CreateFleet was called", lambda: bool(deployed_stack.calls("CreateFleet", started)), seconds=60
    )
    assert deployed_stack.delete_rows() > 0
    deployed_stack.wait_until("five pods run", lambda: deployed_stack.running("inflate") == 5, seconds=150)
    time.sleep(61)  # An orphan is one only when it is a minute old.
    deployed_stack.ring("Sweep", "full")
    deployed_stack.wait_until(
        "no instance without a claim",
        lambda: deployed_stack.instances() <= deployed_stack.claimed_instances(),
        seconds=90,
    )
    # Pods of a node that was consolidated meanwhile may be on their way to another.
    deployed_stack.wait_until("five pods run", lambda: deployed_stack.running("inflate") == 5, seconds=60)


def test_a_decision_is_replayed_to_the_same_plan(deployed_stack: DeployedStack) -> None:
    deployed_stack.scale(5)
    all_run(deployed_stack)
    done = subprocess.run(
        [str(ROOT / ".venv/bin/spotwright"), "replay", "last", "--cluster", deployed_stack.stack.cluster],
        env=deployed_stack.stack.environment() | {"SPOTWRIGHT_STACK": deployed_stack.deployment.stack_name},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same plan" in done.stdout


FOREIGN = {
    "Provision": (
        "nonsense",
        '{"schema":1,"cluster":"not-ours","kind":"pods"}',
        '{"schema":1,"cluster":"*","kind":"x"}',
    ),
    "Interrupt": ("nonsense", '{"schema":1,"cluster":"*","kind":"pods"}', '{"source":"aws.ec2"}'),
}
OWN = {
    "Provision": {"schema": 1, "cluster": "*", "kind": "pods", "key": "", "epoch": 0},
    "Interrupt": {
        "id": "0", "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
        "time": "2026-01-01T00:00:00Z", "detail": {"instance-id": "i-0123456789abcdef0", "state": "terminated"},
    },
}  # fmt: skip


@pytest.mark.parametrize("queue", ["Provision", "Interrupt"])
def test_malformed_and_foreign_messages_die_alone(deployed_stack: DeployedStack, queue: str) -> None:
    """They arrive in one batch with a message of ours, which is worked off."""
    url, dead_letters = deployed_stack.shorten_visibility(queue)
    # What a function took that died in a test before stays hidden until the time it was taken for is over.
    hidden = deployed_stack.message_count(url)
    deployed_stack.stack.control("POST", f"/_local/functions/{queue.lower()}", {"enabled": False})
    for body in (*FOREIGN[queue], json.dumps(OWN[queue])):
        deployed_stack.sqs.send_message(QueueUrl=url, MessageBody=body)
    deployed_stack.stack.control("POST", f"/_local/functions/{queue.lower()}", {"enabled": True})
    deployed_stack.wait_until(
        "the dead letters have come", lambda: deployed_stack.message_count(dead_letters) == 3, seconds=90
    )
    deployed_stack.wait_until(
        "nothing of ours is left", lambda: deployed_stack.message_count(url) <= hidden, seconds=60
    )
    assert deployed_stack.message_bodies(dead_letters) == sorted(FOREIGN[queue])
    deployed_stack.scale(1)
    all_run(deployed_stack, 1)
