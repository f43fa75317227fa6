"""EC2 names the second in which it takes an instance: pods stop in order, each with its grace period, before that."""

from collections.abc import Callable
from datetime import datetime, timedelta
from math import inf
from typing import Any

import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.errors import Conflict, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.interrupted_nodes import deliver

NOTICE_SECONDS = 120


def pod(name: str, grace_seconds: int, **fields: Any) -> Pod:
    return builders.pod(name, cpu_millicores=300, termination_grace_period_seconds=grace_seconds, **fields)


def warned(*pods: tuple[Pod, int], grace_period_seconds: int | None = None, **budget: int) -> tuple[World, datetime]:
    """A spot node with these pods is warned, and its replacement is late; the budget is that of the pods ``web``.

    Pods take their whole grace period to stop.
    """
    world = fresh_world()
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=grace_period_seconds)
    for template, replicas in pods:
        world.deploy(template, replicas)
    count = sum(replicas for _, replicas in pods)
    assert world.run(90, until=lambda: len(world.running_pods()) == count)
    world.run(20)
    (claim,) = world.claims()
    if budget:
        world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("web", "web", **budget))
    world.kubelets.stop_seconds = 10_000
    world.kubelets.boot_seconds = 600
    at = world.clock.now()
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])
    return world, at


def being_drained(
    grace_seconds: int, *, grace_period_seconds: int | None = None, seconds: int = 10
) -> tuple[World, NodeClaim]:
    """The NodeClaim was deleted so many seconds ago, and its only pod may not be disrupted."""
    world = fresh_world()
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=grace_period_seconds)
    world.deploy(pod("web", grace_seconds, annotations={labels.DO_NOT_DISRUPT: "true"}), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    world.forget_deployments()
    world.kubelets.stop_seconds = 10_000
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(seconds)
    return world, claim


def asked_to_stop(world: World, seconds: int = NOTICE_SECONDS) -> dict[str, float]:
    """Pods by name and the seconds from now to the moment at which each was told to stop."""
    began, told = world.clock.now(), dict[str, float]()
    for _ in range(seconds):
        world.run(1)
        for leaving in world.cluster.all("pods"):
            if leaving.metadata.deletion_timestamp is not None:
                told.setdefault(leaving.metadata.name, (world.clock.now() - began).total_seconds())
    return told


def test_pods_of_a_budget_that_lets_one_go_at_a_time_begin_so_early_that_all_have_their_time() -> None:
    """3 x 20 s to stop, twice 10 s until a successor is Ready, 10 s for the messages: 30 s are left to wait."""
    world, _ = warned((pod("web", 20), 3), max_unavailable=1)
    told = asked_to_stop(world, 60)
    assert 29 <= min(told.values()) <= 35


def test_critical_pods_have_their_time_after_the_others() -> None:
    """40 s for the others, then 40 s, and 10 s for the messages."""
    critical = pod("dns", 40, priority_class_name="system-cluster-critical")
    world, _ = warned((pod("web", 40), 1), (critical, 1))
    told = asked_to_stop(world)
    first, last = (next(at for name, at in told.items() if name.startswith(kind)) for kind in ("web", "dns"))
    assert 29 <= first <= 35
    assert first + 38 <= last <= NOTICE_SECONDS - 40 + 1


@pytest.mark.parametrize("kept_by", ["budget", "annotation"])
def test_critical_pods_have_their_time_after_one_that_is_kept(kept_by: str) -> None:
    critical = pod("dns", 40, priority_class_name="system-cluster-critical")
    if kept_by == "budget":
        world, _ = warned((pod("web", 40), 1), (critical, 1), max_unavailable=0)
    else:
        world, _ = warned((pod("web", 40, annotations={labels.DO_NOT_DISRUPT: "true"}), 1), (critical, 1))
    told = asked_to_stop(world)
    first, last = (next(at for name, at in told.items() if name.startswith(kind)) for kind in ("web", "dns"))
    assert NOTICE_SECONDS - 80 <= first <= NOTICE_SECONDS - 75
    assert first + 38 <= last <= NOTICE_SECONDS - 40 + 4
    assert "PodStoppedEarly" not in {event.reason for event in world.cluster.events}


@pytest.mark.parametrize("kept_by", ["budget", "annotation"])
def test_what_keeps_a_pod_keeps_it_as_long_as_its_grace_period_still_fits(kept_by: str) -> None:
    """EC2 asks neither: the pod would be killed with its instance, a grace period later."""
    if kept_by == "budget":
        world, _ = warned((pod("web", 30), 1), max_unavailable=0)
    else:
        world, _ = warned((pod("web", 30, annotations={labels.DO_NOT_DISRUPT: "true"}), 1))
    told = asked_to_stop(world, 110)
    assert NOTICE_SECONDS - 30 <= min(told.values()) <= NOTICE_SECONDS - 30 + 3
    (event,) = [event for event in world.cluster.events if event.reason == "Disrupted"]
    assert "granted 29 seconds" in event.message or "granted 28 seconds" in event.message


def test_a_pod_that_cannot_stop_in_time_is_said_with_the_time_it_needs_and_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING", "spotwright.lifecycle")
    world, at = warned((pod("web", 600), 1))
    told = asked_to_stop(world, 30)
    assert min(told.values()) <= 5, "as early as possible"
    (event,) = [event for event in world.cluster.events if event.reason == "PodStoppedEarly"]
    assert event.kind == "nodeclaims"
    deadline = (at + timedelta(seconds=NOTICE_SECONDS)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert event.message.startswith("Pod default/web-0001 needs 600 seconds to stop and has 11")
    assert event.message.endswith(f": its node goes at {deadline}")
    assert [record.getMessage() for record in caplog.records].count("pod has less time to stop than it needs") == 1


def test_a_shorter_termination_grace_period_ends_the_drain_earlier() -> None:
    """A pod that may not be disrupted has no other place planned, so that nothing is waited for."""
    world, _ = warned((pod("web", 20, annotations={labels.DO_NOT_DISRUPT: "true"}), 1), grace_period_seconds=30)
    told = asked_to_stop(world, 110)
    assert 30 - 20 <= min(told.values()) <= 30 - 20 + 3
    assert "PodStoppedEarly" not in {event.reason for event in world.cluster.events}


def test_a_shorter_termination_grace_period_counts_from_when_the_claim_goes_which_waits_for_its_replacement() -> None:
    """EC2's time is later, and is not noted on the claim meanwhile."""
    world = fresh_world()
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=30)
    world.deploy(pod("web", 20), 1)
    world.deploy(pod("batch", 20, annotations={labels.DO_NOT_DISRUPT: "true"}), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    world.run(20)
    (claim,) = world.claims()
    world.kubelets.stop_seconds = 10_000
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])

    def is_deleted() -> bool:
        current = world.cluster.find("nodeclaims", claim.name)
        if current.metadata.deletion_timestamp is None:
            assert labels.TERMINATION_TIMESTAMP not in current.metadata.annotations
        return current.metadata.deletion_timestamp is not None

    assert world.run(60, until=is_deleted)
    world.settle()
    told = asked_to_stop(world, 60)
    assert next(at for name, at in told.items() if name.startswith("batch")) <= 30 - 20 + 3


