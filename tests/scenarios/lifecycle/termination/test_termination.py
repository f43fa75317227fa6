"""The end of a NodeClaim: drained in order, budgets respected, nothing let go before the instance is gone."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Conflict, Denied, NotFound, Unavailable
from spotwright.lifecycle import retry
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Toleration
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import nodeclaims
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell


def running_node(world: World, pods: int = 1, template: Pod | None = None) -> NodeClaim:
    """A claim whose node runs ``pods``; nothing comes after them when they go."""
    world.deploy(template or builders.pod("inflate", cpu_millicores=500), pods)
    assert world.run(60, until=lambda: len(world.running_pods()) == pods)
    (claim,) = world.claims()
    world.forget_deployments()
    return claim


def delete(world: World, claim: NodeClaim) -> None:
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    world.cluster.delete("nodeclaims", current.metadata)


def gone(world: World, claim: NodeClaim) -> bool:
    return world.cluster.nodeclaim(claim.name) is None


def test_a_deleted_claim_takes_pods_instance_and_node_down_in_this_order(world: World) -> None:
    claim = running_node(world, pods=2)
    began = len(world.effects.log)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    acts = [f"{effect.port}.{effect.action}" for effect in world.effects.log[began:]]
    order = ["cluster.set_taints", "cluster.evict", "ec2.terminate", "cluster.delete"]
    assert [acts.index(one) for one in order[:3]] == sorted(acts.index(one) for one in order[:3])
    deletes = [effect.subject for effect in world.effects.log[began:] if effect.action == "delete"]
    assert deletes[-1] == f"nodes/{claim.node_name}"
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()
    assert {"Evicted", "Finalized"} <= {event.reason for event in world.cluster.events}


def test_neither_node_nor_claim_goes_before_the_instance_is_terminated(world: World) -> None:
    claim = running_node(world)
    delete(world, claim)
    for _ in range(120):
        world.run(1)
        if gone(world, claim):
            break
        assert world.cluster.node(claim.node_name) is not None or world.ec2.all_instances()[0].state == "terminated"
    assert gone(world, claim)
    assert world.ec2.all_instances()[0].state == "terminated"


def test_what_ec2_says_of_the_end_rings_though_it_has_said_that_the_instance_shuts_down(world: World) -> None:
    claim = running_node(world)
    delete(world, claim)
    assert world.run(60, until=lambda: bool(world.effects.select("ec2", "terminate")))
    id = instance_id(claim.provider_id)

    def rung_for(state: str) -> bool:
        before = len(world.effects.log)
        world.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": state})
        world.settle()
        row = world.state.notice(id)
        assert row is not None
        assert row.phase == "done"
        rung = {effect.subject for effect in world.effects.log[before:] if effect.port == "doorbells"}
        return f"lifecycle/claim:{claim.name}" in rung

    assert not rung_for("shutting-down"), "nothing is to be done yet"
    assert rung_for("terminated")
    assert not rung_for("terminated"), "the same message again"


def disrupted_node(world: World) -> NodeClaim:
    """A node of two pods, long since tainted for a command, whose claim is deleted now; no schedule is near."""
    claim = running_node(world, pods=2)
    world.run(70 - world.clock.now().second)
    node, current = world.cluster.node(claim.node_name), world.cluster.nodeclaim(claim.name)
    assert node is not None
    assert current is not None
    world.cluster.set_taints(node, (*node.taints, DISRUPTED_TAINT))
    disrupted = Condition("DisruptionReason", "True", "Drifted", last_transition_time=world.clock.now())
    world.cluster.update("nodeclaims", claim.name, conditions=(*current.conditions, disrupted))
    delete(world, claim)
    return claim


def seconds_until_terminated(world: World) -> float:
    began = world.clock.now()
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    return (world.clock.now() - began).total_seconds()


def test_pods_that_stop_before_the_shortest_drain_is_over_make_the_node_wait_no_longer_than_that(world: World) -> None:
    """Their end rang too early, and no other pod will."""
    disrupted_node(world)
    assert 5 <= seconds_until_terminated(world) <= 6


def test_the_doorbell_of_a_drained_node_that_met_another_change_comes_again(world: World) -> None:
    world.kubelets.stop_seconds = 6.0
    disrupted_node(world)
    world.run(5)
    world.effects.inject(Fault("cluster", "write_nodeclaim_status", Conflict("it changed", code="Conflict")))
    assert seconds_until_terminated(world) <= 3


@pytest.mark.parametrize(("tick", "next_tick"), [(0, 0), (1007, 1008)], ids=["EC2", "a tick"])
def test_the_doorbell_of_an_ended_instance_that_met_another_change_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch, tick: int, next_tick: int
) -> None:
    """The step of its node was taken at the same moment: NodeClaim and Node stayed until the next tick, a quarter of a
    minute later. What a tick met is left to the next one alone."""
    claim = disrupted_node(world)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))

    def lose(*_: object, **__: object) -> float | None:
        raise Conflict("it changed", code="Conflict")

    world.doorbells.messages.clear()
    with monkeypatch.context() as once:
        once.setattr(nodeclaims, "finalize", lose)
        lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name, tick)], now=world.clock.now())
    (again,) = world.doorbells.messages_of("lifecycle", "claim")
    assert again.doorbell == Doorbell(world.cluster.name, "claim", claim.name, next_tick)
    assert 1 <= (again.at - world.clock.milliseconds()) / 1000 <= 2


@pytest.mark.parametrize(
    ("kind", "lost"),
    [("claim", NotFound("it is gone", code="NotFound")), ("node", Conflict("it changed", code="Conflict"))],
)
def test_no_doorbell_comes_again_of_a_claim_that_is_gone_or_of_a_node_that_changed(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, lost: ApiError
) -> None:
    """Another invocation finished the claim; and whatever changed a Node that is drained, its claim has its ticks."""
    claim = disrupted_node(world)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))

    def lose(*_: object, **__: object) -> float | None:
        raise lost

    world.doorbells.messages.clear()
    monkeypatch.setattr(nodeclaims, "finalize", lose)
    key = claim.name if kind == "claim" else claim.node_name
    lifecycle(world.ports, [Doorbell(world.cluster.name, kind, key)], now=world.clock.now())
    assert not world.doorbells.messages_of("lifecycle", "claim")


@pytest.mark.parametrize("grace_seconds", [None, 300])
def test_no_claim_is_written_from_what_it_was_before(
    world: World, monkeypatch: pytest.MonkeyPatch, grace_seconds: int | None
) -> None:
    """Each step goes on with the claim that it wrote: nothing is read again after a Conflict."""
    claim = running_node(world)
    world.cluster.update("nodeclaims", claim.name, termination_grace_period_seconds=grace_seconds)
    write, stale = world.cluster.write_nodeclaim_status, list[str]()

    def noted(written: NodeClaim, *arguments: Any, **more: Any) -> NodeClaim:
        current = world.cluster.nodeclaim(written.name)
        if current is not None and current.metadata.resource_version != written.metadata.resource_version:
            stale.append(written.metadata.resource_version)
        return write(written, *arguments, **more)

    monkeypatch.setattr(world.cluster, "write_nodeclaim_status", noted)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    assert not stale


def test_a_claim_that_was_made_anew_as_the_first_one_of_its_name_went_keeps_its_finalizer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker had let the first one go."""
    claim = running_node(world)
    patch, made = world.cluster.patch_metadata, list[NodeClaim]()

    def patch_metadata(kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        if change.get("finalizers") == [] and kind == "nodeclaims" and not made:
            about = ObjectMeta(claim.name, labels={labels.NODEPOOL: "default"}, finalizers=(labels.FINALIZER,))
            made.append(world.cluster.put("nodeclaims", NodeClaim(about, claim.node_class_ref)))
        patch(kind, metadata, change)

    monkeypatch.setattr(world.cluster, "patch_metadata", patch_metadata)
    delete(world, claim)
    assert world.run(120, until=lambda: bool(made))
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    assert current.metadata.uid == made[0].metadata.uid
    assert labels.FINALIZER in current.metadata.finalizers


def test_a_drain_lasts_five_seconds_even_when_nobody_is_there(world: World) -> None:
    claim = running_node(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    began = world.clock.now()
    assert world.run(60, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert world.effects.select("ec2", "terminate")[0].at - began >= timedelta(seconds=5)


def test_a_drain_that_began_in_the_future_lasts_no_longer(world: World) -> None:
    """The clock of the function that began it was ten minutes ahead; the five seconds count from the deletion."""
    claim = running_node(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    began = world.clock.now()
    world.settle()
    conditions = tuple(
        msgspec.structs.replace(found, last_transition_time=began + timedelta(minutes=10))
        if found.type == "Drained"
        else found
        for found in world.claims()[0].conditions
    )
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    assert world.run(15, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert world.effects.select("ec2", "terminate")[0].at - began >= timedelta(seconds=5)


def test_deleting_a_node_deletes_its_claim(world: World) -> None:
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.cluster.delete("nodes", node.metadata)
    assert world.run(90, until=lambda: gone(world, claim))
    assert world.cluster.node(claim.node_name) is None
    assert not world.ec2.live_instances()


def test_a_budget_that_allows_nothing_keeps_the_node_and_says_so(world: World) -> None:
    claim = running_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    delete(world, claim)
    world.run(300)
    assert world.running_pods()
    assert world.ec2.live_instances()
    assert "FailedDraining" in {event.reason for event in world.cluster.events}
    world.cluster.remove("poddisruptionbudgets", "default/keep")
    assert world.run(90, until=lambda: gone(world, claim))


def test_a_budget_of_one_lets_pods_go_one_after_the_other(world: World) -> None:
    claim = running_node(world, pods=3)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("one", "inflate", max_unavailable=1))
    other_pod = builders.pod(
        "inflate-spare", node_name="elsewhere", phase="Running", is_ready=True, labels={"app": "inflate"}
    )
    delete(world, claim)
    together = []
    for _ in range(120):
        world.run(1)
        leaving = [pod for pod in world.cluster.all("pods") if pod.metadata.deletion_timestamp is not None]
        together.append(len(leaving))
        if gone(world, claim):
            break
        if not leaving:
            # The ReplicaSet's successor is ready elsewhere: the budget allows the next.
            name = f"{other_pod.metadata.name}-{len(together)}"
            world.cluster.put(
                "pods",
                msgspec.structs.replace(other_pod, metadata=msgspec.structs.replace(other_pod.metadata, name=name)),
            )
            world.cluster.put("nodes", builders.unmanaged_node("elsewhere"))
    assert gone(world, claim)
    assert max(together) == 1


def test_a_budget_that_refuses_for_long_is_asked_less_and_less(world: World) -> None:
    """Every three seconds for five minutes, then more and more seldom; in the end by tick and sweep each minute."""
    claim = running_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("inflate", "inflate", min_available=1))
    delete(world, claim)
    asked = list[int]()
    for _ in range(4):
        before = len(world.effects.select("cluster", "evict"))
        world.run(600)
        asked.append(len(world.effects.select("cluster", "evict")) - before)
    assert asked[0] <= 600 // 3
    assert all(later <= earlier for earlier, later in pairwise(asked))
    assert asked[-1] <= 2 * 600 // 60
    world.cluster.remove("poddisruptionbudgets", "default/inflate")
    assert world.run(75, until=lambda: not world.running_pods())


def test_a_pod_that_must_not_be_disrupted_is_waited_for(world: World) -> None:
    claim = running_node(world, template=builders.pod("inflate", annotations={labels.DO_NOT_DISRUPT: "true"}))
    delete(world, claim)
    world.run(200)
    assert world.running_pods()
    (pod,) = world.running_pods()
    world.cluster.update("pods", pod.key, phase="Succeeded")
    assert world.run(90, until=lambda: gone(world, claim))


def test_the_termination_grace_period_overrules_budget_and_annotation(world: World) -> None:
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=300)
    claim = running_node(
        world,
        template=builders.pod(
            "inflate", annotations={labels.DO_NOT_DISRUPT: "true"}, termination_grace_period_seconds=60
        ),
    )
    world.kubelets.stop_seconds = 600
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    delete(world, claim)
    world.run(236)
    assert world.running_pods(), "at 240 s its own grace period still fits"
    assert world.run(10, until=lambda: not world.running_pods())
    assert world.run(110, until=lambda: gone(world, claim))
    (forced,) = [event for event in world.cluster.events if event.reason == "Disrupted"]
    assert "granted 59 seconds of grace-period" in forced.message


def test_daemons_and_critical_pods_go_last(world: World) -> None:
    claim = running_node(world, pods=1)
    daemon = builders.daemonset_pod("agent", claim.node_name, tolerations=())
    world.cluster.put("pods", daemon)
    critical = builders.pod(
        "dns", node_name=claim.node_name, phase="Running", is_ready=True, priority_class_name="system-cluster-critical"
    )
    world.cluster.put("pods", critical)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    evicted = [effect.subject for effect in world.effects.select("cluster", "evict")]
    assert list(dict.fromkeys(evicted)) == ["default/inflate-0001", "kube-system/agent", "default/dns"]


def test_a_pod_that_tolerates_the_taint_is_neither_evicted_nor_waited_for(world: World) -> None:
    claim = running_node(world)
    stays = builders.pod(
        "stays", node_name=claim.node_name, phase="Running", tolerations=(Toleration(labels.DISRUPTED, "Exists"),)
    )
    world.cluster.put("pods", stays)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    assert "default/stays" not in {effect.subject for effect in world.effects.select("cluster", "evict")}


def test_volumes_are_waited_for(world: World) -> None:
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    waiting = find_condition(world.claims()[0].conditions, "VolumesDetached")
    assert waiting is not None
    assert waiting.reason == "AwaitingVolumeDetachment"
    world.cluster.attachments.clear()
    assert world.run(60, until=lambda: gone(world, claim))


def put_staying_pod(world: World, name: str, claim: NodeClaim, *volume_claims: str) -> None:
    stays = builders.pod(
        name, node_name=claim.node_name, phase="Running", volume_claim_names=volume_claims,
        tolerations=(Toleration(labels.DISRUPTED, "Exists"),),
    )  # fmt: skip
    world.cluster.put("pods", stays)


def put_volume_claim(world: World, name: str, volume: str) -> None:
    metadata = ObjectMeta(name, namespace="default")
    world.cluster.put("persistentvolumeclaims", PersistentVolumeClaim(metadata, volume, bind_completed=True))


def test_volumes_of_pods_that_stay_to_the_end_are_not_waited_for(world: World) -> None:
    claim = running_node(world)
    put_staying_pod(world, "stays", claim, "data")
    put_volume_claim(world, "data", "pv-1")
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))


