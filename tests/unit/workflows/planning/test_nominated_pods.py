"""Which pods the next plan counts as placed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import Decision, decode_decision, encode_decision, group_into_launches
from spotwright.model.kubernetes.meta import OwnerReference
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.scheduling.plan import NewNode, Plan
from spotwright.simulation import builders
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.planning import nominated_pods
from spotwright.workflows.ports.rows import NominationRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = int(NOW.timestamp() * 1000)
HOSTS = {"claim-a": "node-a"}


def waiting(name: str = "web-0", uid: str = "uid-1", **fields: Any) -> Pod:
    pod = builders.pod(name, unschedulable=True, **fields)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))


def row(**fields: Any) -> NominationRow:
    nomination_row = NominationRow("claim-a", "c", {"default/web-0": "uid-1"}, due=MOMENT + 1)
    return msgspec.structs.replace(nomination_row, **fields)


def seen(pod: Pod, promise: NominationRow, hosts: dict[str, str] = HOSTS) -> Pod:
    (after,) = nominated_pods.place_nominated_pods([pod], [promise], node_names=hosts, now=NOW)
    return after


def test_a_promised_pod_sits_on_its_node() -> None:
    assert seen(waiting(), row()).node_name == "node-a"
    nominated = row(phase="nominated", node="node-a")
    after = seen(waiting(nominated_node_name="node-a"), nominated)
    assert (after.node_name, after.nominated_node_name) == ("node-a", "")


def test_an_overdue_promise_and_its_nomination_count_for_nothing() -> None:
    after = seen(waiting(nominated_node_name="node-a"), row(phase="nominated", node="node-a", due=MOMENT))
    assert (after.node_name, after.nominated_node_name) == ("", "")


def test_a_promise_of_a_claim_that_is_gone_counts_for_nothing() -> None:
    after = seen(waiting(nominated_node_name="node-a"), row(phase="nominated", node="node-a"), hosts={})
    assert (after.node_name, after.nominated_node_name) == ("", "")


@pytest.mark.parametrize("order", [1, -1])
def test_a_promise_of_a_claim_that_is_gone_hides_no_other(order: int) -> None:
    """The pod was planned again for another claim, which is not bought a second time."""
    rows = [row(claim="gone", created=MOMENT - 2), row(created=MOMENT - 1)][::order]
    (after,) = nominated_pods.place_nominated_pods([waiting()], rows, node_names=HOSTS, now=NOW)
    assert after.node_name == "node-a"


def test_a_nomination_of_a_claim_that_is_gone_hides_no_promise() -> None:
    rows = [row(claim="gone", node="node-gone", phase="nominated"), row(created=MOMENT - 1)]
    pod = waiting(nominated_node_name="node-gone")
    (after,) = nominated_pods.place_nominated_pods([pod], rows, node_names=HOSTS, now=NOW)
    assert (after.node_name, after.nominated_node_name) == ("node-a", "")


def test_of_two_promises_the_newer_counts() -> None:
    rows = [row(claim="claim-b", created=MOMENT - 1), row(created=MOMENT - 2)]
    hosts = HOSTS | {"claim-b": "node-b"}
    (after,) = nominated_pods.place_nominated_pods([waiting()], rows, node_names=hosts, now=NOW)
    assert after.node_name == "node-b"


@pytest.mark.parametrize(
    "pod",
    [
        waiting(uid="another"),
        waiting("other"),
        waiting(nominated_node_name="made room by preemption"),
        msgspec.structs.replace(waiting(), node_name="elsewhere"),
    ],
    ids=["another pod of the name", "nobody's", "nominated by kube-scheduler", "bound"],
)
def test_other_pods_are_seen_as_they_are(pod: Pod) -> None:
    assert seen(pod, row(phase="nominated", node="node-a")) == pod


def moving(pod: Pod, promise: NominationRow, leaving: frozenset[str] = frozenset({"old"}), minutes: int = 0) -> str:
    """Where the planner sees a pod of the node ``old``."""
    pods = [msgspec.structs.replace(pod, node_name="old", unschedulable=False)]
    now = NOW + timedelta(minutes=minutes)
    (after,) = nominated_pods.place_nominated_pods(pods, [promise], node_names=HOSTS, leaving_nodes=leaving, now=now)
    return after.node_name


def promise_to_move(**fields: Any) -> NominationRow:
    return row(pods={}, moving_pods={"default/web-0": "uid-1"}, created=MOMENT, due=MOMENT + 1000, **fields)


def test_a_pod_that_will_move_sits_where_it_will_be() -> None:
    assert moving(waiting(), promise_to_move()) == "node-a"


@pytest.mark.parametrize(("owner", "place"), [("ReplicaSet", "old"), ("StatefulSet", "node-a")])
def test_a_pod_that_stops_leaves_its_place_to_the_one_that_comes_after_it(owner: str, place: str) -> None:
    """That of a ReplicaSet is there already; a StatefulSet waits until the pod is gone."""
    pod = waiting(owner_references=(OwnerReference(owner, "web", "uid-owner"),))
    stops = msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW + timedelta(seconds=30))
    assert moving(msgspec.structs.replace(pod, metadata=stops), promise_to_move()) == place


def test_a_pod_of_a_node_that_stays_after_all_is_where_it_runs() -> None:
    assert moving(waiting(), promise_to_move(), leaving=frozenset()) == "old"


def test_the_promise_to_a_pod_that_will_move_ends_with_pod_claim_and_time() -> None:
    assert moving(waiting(uid="another"), promise_to_move()) == "old"
    assert moving(waiting(), promise_to_move(claim="claim-gone")) == "old"
    assert moving(waiting(), promise_to_move(), minutes=14) == "node-a", "longer than a nomination of pending pods"
    assert moving(waiting(), promise_to_move(), minutes=15) == "old"


@pytest.mark.parametrize("order", [1, -1])
def test_the_promise_of_a_claim_that_is_gone_hides_no_other_to_a_pod_that_will_move(order: int) -> None:
    pods = [msgspec.structs.replace(waiting(), node_name="old")]
    rows = [promise_to_move(claim="gone"), promise_to_move()][::order]
    (after,) = nominated_pods.place_nominated_pods(
        pods, rows, node_names=HOSTS, leaving_nodes=frozenset({"old"}), now=NOW
    )
    assert after.node_name == "node-a"


def planned(*pods: str) -> NewNode:
    return NewNode(
        nodepool="default", nodeclass="default", pods=pods, instance_types=("m5.large",), requirements=(), labels={},
        taints=(), startup_taints=(), requests={"cpu": 1}, price_picousd_per_hour=1, capacity_type="spot", zones=("a",),
    )  # fmt: skip


def decision() -> Decision:
    plan = Plan(new_nodes=(planned("default/a", "default/b"), planned("default/c"), planned("default/moved")))
    launches = group_into_launches("d", plan, {"default/a": "1", "default/b": "2", "default/c": "3"})
    return Decision("d", "provision", "c", 0, NOW, "s", "k", "code", plan, launches)


def test_each_of_equal_nodes_is_promised_the_pods_it_was_planned_with() -> None:
    (launch,) = decision().launches
    assert len(launch.claims) == 3
    rows = {nomination_row.claim: nomination_row.pods for nomination_row in nominated_pods.nominations_of(decision())}
    assert rows == {launch.claims[0]: {"default/a": "1", "default/b": "2"}, launch.claims[1]: {"default/c": "3"}}


def test_a_decision_promises_before_it_is_acted_on_and_its_rows_go_before_it() -> None:
    state = FakeState("c", Effects(Clock()))
    first, second = nominated_pods.open_nominations(state, [decision()], Settings())
    assert first.due - first.created == timedelta(minutes=15).total_seconds() * 1000
    later = msgspec.structs.replace(first, phase="nominated", node="n")
    state.create(later)
    assert nominated_pods.open_nominations(state, [decision()], Settings()) == (later, second)
    assert nominated_pods.open_nominations(state, [decision()], Settings(follow_plan="Off")) == ()


def test_decisions_of_before_promise_nothing() -> None:
    body = msgspec.json.decode(encode_decision(decision()))
    for launch in body["launches"]:
        del launch["pods"]
    assert list(nominated_pods.nominations_of(decode_decision(msgspec.json.encode(body)))) == []
