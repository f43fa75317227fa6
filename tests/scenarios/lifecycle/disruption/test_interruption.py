"""EC2 takes an instance back: the replacement is asked for first, pods leave when it is there or time is up."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NoticeRow
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.interrupted_nodes import deliver
from tests.scenarios.lifecycle.disruption.sick_nodes import is_deleted

POD = builders.pod("inflate", cpu_millicores=1800)


def running(pods: int = 1) -> tuple[World, NodeClaim]:
    world = fresh_world()
    world.deploy(POD, pods)
    assert world.run(90, until=lambda: len(world.running_pods()) == pods)
    world.run(30)
    return world, world.claims()[0]


def warn(world: World, claim: NodeClaim) -> None:
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])


def settled(world: World, pods: int = 1) -> bool:
    return len(world.running_pods()) == pods and len(world.ec2.live_instances()) == pods == len(world.claims())


def test_the_replacement_is_asked_for_before_the_first_eviction() -> None:
    world, claim = running()
    began = len(world.effects.log)
    warn(world, claim)
    assert world.run(240, until=lambda: settled(world) and world.claims()[0].name != claim.name)
    acts = [f"{effect.port}.{effect.action}" for effect in world.effects.log[began:]]
    assert acts.index("state.commit") < acts.index("cluster.set_taints") < acts.index("cluster.evict")
    assert acts.index("ec2.create_fleet") < acts.index("cluster.evict")
    reasons = {event.reason for event in world.cluster.events}
    assert {"SpotInterrupted", "Evicted"} <= reasons


def test_pods_leave_when_the_replacement_is_initialized_not_earlier() -> None:
    world, claim = running()
    warn(world, claim)
    while not world.effects.select("cluster", "evict"):
        world.run(1)
        other_nodeclaims = [nodeclaim for nodeclaim in world.claims() if nodeclaim.name != claim.name]
        if world.effects.select("cluster", "evict"):
            assert [nodeclaim.is_condition_true("Initialized") for nodeclaim in other_nodeclaims] == [True]


def test_when_the_replacement_is_late_the_deadline_forces_the_eviction() -> None:
    world, claim = running()
    world.kubelets.boot_seconds = 300
    warned = world.clock.now()
    warn(world, claim)
    assert world.run(200, until=lambda: bool(world.effects.select("cluster", "evict")))
    waited = world.effects.select("cluster", "evict")[0].at - warned
    assert timedelta(seconds=75) <= waited <= timedelta(seconds=85), "120 s less 30 s of grace and 10 s of margin"
    assert world.run(500, until=lambda: settled(world))


def test_the_interrupted_offering_is_left_alone_for_a_while() -> None:
    world, claim = running()
    instance = world.ec2.live_instances()[0]
    warn(world, claim)
    world.run(20)
    assert world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].interruptions == 1
    (other_instance,) = [one for one in world.ec2.live_instances() if one.id != instance.id]
    assert (other_instance.instance_type, other_instance.zone) != (instance.instance_type, instance.zone)


def test_pods_that_fit_elsewhere_need_no_launch() -> None:
    world, claim = running()
    world.cluster.put("nodes", builders.unmanaged_node("spacious"))
    began = len(world.ec2.requests)
    warn(world, claim)
    assert world.run(240, until=lambda: not world.claims())
    assert len(world.ec2.requests) == began
    assert [pod.node_name for pod in world.running_pods()] == ["spacious"]


def test_the_decision_is_on_record() -> None:
    world, claim = running()
    warn(world, claim)
    world.run(5)
    bodies = [body for key, body in world.blobs.bodies.items() if key.startswith("decisions/")]
    assert sum(b'"kind":"interrupt"' in body for body in bodies) == 1


def test_a_replacement_without_capacity_is_planned_again() -> None:
    world, claim = running()
    world.ec2.capacity[("spot", "*", "*")] = 0
    warn(world, claim)
    assert world.run(240, until=lambda: settled(world) and world.claims()[0].name != claim.name)
    assert [instance.capacity_type for instance in world.ec2.live_instances()] == ["on-demand"]
    evicted = world.effects.select("cluster", "evict")[0].number
    bought = [effect.number for effect in world.effects.select("ec2", "create_fleet")][-1]
    assert bought < evicted


def test_the_same_warning_three_times_buys_one_replacement() -> None:
    world, claim = running()
    for _ in range(3):
        warn(world, claim)
        world.run(1)
    world.run(240)
    assert settled(world)
    assert len(world.ec2.all_instances()) == 2


@pytest.mark.parametrize("changes", range(1, 60, 2))
def test_a_crash_after_any_change_buys_one_replacement(changes: int) -> None:
    world, claim = running()
    world.effects.crash_after(changes)
    try:
        warn(world, claim)
    except Crash:
        # The message was not acknowledged: SQS delivers it again.
        warn(world, claim)
    for _ in range(300):
        try:
            world.run(1)
        except Crash:
            continue
    world.effects.crash_after(None)
    world.run(120)
    assert settled(world)
    assert len(world.ec2.all_instances()) == 2
    bought = world.effects.select("ec2", "create_fleet")[-1]
    evicted = [effect for effect in world.effects.select("cluster", "evict") if effect.number > 0]
    assert not evicted or world.effects.select("ec2", "create_fleet")[1].number < evicted[0].number, bought


def test_a_crash_right_after_the_commit_decides_once() -> None:
    world, claim = running()
    world.effects.crash_at("state", "commit")
    warn(world, claim)
    with pytest.raises(Crash):
        world.run(5)
    assert world.run(240, until=lambda: settled(world) and world.claims()[0].name != claim.name)
    bodies = [body for key, body in world.blobs.bodies.items() if key.startswith("decisions/")]
    assert sum(b'"kind":"interrupt"' in body for body in bodies) == 1


def test_several_nodes_at_once_each_get_a_replacement() -> None:
    world, _ = running(pods=3)
    for claim in world.claims():
        warn(world, claim)
    assert world.run(300, until=lambda: settled(world, 3) and len(world.ec2.all_instances()) >= 6)
    assert len(world.ec2.all_instances()) == 6


def test_where_the_pool_ignores_them_a_rebalance_recommendation_is_an_event_only() -> None:
    world, claim = running()
    world.cluster.update("nodepools", "default", annotations={labels.REBALANCE_RECOMMENDATION: "Ignore"})
    before = [effect for effect in world.effects.log if effect.port in ("cluster", "ec2")]
    world.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": claim.provider_id.rpartition("/")[2]})
    world.run(10)
    assert [effect for effect in world.effects.log if effect.port in ("cluster", "ec2")] == before
    assert "SpotRebalanceRecommendation" in {event.reason for event in world.cluster.events}


def test_a_recommended_pool_counts_dearer_for_the_next_nodes() -> None:
    world, _ = running()
    world.cluster.update("nodepools", "default", annotations={labels.REBALANCE_RECOMMENDATION: "Ignore"})
    (instance,) = world.ec2.live_instances()
    for _ in range(2):
        world.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": instance.id})
        world.run(10)
    assert len(world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].rebalanced_at_ms) == 1
    world.deploy(builders.pod("other", cpu_millicores=1800), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    (fresh,) = [other for other in world.ec2.live_instances() if other.id != instance.id]
    assert (fresh.instance_type, fresh.zone) != (instance.instance_type, instance.zone)


@pytest.mark.parametrize("state", ["stopping", "shutting-down", "terminated"])
def test_an_instance_that_ends_takes_its_claim_along(state: str) -> None:
    world, claim = running()
    instance = world.ec2.live_instances()[0].id
    world.ec2.stop(instance, after_seconds=0)
    world.deliver_event("EC2 Instance State-change Notification", {"instance-id": instance, "state": state})
    assert world.run(240, until=lambda: settled(world))
    assert world.claims()[0].name != claim.name


@pytest.mark.parametrize("seconds", [0, 1, 4])
@pytest.mark.parametrize("order", list(permutations(["spot", "rebalance", "shutting-down", "terminated"])))
def test_an_interruption_is_remembered_once_in_whatever_order_its_messages_come(
    order: tuple[str, ...], seconds: int
) -> None:
    """Each comes twice; ``seconds``: between batches, 0 = all in one."""
    world, _ = running()
    instance = world.ec2.live_instances()[0]
    world.ec2.stop(instance.id, after_seconds=0)
    for batch in [order] if seconds == 0 else [(name,) for name in order]:
        deliver(world, instance.id, *batch, *batch)
        world.run(seconds)
    deliver(world, instance.id, *order)
    assert world.run(240, until=lambda: settled(world))
    world.run(60)
    assert world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].interruptions == 1
    assert len(world.ec2.all_instances()) == 2


@pytest.mark.parametrize("order", list(permutations(["spot", "rebalance", "stopping"])))
@pytest.mark.parametrize("seconds", [0, 1, 15])
def test_a_warning_counts_beside_a_state_change_that_is_no_longer_true(order: tuple[str, ...], seconds: int) -> None:
    """The instance was started again since: it runs until EC2 takes it back."""
    world, claim = running()
    instance = world.ec2.live_instances()[0]
    for batch in [order] if seconds == 0 else [(name,) for name in order]:
        deliver(world, instance.id, *batch)
        world.run(seconds)
    assert world.run(100, until=lambda: settled(world, 1) and world.claims()[0].name != claim.name)
    acts = [f"{effect.port}.{effect.action}" for effect in world.effects.log]
    assert acts.index("ec2.terminate") > acts.index("cluster.evict")
    assert world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].interruptions == 1


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down"])
@pytest.mark.parametrize("answers", [True, False])
def test_a_warning_is_acted_on_at_once_where_ec2_does_not_confirm_a_state_change(state: str, answers: bool) -> None:
    """It may run, or EC2 does not say: of two minutes none are waited for that."""
    world, _ = running()
    instance = world.ec2.live_instances()[0]
    if not answers:
        world.effects.inject(Fault("ec2", "instance", Unavailable("no answer"), times=100))
    deliver(world, instance.id, "spot", state)
    world.run(3)
    row = world.state.notice(instance.id)
    assert row is not None
    assert (row.kind, row.ended, row.warning, row.phase) == ("spot_interrupted", False, "", "replacing")


@pytest.mark.parametrize("state", ["stopping", "shutting-down", "terminated"])
def test_an_interruption_of_a_node_that_is_being_drained_is_remembered_beside_its_end(state: str) -> None:
    world = fresh_world()
    world.deploy(builders.pod("kept", cpu_millicores=1800, annotations={labels.DO_NOT_DISRUPT: "true"}), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    instance = world.ec2.live_instances()[0]
    world.cluster.delete("nodeclaims", world.claims()[0].metadata)
    world.run(10)
    world.ec2.stop(instance.id, after_seconds=0)
    deliver(world, instance.id, "spot", state)
    world.run(60)
    assert world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].interruptions == 1


@pytest.mark.parametrize("warned_seconds", [0, 1, 3, 20])
@pytest.mark.parametrize("lost_seconds", [0, 3, 15])
def test_a_state_change_that_is_not_true_ends_no_replacement_that_has_begun(
    warned_seconds: int, lost_seconds: int
) -> None:
    """The replacement is lost afterwards: it is planned again, and the pod is told to stop in time."""
    world, claim = running()
    world.kubelets.boot_seconds = 300
    instance = world.ec2.live_instances()[0]
    warn(world, claim)
    world.run(warned_seconds)
    deliver(world, instance.id, "stopping")
    world.run(lost_seconds)
    for replacement in world.claims():
        if replacement.name != claim.name:
            world.cluster.delete("nodeclaims", replacement.metadata)
    world.run(115 - warned_seconds - lost_seconds)
    assert world.effects.select("cluster", "evict")
    assert world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].interruptions == 1
    row = world.state.notice(instance.id)
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("spot_interrupted", "done", "")


def test_a_state_change_between_two_replacements_costs_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the first one was given up, before the second one is planned."""
    world, claim = running()
    world.kubelets.boot_seconds = 300
    instance, save = instance_id(claim.provider_id), world.state.save

    def save_and_deliver(row: Any) -> Any:
        after = save(row)
        if isinstance(row, NoticeRow) and row.phase == "new" and row.kind == NoticeKind.SPOT_INTERRUPTED:
            deliver(world, instance, "stopping")
        return after

    monkeypatch.setattr(world.state, "save", save_and_deliver)
    warn(world, claim)
    world.run(5)
    (replacement,) = [nodeclaim for nodeclaim in world.claims() if nodeclaim.name != claim.name]
    world.cluster.delete("nodeclaims", replacement.metadata)
    world.run(20)
    row = world.state.notice(instance)
    assert row is not None
    assert "event-stopping" in row.events
    assert (row.phase, row.attempt) == ("replacing", 1)


