"""Nothing is lost and nothing is bought twice when a function dies, the table does, or messages are not ours."""

import json
import subprocess
import time

import pytest

from local.demo.deploy import ROOT
from tests.e2e.world import World

pytestmark = pytest.mark.stack


def all_run(world: World, count: int = 5) -> None:
    world.until(f"{count} pods run", lambda: world.running("inflate") == count, seconds=120)
    world.until("every instance has its claim", lambda: world.instances() == world.promised(), seconds=30)


def test_a_planner_that_dies_between_commit_and_doorbell_loses_nothing(world: World) -> None:
    started = time.time()
    fault = {"service": "sqs", "action": "SendMessageBatch", "kind": "crash_caller_before_act", "function": "provision"}
    world.stack.control("POST", "/_local/faults", fault | {"times": 1})
    world.scale(5)
    all_run(world)
    assert not world.stack.control("GET", "/_local/faults").get("faults"), "the planner never died"
    assert len({c["request"]["ClientToken"] for c in world.calls("CreateFleet", started)}) == len(world.instances())


def test_a_function_that_dies_after_create_fleet_buys_once(world: World) -> None:
    started = time.time()
    fault = {"service": "ec2", "action": "CreateFleet", "kind": "crash_caller_after_act", "function": "lifecycle"}
    world.stack.control("POST", "/_local/faults", fault | {"times": 1})
    world.scale(5)
    all_run(world)
    calls = world.calls("CreateFleet", started)
    assert len(calls) > len({c["request"]["ClientToken"] for c in calls}), "the call was never repeated"
    assert len(world.instances()) == len({c["request"]["ClientToken"] for c in calls})


def test_losing_the_table_in_the_middle_leaks_no_instance_and_hurts_no_pod(world: World) -> None:
    started = time.time()
    world.scale(5)
    world.until("CreateFleet was called", lambda: bool(world.calls("CreateFleet", started)), seconds=60)
    assert world.forget() > 0
    world.until("five pods run", lambda: world.running("inflate") == 5, seconds=150)
    time.sleep(61)  # An orphan is one only when it is a minute old.
    world.ring("Sweep", "full")
    world.until("no instance without a claim", lambda: world.instances() <= world.promised(), seconds=90)
    assert world.running("inflate") == 5


def test_a_decision_is_replayed_to_the_same_plan(world: World) -> None:
    world.scale(5)
    all_run(world)
    done = subprocess.run(
        [str(ROOT / ".venv/bin/spotwright"), "replay", "last", "--cluster", world.stack.cluster],
        env=world.stack.environment() | {"SPOTWRIGHT_STACK": world.deployment.stack_name},
        capture_output=True, text=True, timeout=60, check=False,
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
def test_malformed_and_foreign_messages_die_alone(world: World, queue: str) -> None:
    """They arrive in one batch with a message of ours, which is worked off."""
    url, dead_letters = world.hurried(queue)
    # What a function took that died in a test before stays hidden until the time it was taken for is over.
    hidden = world.waiting(url)
    world.stack.control("POST", f"/_local/functions/{queue.lower()}", {"enabled": False})
    for body in (*FOREIGN[queue], json.dumps(OWN[queue])):
        world.sqs.send_message(QueueUrl=url, MessageBody=body)
    world.stack.control("POST", f"/_local/functions/{queue.lower()}", {"enabled": True})
    world.until("the dead letters have come", lambda: world.waiting(dead_letters) == 3, seconds=90)
    world.until("nothing of ours is left", lambda: world.waiting(url) <= hidden, seconds=60)
    assert world.bodies(dead_letters) == sorted(FOREIGN[queue])
    world.scale(1)
    all_run(world, 1)