def test_a_node_that_was_being_drained_already_has_the_time_that_ec2_leaves() -> None:
    world, claim = being_drained(30, grace_period_seconds=3600)
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])
    told = asked_to_stop(world, 110)
    assert NOTICE_SECONDS - 30 <= min(told.values()) <= NOTICE_SECONDS - 30 + 3


@pytest.mark.parametrize("order", [("spot", "stopping"), ("stopping", "spot")])
@pytest.mark.parametrize("seconds", [0, 1, 15])
def test_a_node_that_was_being_drained_has_that_time_beside_a_state_change_that_is_no_longer_true(
    order: tuple[str, ...], seconds: int
) -> None:
    """``seconds``: between the two messages, 0 = in one batch. The instance was started again since."""
    world, claim = being_drained(30)
    at = world.clock.now()
    for batch in [order] if seconds == 0 else [(name,) for name in order]:
        deliver(world, claim.provider_id.rpartition("/")[2], *batch)
        at = world.clock.now() if "spot" in batch else at
        world.run(seconds)
    passed = (world.clock.now() - at).total_seconds()
    told = asked_to_stop(world, 115)
    assert NOTICE_SECONDS - 30 <= min(told.values()) + passed <= NOTICE_SECONDS - 30 + 3


def test_a_node_at_which_nobody_looks_every_few_seconds_any_more_has_the_time_that_ec2_leaves() -> None:
    """After hours of a drain the looks at a NodeClaim are a minute apart, and in the end only the sweep's."""
    world, claim = being_drained(90)
    world.doorbells.messages = [message for message in world.doorbells.messages if message.doorbell.kind != "claim"]
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])
    told = asked_to_stop(world, 60)
    assert NOTICE_SECONDS - 90 <= min(told.values()) <= NOTICE_SECONDS - 90 + 3


def test_a_termination_that_ends_before_ec2_takes_the_instance_is_not_made_longer() -> None:
    world, claim = being_drained(20, grace_period_seconds=130, seconds=60)
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])
    told = asked_to_stop(world, 110)
    assert 130 - 60 - 20 <= min(told.values()) <= 130 - 60 - 20 + 5


REFUSED = Throttled("no room", code="SlowDown")
CUT_OFF = Crash("the time of the invocation is over")