@pytest.mark.parametrize("state", ["", "stopping", "shutting-down", "terminated"])
def test_an_interruption_is_remembered_though_its_claim_is_gone_when_the_warning_is_handled(state: str) -> None:
    """EC2 still shows the instance, which is tagged for the cluster."""
    world, claim = running()
    instance = world.ec2.live_instances()[0]
    world.ec2.stop(instance.id, after_seconds=0)
    world.cluster.remove("nodeclaims", claim.name)
    deliver(world, instance.id, "spot", *([state] if state else []))
    world.run(70)
    assert world.state.health[f"spot:{instance.instance_type}:{instance.zone}"].interruptions == 1


@pytest.mark.parametrize("kind", ["rebalance", "terminated"])
def test_what_was_no_interruption_of_an_instance_without_a_claim_is_not_remembered_as_one(kind: str) -> None:
    world, claim = running()
    instance = world.ec2.live_instances()[0]
    world.ec2.stop(instance.id, after_seconds=0)
    world.cluster.remove("nodeclaims", claim.name)
    deliver(world, instance.id, kind)
    world.run(70)
    health = world.state.health.get(f"spot:{instance.instance_type}:{instance.zone}")
    assert health is None or not health.interruptions


def test_an_interruption_of_another_cluster_is_left_to_it() -> None:
    world, _ = running()
    mine = world.ec2.live_instances()[0]
    other = msgspec.structs.replace(mine, id="i-0f00000000000000f", tags={"Name": "another"}, zone=builders.ZONES[1])
    world.ec2.instances[other.id] = other
    deliver(world, other.id, "spot")
    world.run(70)
    assert f"spot:{other.instance_type}:{other.zone}" not in world.state.health


