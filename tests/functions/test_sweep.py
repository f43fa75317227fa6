"""The safety net: whatever the facts still show is rung for, and little else is touched."""

from collections import Counter
from datetime import timedelta

import msgspec
import pytest

from spotwright.lifecycle.orphans import ACKNOWLEDGED, MAXIMUM_ORPHANS, ORPHAN_AGE
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.settings import decision_settings
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.termination.orphans import find_orphan
from spotwright.workflows.planning.heartbeat import HEARTBEAT_SECONDS
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import LaunchRow, NominationRow, NoticeRow
from spotwright.workflows.sweep.full import full_sweep
from spotwright.workflows.sweep.poll import POLL_SECONDS, SweepResult, poll
from tests.functions.handlers import Context, doorbell, failed_messages, load_handler, sqs_event

READY = (Condition("Ready", "True"),)


def follower(name: str) -> object:
    pod = builders.pod(name, cpu_millicores=100)
    about = msgspec.structs.replace(pod.metadata, annotations={labels.FOLLOW: "true"})
    return msgspec.structs.replace(pod, metadata=about, unschedulable=True)


def pending(name: str) -> object:
    return msgspec.structs.replace(builders.pod(name), unschedulable=True)


def run_poll(world: World, *, again: bool = True) -> SweepResult:
    return poll(world, now=world.clock.now(), scheduled=again)


def test_at_zero_a_pending_pod_is_rung_for_and_followers_are_not(world: World) -> None:
    world.cluster.put("pods", follower("coredns"))
    assert run_poll(world).pending_pods == 0
    assert not world.doorbells.messages_of("provision", "pods")
    world.cluster.put("pods", pending("web"))
    assert run_poll(world).pending_pods == 1
    assert world.doorbells.messages_of("provision", "pods")


def test_the_scheduled_poll_enqueues_those_of_its_minute_and_they_enqueue_none(world: World) -> None:
    run_poll(world)
    later = world.doorbells.messages_of("sweep", "poll")
    assert len(later) == 60 // POLL_SECONDS - 1
    assert all(doorbell_message.doorbell.epoch == 1 for doorbell_message in later)
    run_poll(world, again=False)
    assert len(world.doorbells.messages_of("sweep", "poll")) == len(later)


def test_a_poll_in_between_ends_at_once_while_a_forwarder_lives(world: World) -> None:
    world.cluster.put("pods", pending("web"))
    world.state.heartbeat_at = world.clock.milliseconds()
    sweep_result = run_poll(world, again=False)
    assert sweep_result.forwarder_alive
    assert not world.doorbells.messages_of("provision", "pods")
    world.clock.advance(HEARTBEAT_SECONDS + 1)
    assert not run_poll(world, again=False).forwarder_alive
    assert world.doorbells.messages_of("provision", "pods")


def test_pods_that_a_node_was_planned_for_are_rung_for_once_a_minute(world: World) -> None:
    """Each plan lists the whole cluster while no forwarder ships its state: not every five seconds for what boots."""
    world.cluster.put("pods", pending("web"))
    (pod,) = world.cluster.pods(pending=True)
    row = NominationRow("web-1", world.cluster.name, {pod.key: pod.metadata.uid}, due=world.clock.milliseconds() + 9000)
    world.state.create(row)
    assert run_poll(world, again=False).pending_pods == 1
    assert not world.doorbells.messages_of("provision", "pods")
    world.cluster.put("pods", pending("api"))
    run_poll(world, again=False)
    assert len(world.doorbells.messages_of("provision", "pods")) == 1


@pytest.mark.parametrize(("uid", "due_in"), [("another", 9000), ("", 0)], ids=["another of its name", "overdue"])
def test_a_promise_for_another_pod_or_an_overdue_one_counts_for_nothing(world: World, uid: str, due_in: int) -> None:
    world.cluster.put("pods", pending("web"))
    (pod,) = world.cluster.pods(pending=True)
    pods = {pod.key: uid or pod.metadata.uid}
    world.state.create(NominationRow("web-1", world.cluster.name, pods, due=world.clock.milliseconds() + due_in))
    run_poll(world, again=False)
    assert world.doorbells.messages_of("provision", "pods")


def test_pods_that_a_node_was_planned_for_are_rung_for_by_the_poll_of_each_minute(world: World) -> None:
    """Whatever became of what was planned for them."""
    world.cluster.put("pods", pending("web"))
    (pod,) = world.cluster.pods(pending=True)
    due = world.clock.milliseconds() + 9000
    world.state.create(NominationRow("web-1", world.cluster.name, {pod.key: pod.metadata.uid}, due=due))
    run_poll(world)
    assert world.doorbells.messages_of("provision", "pods")


