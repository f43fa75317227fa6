"""Two hundred nodes are drained at once: each in its order, and a budget that refuses keeps nobody else waiting."""

from collections import Counter
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.lifecycle import refused_evictions
from spotwright.lifecycle.retry import TICK_SECONDS
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.effects import Effect, Fault
from spotwright.simulation.world import World
from tests.scenarios.lifecycle.conftest import fresh_world

NODES = 200
# Nodes with four replicas that no budget lets go, and nodes whose volume stays attached.
KEPT, ATTACHED = 20, 5
SECONDS = 90
LEFT_OUT = (labels.EXCLUDE_FROM_LOAD_BALANCERS, "karpenter")


class Drained:
    """``world``: all NodeClaims were deleted at the same moment; ``kept``, ``attached``: names of nodes.

    ``asked``: of each eviction that was tried, the node and whether it took no load-balancer traffic any more;
    ``described``: instances that EC2 was asked about.
    """

    def __init__(self) -> None:
        self.world = fresh_world()
        self.world.deploy(builders.pod("web", cpu_millicores=1800), NODES)
        assert self.world.run(60, until=lambda: len(self.world.running_pods()) == NODES)
        self.world.forget_deployments()
        nodes = sorted(pod.node_name for pod in self.world.running_pods())
        self.kept, self.attached = frozenset(nodes[:KEPT]), frozenset(nodes[-ATTACHED:])
        self._keep()
        self.asked: list[tuple[str, bool]] = []
        self.described: set[str] = set()
        self._watch()
        for claim in self.world.claims():
            self.world.cluster.delete("nodeclaims", claim.metadata)
        self.began = self.world.clock.now()
        self.world.effects.log.clear()
        self.world.run(SECONDS)

    def _keep(self) -> None:
        for name in self.kept:
            for number in range(4):
                pod = builders.pod(f"api-{name}-{number}", labels={"app": "api"}, node_name=name, is_ready=True)
                self.world.cluster.put("pods", pod)
                self.world.cluster.update("pods", pod.key, phase="Running")
        budget = builders.pod_disruption_budget("api", "api", max_unavailable=0)
        self.world.cluster.put("poddisruptionbudgets", budget)
        for name in self.attached:
            self.world.cluster.attachments[name] = (f"pv-{name}",)

    def _watch(self) -> None:
        evict = self.world.cluster.evict

        def watched(pod: Pod) -> bool:
            node = self.world.cluster.node(pod.node_name)
            is_out = node is not None and DISRUPTED_TAINT in node.taints and LEFT_OUT in node.metadata.labels.items()
            self.asked.append((pod.node_name, is_out))
            return evict(pod)

        describe = self.world.ec2.instance

        def described(instance_id: str) -> Instance | None:
            self.described.add(instance_id)
            return describe(instance_id)

        self.world.cluster.evict = watched  # type: ignore[method-assign]
        self.world.ec2.instance = described  # type: ignore[method-assign]

    def of(self, port: str, action: str) -> tuple[Effect, ...]:
        return self.world.effects.select(port, action)


@pytest.fixture(scope="module")
def drained() -> Drained:
    return Drained()


def test_nodes_whose_pods_may_go_wait_for_no_other(drained: Drained) -> None:
    left = {claim.node_name for claim in drained.world.claims()}
    assert left == drained.kept | drained.attached


def test_a_refusing_budget_is_asked_for_one_pod_at_a_time_by_all_nodes(drained: Drained) -> None:
    """Eighty pods on twenty nodes are 2 s, 4 s, 8 s and then every 10 s a request; other pods went at once."""
    asked = Counter(node for node, _ in drained.asked)
    api = sum(count - 1 for node, count in asked.items() if node in drained.kept)
    longest_retries = SECONDS // refused_evictions.LONGEST_RETRY.total_seconds()
    assert longest_retries // 2 < api <= longest_retries + 4
    assert all(asked[node] == 1 for node in asked.keys() - drained.kept)
    assert {pod.metadata.labels["app"] for pod in drained.world.running_pods()} == {"api"}


def test_each_node_says_what_keeps_it(drained: Drained) -> None:
    said = {event.name for event in drained.world.cluster.events if "violates a PDB" in event.message}
    assert said == drained.kept


def test_ec2_is_not_asked_about_an_instance_whose_pods_are_leaving(drained: Drained) -> None:
    claims = [claim for claim in drained.world.claims() if claim.node_name in drained.kept]
    assert len(claims) == KEPT
    assert not drained.described & {instance_id(claim.provider_id) for claim in claims}


def test_no_pod_is_evicted_while_its_node_still_takes_traffic_or_pods(drained: Drained) -> None:
    assert len({node for node, _ in drained.asked}) == NODES
    assert all(is_out for _, is_out in drained.asked)


def test_a_node_with_an_attached_volume_is_empty_and_its_instance_runs(drained: Drained) -> None:
    claims = [claim for claim in drained.world.claims() if claim.node_name in drained.attached]
    assert all(claim.is_condition_true("Drained") for claim in claims)
    assert not any(claim.is_condition_true("InstanceTerminating") for claim in claims)
    assert len(drained.world.ec2.live_instances()) == KEPT + ATTACHED


def test_pods_keep_their_whole_grace_period(drained: Drained) -> None:
    """Evictions state no grace period of their own, so that preStop and SIGTERM have the time of the pod's spec."""
    assert not [effect for effect in drained.of("cluster", "delete") if effect.subject.startswith("pods/")]