def test_a_staying_pod_without_an_attachment_does_not_stand_for_the_volume_of_another_pod(world: World) -> None:
    """The volume of an EFS claim has no VolumeAttachment; a claim that does not exist has no volume."""
    claim = running_node(world)
    put_staying_pod(world, "stays", claim, "shared", "missing")
    put_volume_claim(world, "shared", "pv-efs")
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    world.cluster.attachments.clear()
    assert world.run(60, until=lambda: gone(world, claim))


def test_a_volume_that_two_staying_pods_share_counts_once(world: World) -> None:
    claim = running_node(world)
    for name in ("stays-1", "stays-2"):
        put_staying_pod(world, name, claim, "data")
    put_volume_claim(world, "data", "pv-1")
    world.cluster.attachments[claim.node_name] = ("pv-1", "pv-2")
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    waiting = find_condition(world.claims()[0].conditions, "VolumesDetached")
    assert waiting is not None
    assert "pv-2" in waiting.message
    assert "pv-1" not in waiting.message


def test_a_machine_that_vanished_is_not_drained(world: World) -> None:
    claim = running_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.ec2.stop(world.ec2.live_instances()[0].id, after_seconds=0)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    assert not world.effects.select("ec2", "terminate") or world.ec2.all_instances()[0].state == "terminated"