def test_beside_a_planner_only_the_poll_of_each_minute_rings(world: World) -> None:
    world.cluster.put("pods", pending("web"))
    now = world.clock.milliseconds()
    assert world.state.begin_planning("provision", now=now, until=now + 60_000)
    run_poll(world, again=False)
    assert not world.doorbells.messages_of("provision", "pods")
    run_poll(world)
    assert world.doorbells.messages_of("provision", "pods")


@pytest.mark.parametrize("is_of_the_minute", [False, True])
def test_a_poll_between_lists_nothing_beside_a_planner(
    world: World, monkeypatch: pytest.MonkeyPatch, is_of_the_minute: bool
) -> None:
    """Both would take longer, and what it would ring for is planned just now."""
    now, listed = world.clock.milliseconds(), list[str]()
    assert world.state.begin_planning("provision", now=now, until=now + 60_000)
    nodeclaims = world.cluster.nodeclaims

    def list_nodeclaims() -> tuple[NodeClaim, ...]:
        listed.append("nodeclaims")
        return nodeclaims()

    monkeypatch.setattr(world.cluster, "nodeclaims", list_nodeclaims)
    world.state.create(NoticeRow("i-1", world.cluster.name, "spot_interrupted", due=now))
    result = run_poll(world, again=is_of_the_minute)
    assert bool(listed) == is_of_the_minute
    assert result.due_rows == 1
    assert world.doorbells.messages_of("notices", "notice"), "timers are rung for all the same"


def test_the_note_of_a_wrong_clock_keeps_no_poll_from_ringing(world: World) -> None:
    world.cluster.put("pods", pending("web"))
    late = world.clock.milliseconds() + 10 * 60_000
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, planner_until=late)
    run_poll(world, again=False)
    assert world.doorbells.messages_of("provision", "pods")


def test_rows_that_are_due_at_the_same_second_are_rung_for_together(world: World) -> None:
    """Thousands of nominations of a burst end at the same moment; a call for each would outlast the sweep."""
    name, now = world.cluster.name, world.clock.milliseconds()
    for number in range(30):
        world.state.create(NominationRow(f"claim-{number}", name, {"a": "1"}, due=now + 5000 + 1000 * (number % 2)))
    world.state.create(NoticeRow("i-1", name, "spot_interrupted", due=now))
    before = len(world.effects.select("doorbells", "ring"))
    poll(world, now=world.clock.now(), scheduled=False)
    assert len(world.doorbells.messages_of("lifecycle", "nomination")) == 30
    assert {message.at - now for message in world.doorbells.messages_of("lifecycle", "nomination")} == {5000, 6000}
    assert [message.doorbell.key for message in world.doorbells.messages_of("notices", "notice")] == ["i-1"]
    assert len(world.effects.select("doorbells", "ring")) - before <= 4


@pytest.mark.parametrize(("seconds", "alive"), [(0, True), (25, True), (26, False), (600, False)])
def test_a_forwarder_counts_as_stopped_after_25_seconds_without_a_heartbeat(
    world: World, seconds: int, alive: bool
) -> None:
    """It writes one every ten seconds; pods wait for the next poll until its silence is noticed."""
    world.state.heartbeat_at = world.clock.milliseconds() - seconds * 1000
    assert run_poll(world, again=False).forwarder_alive is alive


LINUX = {labels.OS: "linux"}
GPU = Taint("nvidia.com/gpu", "NoSchedule")


@pytest.mark.parametrize(
    ("node", "silent"),
    [
        (Node(ObjectMeta("n", labels=LINUX), conditions=READY), True),
        (
            Node(ObjectMeta("n", labels=LINUX), conditions=READY, taints=(Taint("CriticalAddonsOnly", "NoSchedule"),)),
            True,
        ),
        (Node(ObjectMeta("n", labels=LINUX), conditions=READY, taints=(Taint("a", "PreferNoSchedule"),)), True),
        (Node(ObjectMeta("n", labels=LINUX), conditions=READY, taints=(GPU,)), False),
        (Node(ObjectMeta("n", labels=LINUX), conditions=READY, unschedulable=True), False),
        (Node(ObjectMeta("n", labels=LINUX)), False),
        (Node(ObjectMeta("n", labels={labels.OS: "windows"}), conditions=READY), False),
    ],
    ids=["ready", "for add-ons", "rather not", "for others", "cordoned", "not ready", "windows"],
)
def test_a_forwarder_is_missed_only_where_it_could_run(world: World, node: Node, silent: bool) -> None:
    assert not run_poll(world).forwarder_silent, "at zero nodes it cannot run"
    world.cluster.put("nodes", node)
    assert run_poll(world).forwarder_silent is silent
    assert not run_poll(world, again=False).forwarder_silent, "said once a minute"
    world.state.heartbeat_at = world.clock.milliseconds()
    assert not run_poll(world).forwarder_silent