def test_an_instance_that_nobody_here_holds_is_left_alone() -> None:
    world, _ = running()
    before = [effect for effect in world.effects.log if effect.port in ("cluster", "ec2")]
    world.deliver_event("EC2 Spot Instance Interruption Warning", {"instance-id": "i-foreign"})
    world.run(100)
    assert [effect for effect in world.effects.log if effect.port in ("cluster", "ec2")] == before
    row = world.state.notice("i-foreign")
    assert row is not None
    assert row.phase == "done"


def test_an_api_server_in_trouble_delays_but_does_not_lose_the_notice() -> None:
    world, claim = running()
    world.effects.inject(Fault("cluster", "nodeclaims", Unavailable("no answer"), times=5))
    warn(world, claim)
    assert world.run(240, until=lambda: settled(world) and world.claims()[0].name != claim.name)


def test_nodes_that_ec2_takes_back_are_tainted_also_where_nothing_can_be_decided() -> None:
    world, claim = running()
    world.effects.inject(Fault("blobs", "put", Unavailable("no answer"), times=10_000))
    warn(world, claim)
    assert world.run(20, until=lambda: bool(world.cluster.all("nodes")[0].taints))
    assert {taint.key for taint in world.cluster.all("nodes")[0].taints} == {"karpenter.sh/disrupted"}