def test_all_evictions_are_asked_for_within_seconds(drained: Drained) -> None:
    evicted = {effect.subject: effect.at for effect in reversed(drained.of("cluster", "evict"))}
    web = [at for key, at in evicted.items() if key.startswith("default/web-")]
    assert len(web) == NODES
    assert max(web) - drained.began <= timedelta(seconds=2 * TICK_SECONDS)


def test_a_refusal_of_a_namespace_keeps_no_pod_of_another_one() -> None:
    """A PodDisruptionBudget selects pods of its own namespace, whatever labels others have."""
    world = fresh_world()
    world.deploy(builders.pod("web", cpu_millicores=300), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    world.forget_deployments()
    for namespace in ("a", "b"):
        there = builders.pod(
            "api", namespace=namespace, labels={"app": "api"}, node_name=claim.node_name, is_ready=True
        )
        world.cluster.put("pods", there)
        world.cluster.update("pods", there.key, phase="Running")
    budget = builders.pod_disruption_budget("api", "api", namespace="a", max_unavailable=0)
    world.cluster.put("poddisruptionbudgets", budget)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(30)
    assert [pod.key for pod in world.running_pods()] == ["a/api"]


def test_a_budget_that_lets_some_pods_go_at_a_time_is_not_waited_for_longer_than_needed() -> None:
    """Forty nodes, four pods of the budget may be missing at a time: each new place is used soon."""
    world = fresh_world()
    world.deploy(builders.pod("web", cpu_millicores=1800, labels={"app": "web"}), 40)
    assert world.run(60, until=lambda: len(world.running_pods()) == 40)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("web", "web", max_unavailable=4))
    asked = list[str]()
    evict = world.cluster.evict

    def watched(pod: Pod) -> bool:
        asked.append(pod.key)
        return evict(pod)

    world.cluster.evict = watched  # type: ignore[method-assign]
    before = {claim.name for claim in world.claims()}
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(400, until=lambda: before.isdisjoint(claim.name for claim in world.claims()))
    assert len(world.running_pods()) == 40
    assert len(asked) <= 3 * 40


@pytest.mark.parametrize("action", ["refused_evictions", "save_refused_evictions"])
def test_what_is_refused_is_asked_for_without_the_state_table(action: str) -> None:
    world = fresh_world()
    world.deploy(builders.pod("web", cpu_millicores=1800, labels={"app": "web"}), 2)
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    world.forget_deployments()
    budget = builders.pod_disruption_budget("web", "web", max_unavailable=0)
    world.cluster.put("poddisruptionbudgets", budget)
    world.effects.inject(Fault("state", action, Unavailable("no answer"), times=1_000_000))
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    world.run(30)
    assert len(world.running_pods()) == 2
    world.cluster.remove("poddisruptionbudgets", budget.metadata.key)
    assert world.run(120, until=lambda: not world.claims())


def kept_on_a_node(*pods: Pod) -> World:
    """A world whose only node is drained, on which these pods run."""
    world = fresh_world()
    world.deploy(builders.pod("web", cpu_millicores=300), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    world.forget_deployments()
    for pod in pods:
        world.cluster.put("pods", msgspec.structs.replace(pod, node_name=claim.node_name, is_ready=True))
        world.cluster.update("pods", pod.key, phase="Running")
    world.cluster.delete("nodeclaims", claim.metadata)
    return world


def budget_over(name: str, **values: str) -> PodDisruptionBudget:
    """One that lets no pod go."""
    selector = tuple(NodeSelectorRequirement(key, Operator.IN, (value,)) for key, value in values.items())
    return PodDisruptionBudget(ObjectMeta(name, namespace="default"), selector, max_unavailable=0)


def test_a_budget_that_selects_other_pods_than_before_keeps_no_pod_that_it_let_go() -> None:
    """The pod that it still selects is asked for first, each time."""
    guarded = builders.pod("a", labels={"app": "api", "part": "x"})
    world = kept_on_a_node(guarded, builders.pod("b", labels={"app": "api"}))
    world.cluster.put("poddisruptionbudgets", budget_over("api", app="api"))
    world.run(60)
    assert [pod.key for pod in world.running_pods()] == ["default/a", "default/b"]
    world.cluster.put("poddisruptionbudgets", budget_over("api", app="api", part="x"))
    assert world.run(60, until=lambda: [pod.key for pod in world.running_pods()] == ["default/a"])


def test_a_pod_that_has_another_budget_now_keeps_no_pod_of_the_first_one() -> None:
    world = kept_on_a_node(
        builders.pod("a", labels={"app": "api", "part": "x"}), builders.pod("b", labels={"app": "api"})
    )
    world.cluster.put("poddisruptionbudgets", budget_over("api", app="api"))
    world.run(60)
    world.cluster.remove("poddisruptionbudgets", "default/api")
    world.cluster.put("poddisruptionbudgets", budget_over("part", part="x"))
    assert world.run(60, until=lambda: [pod.key for pod in world.running_pods()] == ["default/a"])


def test_a_pod_with_two_budgets_which_nothing_evicts_keeps_no_pod_with_one_of_them() -> None:
    world = kept_on_a_node(
        builders.pod("a", labels={"app": "api", "part": "x"}), builders.pod("b", labels={"app": "api"})
    )
    for budget in (budget_over("api", app="api"), budget_over("x", part="x")):
        world.cluster.put("poddisruptionbudgets", budget)
    world.run(60)
    assert [pod.key for pod in world.running_pods()] == ["default/a", "default/b"]
    allowing = msgspec.structs.replace(budget_over("api", app="api"), max_unavailable=1)
    world.cluster.put("poddisruptionbudgets", allowing)
    assert world.run(15, until=lambda: [pod.key for pod in world.running_pods()] == ["default/a"])