def test_the_oldest_pending_pod_has_its_age(world: World) -> None:
    assert run_poll(world).oldest_pending_seconds == 0
    for name, minutes in (("new", 1), ("old", 20)):
        pod = builders.pod(name, unschedulable=True)
        created = world.clock.now() - timedelta(minutes=minutes)
        metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=created)
        world.cluster.put("pods", msgspec.structs.replace(pod, metadata=metadata))
    assert run_poll(world).oldest_pending_seconds == 20 * 60


def test_a_class_and_a_pool_without_a_status_are_rung_for(world: World) -> None:
    world.cluster.put("ec2nodeclasses", msgspec.structs.replace(builders.nodeclass("fresh"), conditions=()))
    world.cluster.put("nodepools", msgspec.structs.replace(builders.nodepool("fresh"), conditions=()))
    run_poll(world)
    assert {
        doorbell_message.doorbell.key for doorbell_message in world.doorbells.messages_of("catalog", "nodeclasses")
    } == {"fresh"}
    assert world.doorbells.messages_of("lifecycle", "nodepools")


def orphan(world: World, number: int, age: timedelta) -> str:
    """An instance with our tags that no row and no claim speaks of."""
    instance = f"i-{number:017x}"
    tags = {
        labels.cluster_tag(world.cluster.name): "owned",
        labels.NODEPOOL: "default",
        labels.EC2NODECLASS: "default",
        labels.CLUSTER_NAME_TAG: world.cluster.name,
    }
    found = Instance(instance, "m5.large", "z", "spot", "running", launch_time=world.clock.now() - age, tags=tags)
    world.ec2.instances[instance] = found
    return instance


@pytest.fixture
def old() -> timedelta:
    return ORPHAN_AGE + timedelta(seconds=1)


def test_an_orphan_is_terminated_when_it_is_old_enough(world: World, old: timedelta) -> None:
    lost, young = orphan(world, 1, old), orphan(world, 2, timedelta(seconds=5))
    assert full_sweep(world, now=world.clock.now()).orphans == 1
    assert [
        doorbell_message.doorbell.key for doorbell_message in world.doorbells.messages_of("lifecycle", "instance")
    ] == [lost]
    assert find_orphan(world, lost, world.clock.now()) == world.ec2.instance(lost)
    assert not find_orphan(world, young, world.clock.now())
    assert not find_orphan(world, "i-unknown", world.clock.now())


@pytest.mark.parametrize("missing", [labels.NODEPOOL, labels.cluster_tag(builders.CLUSTER)])
def test_an_instance_without_our_tags_is_none_of_ours(world: World, old: timedelta, missing: str) -> None:
    """Even when somebody rings for it by its id."""
    lost = orphan(world, 1, old)
    assert find_orphan(world, lost, world.clock.now())
    instance = world.ec2.instances[lost]
    tags = {key: value for key, value in instance.tags.items() if key != missing}
    world.ec2.instances[lost] = msgspec.structs.replace(instance, tags=tags)
    assert not find_orphan(world, lost, world.clock.now())


def test_an_instance_of_an_open_launch_is_no_orphan(world: World, old: timedelta) -> None:
    """Its row assigned it, or carries the launch that its tag names: the claim is written next."""
    by_tag, by_row = orphan(world, 1, old), orphan(world, 2, old)
    instance = world.ec2.instances[by_tag]
    tags = instance.tags | {labels.LAUNCH_TAG: "launch"}
    world.ec2.instances[by_tag] = msgspec.structs.replace(instance, tags=tags)
    name = world.cluster.name
    world.state.create(LaunchRow("launch", name, "d", ("a",), "{}", phase="claimed"))
    world.state.create(LaunchRow("other", name, "d", ("b",), "{}", phase="launched", instances={"b": by_row}))
    now = world.clock.now()
    assert full_sweep(world, now=now).orphans == 0
    assert not find_orphan(world, by_tag, now)
    assert not find_orphan(world, by_row, now)
    for id in ("launch", "other"):
        row = world.state.launch(id)
        assert row is not None
        world.state.save(msgspec.structs.replace(row, phase="done"))
    assert find_orphan(world, by_tag, now), "a launch that ended promises nothing"