def test_an_unknown_id_must_be_unknown_for_a_minute(world: World) -> None:
    claim = running_node(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    world.ec2.forget_instance(world.ec2.live_instances()[0].id)
    began = world.clock.now()
    assert world.run(150, until=lambda: gone(world, claim))
    assert world.clock.now() - began >= timedelta(seconds=60)


@pytest.mark.parametrize("action", ["instance", "instances_of_launch"])
def test_an_api_in_trouble_ends_nothing(world: World, action: str) -> None:
    claim = running_node(world)
    delete(world, claim)
    world.effects.inject(Fault("ec2", action, Unavailable("no answer"), times=10_000))
    world.run(120)
    if action == "instance":
        assert not gone(world, claim)
        assert world.cluster.node(claim.node_name) is not None


def test_an_expired_claim_goes_by_itself(world: World) -> None:
    world.cluster.update("nodepools", "default", expire_after_seconds=600)
    claim = running_node(world)
    world.run(560)
    assert not gone(world, claim)
    assert world.run(720, until=lambda: gone(world, claim))
    (said,) = [event.message for event in world.cluster.events if event.reason == "Deleting"]
    assert said.startswith("Deleting the NodeClaim: older than expireAfter since 2026-")


def test_a_node_that_the_taint_was_left_on_is_given_back(world: World) -> None:
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT

    world.cluster.set_taints(node, (DISRUPTED_TAINT,))
    assert world.run(5, until=lambda: world.cluster.all("nodes")[0].taints == ())


def test_the_volume_of_a_pod_that_ended_is_waited_for(world: World) -> None:
    claim = running_node(world)
    ended = builders.pod("ended", node_name=claim.node_name, phase="Succeeded", volume_claim_names=("data",))
    world.cluster.put("pods", ended)
    put_volume_claim(world, "data", "pv-1")
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()


def test_a_claim_of_the_same_name_in_another_namespace_is_another_volume(world: World) -> None:
    claim = running_node(world)
    put_staying_pod(world, "stays", claim, "data")
    stays = next(pod for pod in world.cluster.pods(node=claim.node_name) if pod.metadata.name == "stays")
    world.cluster.delete("pods", stays.metadata)
    other = msgspec.structs.replace(stays, metadata=msgspec.structs.replace(stays.metadata, namespace="other"))
    world.cluster.put("pods", other)
    put_volume_claim(world, "data", "pv-1")
    metadata = ObjectMeta("data", namespace="other")
    world.cluster.put("persistentvolumeclaims", PersistentVolumeClaim(metadata, "pv-2", bind_completed=True))
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()


def test_volumes_are_waited_for_until_the_termination_grace_period_ends(world: World) -> None:
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=300)
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(290)
    assert world.ec2.live_instances()
    assert world.run(120, until=lambda: gone(world, claim))


