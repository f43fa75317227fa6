"""Each alarm rings for what the functions really write, and none rings in an idle cluster at zero nodes."""

import importlib.util
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from infra.alarm_rows import alarm_rows
from spotwright.disruption.breaker import Breaker
from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import NODE_REPAIR
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.telemetry.rows import LogLine
from spotwright.telemetry.tables import metric_rows
from tests.functions.catalog.fakes import CatalogWorld
from tests.functions.handlers import Context, doorbell, load_handler, sqs_event
from tests.infra.alarm_evaluation import Metrics, metric_stats, rings
from tests.infra.conftest import cluster, synthesise
from tests.infra.template import Resource

ROWS = {metric.alarm.name: metric.alarm for metric in metric_rows().values() if metric.alarm} | alarm_rows()
MINUTES = 60
# An alarm of AWS's metrics → (namespace, metric, dimension) as the page above says, and its value in a bad minute.
AWS: dict[str, tuple[tuple[str, str, str], float]] = {
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    "DeadLetters": (("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName"), 1),
    "MessagesWait": (("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName"), 3000),
    # https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
    "Errors": (("AWS/Lambda", "Errors", "FunctionName"), 1),
    "Throttles": (("AWS/Lambda", "Throttles", "FunctionName"), 1),
    "NotInvoked": (("AWS/Lambda", "Invocations", "FunctionName"), 0),
    # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-monitoring.html
    "FailedInvocations": (("AWS/Events", "FailedInvocations", "RuleName"), 1),
    # https://docs.aws.amazon.com/scheduler/latest/UserGuide/monitoring-cloudwatch.html
    "SchedulesFail": (("AWS/Scheduler", "InvocationDroppedCount", "ScheduleGroup"), 1),
}


@pytest.fixture(scope="module")
def alarms() -> dict[str, Resource]:
    """Of a cell with the tests' cluster, by name."""
    template = synthesise({"clusters": [cluster(builders.CLUSTER)]})
    return {alarm["AlarmName"]: alarm for alarm in template.of("AWS::CloudWatch::Alarm").values()}