def in_the_bucket(monkeypatch: pytest.MonkeyPatch, ending: BaseException, *, seconds: float = inf) -> None:
    """From the next warning on, for so long, whoever stores a decision ends so; its messages come back after three
    minutes."""
    usual, invoke = World.interrupt_spot, World._invoke

    def interrupt(world: World, instance: str) -> None:
        at, put = world.clock.now(), world.blobs.put

        def store(kind: str, body: bytes) -> str:
            if (world.clock.now() - at).total_seconds() < seconds:
                raise ending
            return put(kind, body)

        monkeypatch.setattr(world.blobs, "put", store)
        usual(world, instance)

    def survive(
        world: World, queue: str, work: Callable[[tuple[Doorbell, ...]], None], bells: tuple[Doorbell, ...]
    ) -> None:
        try:
            invoke(world, queue, work, bells)
        except (Crash, ValueError):
            world.doorbells.ring(queue, bells, delay_seconds=180)

    monkeypatch.setattr(World, "interrupt_spot", interrupt)
    monkeypatch.setattr(World, "_invoke", survive)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(REFUSED, id="it is refused"),
        pytest.param(CUT_OFF, id="it has no answer until its time is over"),
        pytest.param(ValueError("what nobody thought of"), id="it fails unforeseen"),
    ],
)
def test_while_no_replacement_can_be_decided_pods_stop_in_time_all_the_same(
    monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    """The bucket takes no decision: 40 s of grace and 10 s for the messages are left when the pod is told to stop."""
    in_the_bucket(monkeypatch, ending)
    world, _ = warned((pod("web", 40), 1))
    told = asked_to_stop(world)
    assert list(map(round, told.values())) == [pytest.approx(70, abs=5)]
    deleted = [effect for effect in world.effects.select("cluster", "delete") if "nodeclaims" in effect.subject]
    assert len(deleted) == 1


def test_while_no_replacement_can_be_decided_budgets_begin_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_bucket(monkeypatch, REFUSED)
    world, _ = warned((pod("web", 20), 3), max_unavailable=1)
    told = asked_to_stop(world, 60)
    assert 29 <= min(told.values()) <= 35


def test_pods_that_need_all_the_time_wait_for_no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_bucket(monkeypatch, REFUSED)
    world, _ = warned((pod("web", 600), 1))
    assert min(asked_to_stop(world, 30).values()) <= 5


@pytest.mark.parametrize("ending", [pytest.param(REFUSED, id="refused"), pytest.param(CUT_OFF, id="cut off")])
def test_a_bucket_that_comes_back_stores_one_decision_and_the_pod_waits_for_its_replacement(
    monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    in_the_bucket(monkeypatch, ending, seconds=30)
    world, _ = warned((pod("web", 40), 1))
    world.kubelets.boot_seconds = 10
    began = len(world.effects.log)
    told = asked_to_stop(world, 70)
    assert 40 <= min(told.values()) <= 62, "the replacement is there before the time is up"
    (commit,) = (commit for commit in world.effects.select("state", "commit") if commit.number > began)
    assert len(decode_decision(world.blobs.bodies[commit.subject]).disruptions) == 1
    assert len(world.ec2.all_instances()) == 2


def test_while_budgets_cannot_be_listed_pods_stop_in_time_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan can be made without them; the time that pods need can be told well enough."""
    usual = World.interrupt_spot

    def interrupt(world: World, instance: str) -> None:
        world.effects.inject(Fault("cluster", "pod_disruption_budgets", Unavailable("no list"), times=1000))
        world.cluster_state.stop()
        world.forwarder_runs = False
        usual(world, instance)

    monkeypatch.setattr(World, "interrupt_spot", interrupt)
    world, _ = warned((pod("web", 40), 1))
    told = asked_to_stop(world)
    assert list(map(round, told.values())) == [pytest.approx(70, abs=5)]


def test_a_claim_that_is_registered_before_its_deletion_arrives_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker read it while its node booted, when it is deleted at once since no pod runs there, and stood still."""
    world = fresh_world()
    world.kubelets.boot_seconds = 600
    world.deploy(pod("web", 30), 1)
    assert world.run(60, until=lambda: [claim.is_condition_true("Launched") for claim in world.claims()] == [True])
    (claim,) = world.claims()
    delete, refused = world.cluster.delete, list[str]()
    registered = (Condition("Launched", "True"), Condition("Registered", "True"))

    def late(kind: str, metadata: ObjectMeta, **options: Any) -> None:
        if kind == "nodeclaims" and not refused:
            world.cluster.update("nodeclaims", claim.name, conditions=registered)
        try:
            delete(kind, metadata, **options)
        except Conflict:
            refused.append(metadata.name)
            raise

    monkeypatch.setattr(world.cluster, "delete", late)
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])
    world.run(10)
    assert refused == [claim.name]
    (command,) = world.state.commands(created_after=0)
    assert command.candidates == (claim.name,), "it is replaced as registered nodes are"