def test_refused_orphans_go_when_a_person_says_so_and_only_those(world: World, old: timedelta) -> None:
    several = [orphan(world, number, old) for number in range(MAXIMUM_ORPHANS + 3)]
    refused = full_sweep(world, now=world.clock.now())
    assert (refused.orphans, refused.refused_orphans) == (-1, tuple(several))
    assert not world.doorbells.messages_of("lifecycle", "instance")
    first, *rest = several
    world.ec2.tag(first, {labels.ORPHAN_TAG: ACKNOWLEDGED})
    again = full_sweep(world, now=world.clock.now())
    assert (again.orphans, again.refused_orphans) == (-1, tuple(rest))
    assert {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "instance")} == {first}
    for id in rest:
        world.ec2.tag(id, {labels.ORPHAN_TAG: ACKNOWLEDGED})
    assert full_sweep(world, now=world.clock.now()).orphans == len(several)
    assert {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "instance")} == set(several)


def test_an_acknowledged_instance_that_is_used_is_no_orphan(world: World, old: timedelta) -> None:
    used = orphan(world, 1, old)
    world.ec2.tag(used, {labels.ORPHAN_TAG: ACKNOWLEDGED})
    row = LaunchRow("l1", world.cluster.name, "d", ("c",), "{}", instances={"c": used})
    assert world.state.create(row)
    assert full_sweep(world, now=world.clock.now()).orphans == 0
    assert not find_orphan(world, used, world.clock.now())


def test_many_orphans_at_once_are_taken_for_an_error_of_ours(world: World, old: timedelta) -> None:
    for number in range(MAXIMUM_ORPHANS + 1):
        orphan(world, number, old)
    assert full_sweep(world, now=world.clock.now()).orphans == -1
    assert not world.doorbells.messages_of("lifecycle", "instance")