def test_pods_that_were_promised_a_node_on_its_way_wait_for_it() -> None:
    """No launch is needed, but there is no room yet either."""
    world, claim = running()
    world.deploy(builders.pod("big", cpu_millicores=3000), 1)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    coming = next(nodeclaim for nodeclaim in world.claims() if nodeclaim.name != claim.name)
    world.kubelets.boot_seconds = 60
    world.cluster.remove(
        "pods", next(pod.key for pod in world.cluster.all("pods") if pod.key.startswith("default/big"))
    )
    world.deploy(builders.pod("big"), 0)
    asked = len(world.ec2.requests)
    warn(world, claim)
    assert world.run(120, until=lambda: bool(world.effects.select("cluster", "evict")))
    assert len(world.ec2.requests) == asked
    current = world.cluster.nodeclaim(coming.name)
    assert current is not None
    assert current.is_condition_true("Initialized")


def test_notices_of_every_kind_at_once_replace_every_node_once() -> None:
    """Two dozen nodes of which each gets one notice, two of them twice, and a message that means nothing."""
    count = 24
    world, _ = running(count)
    claims = world.claims()
    for number, claim in enumerate(claims):
        instance = claim.provider_id.rpartition("/")[2]
        match number % 3:
            case 0:
                world.interrupt_spot(instance)
            case 1:
                world.ec2.stop(instance, after_seconds=0)
                world.deliver_event(
                    "EC2 Instance State-change Notification", {"instance-id": instance, "state": "stopping"}
                )
            case _:
                change = {
                    "service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": "AWS_EC2_RETIREMENT",
                    "startTime": "Mon, 12 Jan 2026 00:00:00 GMT", "affectedEntities": [{"entityValue": instance}],
                }  # fmt: skip
                world.deliver_event("AWS Health Event", change, source="aws.health")
    world.interrupt_spot(claims[0].provider_id.rpartition("/")[2])
    world.deliver_event("EC2 Fleet State Change", {"instance-id": "i-1"})
    assert world.run(
        900, until=lambda: settled(world, count) and not _named(world) & {nodeclaim.name for nodeclaim in claims}
    )
    assert len(world.ec2.all_instances()) == 2 * count


def test_a_node_that_has_not_joined_is_given_up_though_offerings_cannot_be_remembered(world: World) -> None:
    world.kubelets.boot_seconds = 600
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(30, until=lambda: bool(world.claims()) and bool(world.claims()[0].provider_id))
    (claim,) = world.claims()
    world.effects.inject(Fault("state", "save_offering_health", Unavailable("no memory", code="Timeout"), times=99))
    world.interrupt_spot(claim.provider_id.rpartition("/")[2])
    assert world.run(30, until=lambda: is_deleted(world, claim)), "within its two minutes"


def _named(world: World) -> set[str]:
    return {nodeclaim.name for nodeclaim in world.claims()}
