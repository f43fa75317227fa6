"""What every handler does while something does not answer: nothing is deleted, somebody can be told, work returns."""

import json
from typing import Any

import pytest

from spotwright.errors import ApiError, Denied, Throttled, Unavailable
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.functions.handlers import Context, doorbell, failed_messages, load_handler, sqs_event

NO_API_SERVER = ("cluster", Unavailable("no answer", code="Unreachable"))
NO_RIGHTS = ("cluster", Denied("forbidden", code="Forbidden"))
THROTTLED_EC2 = ("ec2", Throttled("too many requests", code="RequestLimitExceeded"))
NO_TABLE = ("state", Unavailable("table not found", code="ResourceNotFoundException"))
NO_BUCKET = ("blobs", Unavailable("no such bucket", code="NoSuchBucket"))
NO_QUEUE = ("doorbells", Unavailable("no such queue", code="QueueDoesNotExist"))
OUTAGES = (NO_API_SERVER, NO_RIGHTS, THROTTLED_EC2, NO_TABLE, NO_BUCKET, NO_QUEUE)
NAMES = ("no API server", "no rights", "throttled EC2", "no table", "no bucket", "no queue")
# What an alarm can be set on.
METRICS = ("WorkFailed", "StepsFailed")


def busy(world: World) -> None:
    """A node that is empty, one that is being launched, one that is deleted, a notice, and pods that wait."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(90, until=lambda: len(world.running_pods()) == 3)
    world.forwarder_runs = False
    first, second, third = world.claims()
    world.cluster.delete("nodeclaims", first.metadata)
    world.deliver_event(
        "EC2 Spot Instance Interruption Warning", {"instance-id": _instance(second), "instance-action": "stop"}
    )
    for pod in world.running_pods():
        if pod.node_name == third.node_name:
            world.cluster.remove("pods", pod.key)
    world.forget_deployments()
    waiting = builders.pod("waiting", cpu_millicores=1800, unschedulable=True)
    world.cluster.put("pods", waiting)
    world.state.request_planning()
    world.doorbells.messages.clear()


def _instance(claim: NodeClaim) -> str:
    return claim.provider_id.rpartition("/")[2]


def events(world: World, function: str) -> dict[str, Any]:
    """Everything that could wake a function now."""
    claims = [doorbell(world, "claim", nodeclaim.name) for nodeclaim in world.claims()]
    nodes = [doorbell(world, "node", one.name) for one in world.cluster.all("nodes")]
    rows = [doorbell(world, key.partition("#")[0], key.partition("#")[2]) for key in sorted(world.state.rows)]
    instances = [doorbell(world, "instance", instance.id) for instance in world.ec2.all_instances()]
    detail = {"instance-id": "i-0123", "instance-action": "terminate"}
    warned = {
        "version": "0", "id": "e", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
        "account": "1", "time": world.clock.now().isoformat(), "region": "r", "resources": [], "detail": detail,
    }  # fmt: skip
    bodies: dict[str, list[Any]] = {
        "provision": [doorbell(world, "pods")],
        "lifecycle": [doorbell(world, "decision"), *rows, *claims, *nodes, *instances, doorbell(world, "nodepools")],
        "disrupt": [doorbell(world, "evaluate")],
        "sweep": [doorbell(world, "poll"), doorbell(world, "full")],
        "interrupt": [warned],
    }
    return sqs_event(bodies[function])


def harm(world: World) -> list[str]:
    """What was taken from the cluster or from EC2."""
    deleted = [effect.subject for effect in world.effects.select("cluster", "delete")]
    return [effect.subject for effect in world.effects.select("ec2", "terminate")] + deleted


def counted(output: str) -> dict[str, float]:
    """Metrics that were written, summed."""
    total: dict[str, float] = {}
    for line in output.splitlines():
        if line.startswith("{") and "CloudWatchMetrics" in line:
            for name, values in json.loads(line).items():
                if name in METRICS:
                    total[name] = total.get(name, 0) + sum(values)
    return total


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=NAMES)
@pytest.mark.parametrize("function", ["provision", "lifecycle", "disrupt", "sweep", "interrupt"])
def test_in_an_outage_nothing_is_deleted_and_it_is_counted(
    world: World, function: str, port: str, failure: ApiError, capsys: pytest.CaptureFixture[str]
) -> None:
    busy(world)
    handler, event = load_handler(function, world).handler, events(world, function)
    world.outages[port] = failure
    before, rows = harm(world), dict(world.state.rows)
    capsys.readouterr()
    handler(event, Context())
    assert harm(world) == before
    if port == "state":
        assert world.state.rows == rows
    if concerned(function, port):
        assert counted(capsys.readouterr().out), "nobody would notice"


def test_work_on_a_cluster_that_fails_is_counted_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """However many doorbells of it fail."""
    busy(world)
    handler, event = load_handler("lifecycle", world).handler, events(world, "lifecycle")
    world.outages["state"] = NO_TABLE[1]
    capsys.readouterr()
    handler(event, Context())
    assert counted(capsys.readouterr().out)["WorkFailed"] == 1


def concerned(function: str, port: str) -> bool:
    """Whether a function reaches a port at all in this situation."""
    reached = {
        "provision": {"cluster", "state", "blobs", "doorbells"},
        "lifecycle": {"cluster", "ec2", "state", "doorbells"},
        "disrupt": {"cluster", "state"},
        "sweep": {"cluster", "ec2", "state", "doorbells"},
        "interrupt": {"state", "doorbells"},
    }
    return port in reached[function]


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=NAMES)
@pytest.mark.parametrize("function", ["provision", "lifecycle", "disrupt", "sweep", "interrupt"])
def test_after_an_outage_the_same_event_is_worked_off(
    world: World, function: str, port: str, failure: ApiError
) -> None:
    busy(world)
    handler, event = load_handler(function, world).handler, events(world, function)
    world.outages[port] = failure
    handler(event, Context())
    world.outages.clear()
    assert failed_messages(handler(event, Context())) == []


@pytest.mark.parametrize("function", ["provision", "lifecycle", "disrupt", "sweep", "interrupt"])
def test_late_messages_are_worked_off_as_if_they_were_new(world: World, function: str) -> None:
    """An hour in a queue: what they speak of is long gone, and nothing happens twice."""
    busy(world)
    handler, event = load_handler(function, world).handler, events(world, function)
    world.forwarder_runs = True
    world.run(600)
    world.doorbells.messages.clear()
    bought, before = len(world.ec2.all_instances()), harm(world)
    world.clock.advance(3600)
    assert failed_messages(handler(event, Context())) == []
    assert len(world.ec2.all_instances()) == bought
    assert harm(world) == before


@pytest.mark.parametrize("function", ["provision", "disrupt", "sweep", "interrupt"])
def test_the_same_event_again_changes_no_row_and_no_node(world: World, function: str) -> None:
    busy(world)
    handler, event = load_handler(function, world).handler, events(world, function)
    handler(event, Context())
    rows = {key: row for key, row in world.state.rows.items() if not key.startswith("command#")}
    head, before = world.state.cluster_row.head, harm(world)
    handler(event, Context())
    assert {key: row for key, row in world.state.rows.items() if not key.startswith("command#")} == rows
    assert (world.state.cluster_row.head, harm(world)) == (head, before)
    held = [name for row in world.state.commands() for name in row.candidates]
    assert len(held) == len(set(held))