@pytest.mark.parametrize("seconds", [7, 37, 59])
def test_pods_have_their_whole_grace_period_before_a_deadline_that_comes_after_the_last_tick(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """400 ticks end after five hours, and only the poll of each minute steps the claim then."""
    monkeypatch.setattr(retry, "MAXIMUM_TICKS", 20)
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=900 + seconds)
    claim = running_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("all", "inflate", max_unavailable=0))
    delete(world, claim)
    assert world.run(960, until=lambda: not world.running_pods())
    (forced,) = [event for event in world.cluster.events if event.reason == "Disrupted"]
    assert "granted 29 seconds of grace-period" in forced.message


@pytest.mark.parametrize("seconds", [7, 37, 59])
def test_pods_have_their_whole_grace_period_though_the_eviction_of_another_pod_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """A webhook denies it, or the API server does not answer; no tick is near."""
    monkeypatch.setattr(retry, "MAXIMUM_TICKS", 20)
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=900 + seconds)
    for name in ("denied", "kept"):
        world.deploy(builders.pod(name, cpu_millicores=300), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    world.forget_deployments()
    (claim,) = world.claims()
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("kept", "kept", max_unavailable=0))
    evict = world.cluster.evict

    def refuse_eviction(pod: Pod) -> bool:
        if pod.name.startswith("denied"):
            raise Denied("an admission webhook denied the request", code="Forbidden")
        return evict(pod)

    monkeypatch.setattr(world.cluster, "evict", refuse_eviction)
    delete(world, claim)
    assert world.run(990, until=lambda: not world.running_pods())
    forced = [event.message for event in world.cluster.events if event.reason == "Disrupted"]
    assert len(forced) == 2
    assert all("granted 29 seconds of grace-period" in message for message in forced)