def test_an_instance_that_a_claim_speaks_of_is_no_orphan(world: World) -> None:
    world.deploy(builders.pod("web"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    world.clock.advance(600)
    assert full_sweep(world, now=world.clock.now()).orphans == 0
    instance = world.ec2.live_instances()[0].id
    assert not find_orphan(world, instance, world.clock.now())


@pytest.mark.parametrize(
    ("alive", "seconds", "rung"),
    [(True, 0, 0), (True, 44, 0), (True, 45, 3), (False, 0, 3)],
    ids=["a moment ago", "44 s ago", "45 s ago", "without a forwarder"],
)
@pytest.mark.parametrize("deleted", [False, True])
def test_a_claim_that_got_on_a_moment_ago_is_not_rung_for(
    world: World, alive: bool, seconds: int, rung: int, deleted: bool
) -> None:
    """At each full minute a hundred nodes that boot or drain took one more step than the nodes ring for."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(60, until=lambda: all(claim.is_condition_true("Launched") for claim in world.claims()))
    if deleted:
        assert world.run(60, until=lambda: all(claim.is_condition_true("Initialized") for claim in world.claims()))
        world.run(60)
        for claim in world.claims():
            world.cluster.delete("nodeclaims", claim.metadata)
    world.clock.advance(seconds)
    world.doorbells.messages.clear()
    world.state.heartbeat_at = world.clock.milliseconds() if alive else 0
    poll(world, now=world.clock.now(), scheduled=True)
    assert len(world.doorbells.messages_of("lifecycle", "claim")) == rung


@pytest.mark.parametrize(("seconds", "rung"), [(0, 0), (44, 0), (45, 1), (-44, 0), (-3600, 1)])
@pytest.mark.parametrize("is_launched", [False, True])
def test_a_claim_of_the_future_is_rung_for_and_one_that_was_made_a_moment_ago_is_not(
    world: World, seconds: int, rung: int, is_launched: bool
) -> None:
    """A clock that was an hour ahead must not keep the claim from what a lost message was about for an hour."""
    made = world.clock.seconds() - timedelta(seconds=seconds)
    long_ago = world.clock.seconds() - timedelta(days=1)
    launched = Condition("Launched", "True", last_transition_time=made)
    about = ObjectMeta("new", uid="new", creation_timestamp=long_ago if is_launched else made)
    claim = NodeClaim(
        about, NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"), conditions=(launched,) * is_launched
    )
    world.cluster.put("nodeclaims", claim)
    world.state.heartbeat_at = world.clock.milliseconds()
    poll(world, now=world.clock.now(), scheduled=True)
    assert len(world.doorbells.messages_of("lifecycle", "claim")) == rung


@pytest.mark.parametrize(("left", "delay"), [(-5, 0), (0, 0), (37.2, 38), (60, 60), (61, None)])
def test_a_claim_that_expires_within_the_minute_is_rung_for_at_its_second(
    world: World, left: float, delay: int | None
) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    (claim,) = world.claims()
    assert claim.metadata.creation_timestamp is not None
    world.cluster.update("nodeclaims", claim.name, expire_after_seconds=3600)
    world.doorbells.messages.clear()
    now = claim.metadata.creation_timestamp + timedelta(seconds=3600 - left)
    poll(world, now=now, scheduled=True)
    rung = [
        doorbell_message.at - world.clock.milliseconds()
        for doorbell_message in world.doorbells.messages_of("lifecycle", "claim")
    ]
    assert rung == ([] if delay is None else [delay * 1000])


def test_claims_that_expire_at_once_are_rung_for_together(world: World) -> None:
    """SQS takes ten messages in a call; a call for each of thousands would take longer than a sweep has."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 12)
    assert world.run(60, until=lambda: len(world.running_pods()) == 12)
    seconds = Counter(claim.metadata.creation_timestamp for claim in world.claims())
    for claim in world.claims():
        world.cluster.update("nodeclaims", claim.name, expire_after_seconds=3600)
    (first, *_) = sorted(filter(None, seconds))
    before = len(world.effects.log)
    poll(world, now=first + timedelta(seconds=3600 - 30), scheduled=True)
    rung = [effect.subject for effect in world.effects.log[before:] if "lifecycle/claim:" in effect.subject]
    assert sorted(len(subject.split()) for subject in rung) == sorted(seconds.values())
    assert max(seconds.values()) > 1


def test_a_claim_goes_in_the_second_it_expires(world: World) -> None:
    world.cluster.update("nodepools", "default", expire_after_seconds=333)
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    (claim,) = world.claims()
    assert claim.metadata.creation_timestamp is not None
    assert world.run(
        400, until=lambda: claim.name not in {c.name for c in world.claims() if not c.metadata.deletion_timestamp}
    )
    assert 333 <= (world.clock.now() - claim.metadata.creation_timestamp).total_seconds() <= 334


def test_buffers_are_looked_after_every_minute_behind_their_gate(world: World) -> None:
    run_poll(world)
    assert not world.doorbells.messages_of("provision", "pods")
    world.settings = decision_settings({"FEATURE_GATES": "CapacityBuffer=true"})
    run_poll(world, again=False)
    assert not world.doorbells.messages_of("provision", "pods")
    run_poll(world)
    assert len(world.doorbells.messages_of("provision", "pods")) == 1


def test_a_static_pool_with_too_few_or_too_many_nodes_is_rung_for_behind_its_gate(world: World) -> None:
    world.cluster.put("nodepools", builders.nodepool("fixed", replicas=1))
    run_poll(world)
    assert not world.doorbells.messages_of("provision", "pods")
    world.settings = decision_settings({"FEATURE_GATES": "StaticCapacity=true"})
    run_poll(world)
    assert len(world.doorbells.messages_of("provision", "pods")) == 1
    world.cluster.update("nodepools", "fixed", replicas=0)
    run_poll(world)
    assert len(world.doorbells.messages_of("provision", "pods")) == 1


@pytest.mark.parametrize(("left_seconds", "swept"), [(60, True), (5, False)])
def test_a_full_sweep_without_time_after_the_poll_is_rung_for(world: World, left_seconds: float, swept: bool) -> None:
    handler = load_handler("sweep", world).handler
    event = sqs_event([doorbell(world, "full"), doorbell(world, "poll", epoch=1)])
    assert failed_messages(handler(event, Context(left_seconds))) == []
    every_class = Doorbell(world.cluster.name, "nodeclasses")
    assert swept == (
        every_class in [message.doorbell for message in world.doorbells.messages_of("catalog", "nodeclasses")]
    )
    assert len(world.doorbells.messages_of("sweep", "full")) == (0 if swept else 1)
