"""The pods of a node that is drained: asked in order, budgets respected, their grace periods kept."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from spotwright.errors import Denied
from spotwright.lifecycle import retry
from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Toleration
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.scenarios.lifecycle.termination.running_nodes import delete, gone, running_node


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


def test_a_node_that_the_taint_was_left_on_is_given_back(world: World) -> None:
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT

    world.cluster.set_taints(node, (DISRUPTED_TAINT,))
    assert world.run(5, until=lambda: world.cluster.all("nodes")[0].taints == ())


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