def test_a_volume_is_waited_for_until_a_deadline_that_comes_after_the_last_tick_and_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAXIMUM_TICKS", 20)
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=900 + 37)
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(900 + 30)
    assert world.ec2.live_instances()
    assert world.run(10, until=lambda: not world.ec2.live_instances())


def test_a_deleted_node_takes_its_claim_along_when_the_message_is_lost(world: World) -> None:
    """Nobody tells of the Node again: the sweep rings for the claim alone."""
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    world.forwarder_runs = False
    world.cluster.delete_node(node)
    assert world.run(700, until=lambda: gone(world, claim))
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()


def test_a_node_that_goes_with_its_instance_takes_its_claim_along_when_no_message_comes(world: World) -> None:
    claim = running_node(world)
    world.forwarder_runs = False
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    assert world.run(700, until=lambda: gone(world, claim))
    assert not world.cluster.nodes()


@pytest.mark.parametrize("grace_seconds", [None, 60])
def test_a_pod_that_a_webhook_keeps_does_not_keep_the_other_pods_of_its_node(
    world: World, monkeypatch: pytest.MonkeyPatch, grace_seconds: int | None
) -> None:
    """Nor, when terminationGracePeriod ends, those that budgets have kept until then."""
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=grace_seconds)
    for name in ("first", "second", "third"):
        world.deploy(builders.pod(name, cpu_millicores=300, termination_grace_period_seconds=10), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 3)
    world.forget_deployments()
    if grace_seconds:
        for name in ("second", "third"):
            budget = builders.pod_disruption_budget(name, name, min_available="100%")
            world.cluster.put("poddisruptionbudgets", budget)
    evict, remove = world.cluster.evict, world.cluster.delete

    def refuse_eviction(pod: Pod) -> bool:
        if pod.name.startswith("first"):
            raise Denied("an admission webhook denied the request", code="Forbidden")
        return evict(pod)

    def refuse_deletion(kind: str, metadata: ObjectMeta, **options: Any) -> None:
        if metadata.name.startswith("first"):
            raise Denied("an admission webhook denied the request", code="Forbidden")
        remove(kind, metadata, **options)

    monkeypatch.setattr(world.cluster, "evict", refuse_eviction)
    monkeypatch.setattr(world.cluster, "delete", refuse_deletion)
    (claim,) = world.claims()
    delete(world, claim)
    assert world.run(100, until=lambda: len(world.running_pods()) == 1)
    assert world.running_pods()[0].name.startswith("first")
    assert not gone(world, claim)