class Functions:
    """Invokes functions in a world, and collects what they write."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self._capsys = capsys
        self._handlers: dict[str, Any] = {}

    def invoke(self, function: str, *bodies: object) -> str:
        """What the invocation printed."""
        if function not in self._handlers:
            self._handlers[function] = load_handler(function, self.world).handler
        self._capsys.readouterr()
        self._handlers[function](sqs_event(bodies), Context())
        return self._capsys.readouterr().out

    def poll(self) -> str:
        return self.invoke("sweep", doorbell(self.world, "poll"))


@pytest.fixture
def functions(world: World, capsys: pytest.CaptureFixture[str]) -> Functions:
    world.forwarder_runs = False
    return Functions(world, capsys)


def a_pod_waits(functions: Functions) -> str:
    created = functions.world.clock.now() - timedelta(minutes=16)
    pod = builders.pod("web", unschedulable=True)
    metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=created)
    functions.world.cluster.put("pods", msgspec.structs.replace(pod, metadata=metadata))
    return functions.poll()


def a_nodepool_is_not_ready(functions: Functions) -> str:
    conditions = (Condition("Ready", "False", "NodeClassNotReady"),)
    functions.world.cluster.put("nodepools", msgspec.structs.replace(builders.nodepool(), conditions=conditions))
    return functions.poll()


def a_node_without_heartbeats(functions: Functions) -> str:
    world = functions.world
    if not world.claims():
        world.deploy(builders.pod("inflate"), 1)
        world.forwarder_runs = True
        assert world.run(90, until=lambda: bool(world.running_pods()))
        world.forwarder_runs = False
        world.state.heartbeat_at = 0
    return functions.poll()


def karpenter_as_well(functions: Functions) -> str:
    functions.world.cluster.karpenter = "Deployment karpenter/karpenter"
    return functions.poll()


def unhealthy_nodes(functions: Functions) -> str:
    """Two of three, for an hour."""
    world = functions.world
    since = world.clock.now() - timedelta(hours=1)
    if not world.cluster.nodes():
        world.settings = msgspec.structs.replace(world.settings, feature_gates=(NODE_REPAIR,))
        for number, status in enumerate(("True", "False", "False")):
            ready = Condition("Ready", status, last_transition_time=since)
            node = builders.unmanaged_node(f"node-{number}", provider_id=f"aws:///z/i-{number}", conditions=(ready,))
            world.cluster.put("nodes", node)
    return functions.invoke("lifecycle", doorbell(world, "repair"))


def many_orphans(functions: Functions) -> str:
    world = functions.world
    tags = {
        labels.cluster_tag(world.cluster.name): "owned", labels.NODEPOOL: "default", labels.EC2NODECLASS: "default",
        labels.CLUSTER_NAME_TAG: world.cluster.name,
    }  # fmt: skip
    for number in range(4):
        id, launched = f"i-{number:017x}", world.clock.now() - timedelta(hours=1)
        world.ec2.instances[id] = Instance(id, "m5.large", "z", "spot", "running", launch_time=launched, tags=tags)
    return functions.invoke("sweep", doorbell(world, "full"))


def an_open_breaker(functions: Functions) -> str:
    until = functions.world.clock.milliseconds() + 600_000
    functions.world.state.stored_breaker = Breaker(open_until_ms=until)
    return functions.invoke("disrupt", doorbell(functions.world, "evaluate"))


def a_ceiling(functions: Functions) -> str:
    world = functions.world
    world.settings = msgspec.structs.replace(world.settings, max_nodes_per_hour=1)
    for number in range(2):
        world.cluster.put("pods", builders.pod(f"web-{number}", cpu_millicores=1800, unschedulable=True))
    return functions.invoke("provision", doorbell(world, "pods"))


def no_api_server(functions: Functions) -> str:
    functions.world.outages["cluster"] = Unavailable("no answer", code="Unreachable")
    return functions.poll()


def no_table(functions: Functions) -> str:
    functions.world.outages["state"] = Unavailable("no answer", code="Unreachable")
    warned = {
        "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "time": "2026-07-01T00:00:00Z",
        "detail": {"instance-id": "i-1", "instance-action": "terminate"},
    }  # fmt: skip
    return functions.invoke("interrupt", warned)


def said_by_lifecycle(line: LogLine) -> Callable[[Functions], str]:
    def say(functions: Functions) -> str:
        functions.invoke("lifecycle")
        log_line(logging.getLogger("spotwright.lifecycle"), line, **dict.fromkeys(line.fields, "x"))
        return functions.invoke("lifecycle", doorbell(functions.world, "nodepools"))

    return say


def nothing(functions: Functions) -> str:
    return functions.invoke("disrupt", doorbell(functions.world, "evaluate"))


# An alarm → the bad minute that makes it ring.
OWN: dict[str, Callable[[Functions], str]] = {
    "PodsPendingLong": a_pod_waits,
    "NodePoolsNotReady": a_nodepool_is_not_ready,
    "ForwarderSilent": a_node_without_heartbeats,
    "OtherProvisioner": karpenter_as_well,
    "OrphansRefused": many_orphans,
    "NodeRepairBlocked": unhealthy_nodes,
    "DisruptionBreakerOpen": an_open_breaker,
    "LaunchesHeldBack": a_ceiling,
    "WorkFailed": no_api_server,
    "NoticesNotRecorded": no_table,
    "StepsFailed": said_by_lifecycle(log_lines.STEP_FAILED),
    "CallsThrottled": said_by_lifecycle(log_lines.CALL_THROTTLED),
    "DecisionsSetAside": said_by_lifecycle(log_lines.DROPPED_DECISION),
    "SweepMissing": nothing,
}
# The catalog function has a world of its own, below.
BY_CATALOG = "ClassesNotReady"


def of(alarms: dict[str, Resource], kind: str) -> list[Resource]:
    return [alarm for name, alarm in alarms.items() if name.endswith(f"-{kind}")]


def idle(functions: Functions, metrics: Metrics, alarms: dict[str, Resource]) -> None:
    """An hour of a cluster at zero nodes in which nothing happens; CoreDNS waits for a node as it did for hours."""
    world = functions.world
    world.cluster.put("pods", _waiting_follower(world))
    for kind, (_, bad) in AWS.items():
        for alarm in of(alarms, kind):
            for each in metric_stats(alarm):
                write(metrics, each, range(MINUTES), 0 if bad else 1)
    for minute in range(MINUTES):
        world.clock.advance(60)
        written = functions.poll() + functions.invoke("disrupt", doorbell(world, "evaluate"))
        if minute % 10 == 0:
            written += functions.invoke("sweep", doorbell(world, "full"))
            written += functions.invoke("lifecycle", doorbell(world, "nodepools"), doorbell(world, "drift"))
        metrics.put_output(written, minute)


def _waiting_follower(world: World) -> Pod:
    pod = builders.pod("coredns", unschedulable=True)
    created = world.clock.now() - timedelta(hours=8)
    metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=created, annotations={labels.FOLLOW: "true"})
    return msgspec.structs.replace(pod, metadata=metadata)


def write(metrics: Metrics, stat: dict[str, Any], minutes: range, value: float) -> None:
    metric = stat["Metric"]
    dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
    for minute in minutes:
        metrics.put(metric["Namespace"], metric["MetricName"], dimensions, minute, value)


def test_every_alarm_is_made_to_ring_here(alarms: dict[str, Resource]) -> None:
    assert {name.rpartition("-")[2] for name in alarms} == set(ROWS) == {*OWN, *AWS, BY_CATALOG}


def test_the_page_of_costs_counts_the_alarms_of_a_cluster_and_their_metrics(alarms: dict[str, Resource]) -> None:
    metrics = sum(len(metric_stats(alarm)) for alarm in alarms.values())
    page = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
    assert f"| CloudWatch alarms | {len(alarms)} on {metrics} metrics |" in page
    assert f"ten are free | {(metrics - 10) / 10:.2f} |" in page


def test_in_an_idle_cluster_at_zero_nodes_none_rings(functions: Functions, alarms: dict[str, Resource]) -> None:
    metrics = Metrics()
    idle(functions, metrics, alarms)
    assert [name for name, alarm in alarms.items() if rings(alarm, metrics, MINUTES)] == []


@pytest.mark.parametrize("kind", OWN)
def test_it_rings_for_what_functions_write_after_its_minutes_and_no_earlier(
    functions: Functions, alarms: dict[str, Resource], kind: str
) -> None:
    metrics, row = Metrics(), ROWS[kind]
    (alarm,) = of(alarms, kind)
    functions.invoke("lifecycle", doorbell(functions.world, "nodepools"))
    for minute in range(MINUTES // 2):
        metrics.put_output(functions.poll(), minute)
    for minute in range(MINUTES // 2, MINUTES):
        functions.world.clock.advance(60)
        metrics.put_output(OWN[kind](functions), minute)
    ringing = [minute for minute in range(MINUTES // 2, MINUTES + 1) if rings(alarm, metrics, minute)]
    assert ringing
    assert ringing == list(range(ringing[0], MINUTES + 1)), "it rings until the trouble is over"
    assert ringing[0] - MINUTES // 2 <= row.minutes
    assert ringing[0] - MINUTES // 2 > row.minutes - row.period_minutes


@pytest.mark.parametrize("kind", AWS)
def test_it_rings_for_what_aws_writes(alarms: dict[str, Resource], kind: str) -> None:
    (namespace, name, dimension), bad = AWS[kind]
    watching = of(alarms, kind)
    assert watching
    for alarm in watching:
        for each in metric_stats(alarm):
            metric = each["Metric"]
            assert (metric["Namespace"], metric["MetricName"]) == (namespace, name)
            assert [dimension] == [given["Name"] for given in metric["Dimensions"]]
            metrics = Metrics()
            write(metrics, each, range(MINUTES), bad)
            assert rings(alarm, metrics, MINUTES)
        assert rings(alarm, Metrics(), MINUTES) is ROWS[kind].is_missed, "AWS writes no zeros where nothing happens"


def test_classes_that_are_not_ready_ring(
    alarms: dict[str, Resource], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Spotwright")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "catalog")
    world, metrics = CatalogWorld(), Metrics()
    spec = importlib.util.spec_from_file_location(
        "catalog_alarms", Path(__file__).parents[2] / "functions" / "catalog" / "handler.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module.cluster_clients, "environment", lambda _: SimpleNamespace(clusters={builders.CLUSTER: 0})
    )
    monkeypatch.setattr(module.catalog_clients, "ports", lambda *_: world)
    world.apply()
    world.selectors.found_subnets = ()
    bell = json.dumps({"schema": 1, "cluster": builders.CLUSTER, "kind": "nodeclasses", "key": "", "epoch": 0})
    for minute in range(0, MINUTES, 5):
        capsys.readouterr()
        module.handler({"Records": [{"messageId": "m", "body": bell}]}, Context())
        metrics.put_output(capsys.readouterr().out, minute)
    (alarm,) = of(alarms, BY_CATALOG)
    assert not rings(alarm, metrics, 10)
    assert rings(alarm, metrics, 15)
    assert rings(alarm, metrics, MINUTES)


@pytest.mark.parametrize("kind", ROWS)
def test_it_says_for_whom_what_happened_and_what_to_do(alarms: dict[str, Resource], kind: str) -> None:
    for name, alarm in alarms.items():
        if name.endswith(f"-{kind}"):
            said = alarm["AlarmDescription"]
            subject = name.removeprefix("Spotwright-main-").removesuffix(f"-{kind}")
            assert subject in said
            assert said.endswith(f" docs/runbook.md#{kind.lower()}")
            assert "{" not in said
            # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
            assert len(said) <= 1024
