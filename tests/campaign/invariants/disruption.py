"""What is disrupted: within budgets, after replacements, sick nodes alone, and no pod unasked."""

import math
from collections import Counter, deque
from datetime import datetime
from typing import Final

from spotwright.lifecycle.instance_health import failing_checks
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.karpenter.repair_policies import is_unhealthy, unhealthy_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.telemetry.events import UNHEALTHY
from spotwright.workflows.ports.rows import CommandRow
from tests.campaign.calls import Call
from tests.campaign.invariants.invariant import Invariant, is_disrupted_by_choice, live, remember
from tests.campaign.world import CampaignWorld

# An invocation lasts a minute at most.
REMEMBERED_MS: Final = 60 * 1000
LIVE: Final = ("pending", "running")


class PodsAreAsked(Invariant):
    """PodDisruptionBudgets: pods go by eviction, and no instance is terminated under pods that are not gone.

    Otherwise only after the NodeClaim's terminationGracePeriod, or when the instance goes by itself.
    """

    name = "no PodDisruptionBudget is broken"

    def before(self, call: Call) -> None:
        if call.is_to("cluster", "delete") and call.args[0] == "pods":
            self.checked += 1
            pod = self.world.cluster.find("pods", call.args[1].key)
            if pod is not None and not self._has_deadline(pod):
                self.fail(f"{pod.key} is deleted, not evicted, and its node has no deadline")
        if call.is_to("ec2", "terminate"):
            self.checked += 1
            for instance in call.args[0]:
                if instance not in self.world.torn_out:
                    self._check_termination(instance)

    def _check_termination(self, instance: str) -> None:
        states = {machine.id: machine.state for machine in self.world.ec2.all_instances()}
        for node in self.world.cluster.all("nodes"):
            if instance_id(node.provider_id) != instance or not node.is_ready or states.get(instance) not in LIVE:
                continue
            claim = _claim_of(self.world, node)
            if claim is not None and _is_past_deadline(claim, self.now_ms()):
                continue
            for pod in self.world.cluster.all("pods"):
                if pod.node_name == node.name and not pod.is_terminal:
                    self.fail(f"{instance} is terminated under {pod.key}")

    def _has_deadline(self, pod: Pod) -> bool:
        node = self.world.cluster.find("nodes", pod.node_name)
        claim = None if node is None else _claim_of(self.world, node)
        return claim is not None and labels.TERMINATION_TIMESTAMP in claim.metadata.annotations


class OnlySickRepaired(Invariant):
    """What is repaired was sick for longer than is tolerated, and at most a fifth of its NodePool with it.

    As it was at any moment of the last minute: an invocation may stand still after it has looked.
    """

    name = "no node is repaired that is not sick, nor among too many"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._sick_at: dict[str, int] = {}
        self._few_at: dict[str, int] = {}

    def after_step(self) -> None:
        """Remember which Nodes are to be repaired, and in which pools few enough are unhealthy."""
        now, checks = self.world.clock.now(), failing_checks(self.world.ec2.statuses.values())
        counts: dict[str, list[int]] = {}
        for node in self.world.cluster.all("nodes"):
            check = checks.get(instance_id(node.provider_id))
            count = counts.setdefault(node.nodepool, [0, 0])
            count[0] += 1
            count[1] += is_unhealthy(node) or check is not None
            for condition in (unhealthy_condition(node), check):
                if condition is not None and condition.repair_at <= now:
                    self._sick_at[node.name] = self.now_ms()
        for pool, (total, unhealthy) in counts.items():
            if unhealthy <= -(-total // 5):
                self._few_at[pool] = self.now_ms()

    def before(self, call: Call) -> None:
        if not (call.is_to("cluster", "record_event") and call.args[0] == "nodes" and call.args[2].row is UNHEALTHY):
            return
        self.checked += 1
        self.after_step()
        node = self.world.cluster.find("nodes", call.args[1].name)
        if node is None:
            return
        if self.now_ms() - self._sick_at.get(node.name, 0) > REMEMBERED_MS:
            self.fail(f"{node.name} is repaired and is not sick")
        if self.now_ms() - self._few_at.get(node.nodepool, 0) > REMEMBERED_MS:
            self.fail(f"{node.name} is repaired while too many nodes of NodePool {node.nodepool} are unhealthy")


def _bound(budget: Budget, nodes: int) -> int:
    """How many of so many nodes a budget lets go at the same time: a percentage is rounded up."""
    percent = budget.nodes.removesuffix("%")
    return int(budget.nodes) if percent == budget.nodes else math.ceil(int(percent) * nodes / 100)


class BudgetsKept(Invariant):
    """No more nodes go at the same time than the NodePool's budgets allow, and as empty only those without pods."""

    name = "no NodePool budget is broken"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._allowed: dict[str, deque[tuple[int, int]]] = {}
        self._going: dict[str, str] = {}

    def after_step(self) -> None:
        nodes = Counter(claim.nodepool for claim in self.world.claims())
        for pool in self.world.cluster.all("nodepools"):
            bounds = (_bound(budget, nodes[pool.name]) for budget in pool.budgets if not budget.reasons)
            allowed = min(bounds, default=2**31)
            remember(self._allowed.setdefault(pool.name, deque()), allowed, self.now_ms())

    def before(self, call: Call) -> None:
        if not (call.is_to("cluster", "delete") and call.args[0] == "nodeclaims"):
            return
        claim = self.world.cluster.find("nodeclaims", call.args[1].key)
        if (
            claim is None
            or claim.metadata.deletion_timestamp is not None
            or not is_disrupted_by_choice(self.world, claim)
        ):
            return
        self.checked += 1
        if is_disrupted_by_choice(self.world, claim, ("Empty",)):
            self._check_pods(claim)
        present = {nodeclaim.metadata.uid: nodeclaim for nodeclaim in self.world.claims()}
        self._going = {
            uid: pool
            for uid, pool in self._going.items()
            if uid in present and not present[uid].is_condition_true("InstanceTerminating")
        }
        self._going[claim.metadata.uid] = claim.nodepool
        going = list(self._going.values()).count(claim.nodepool)
        allowed = max((value for _, value in self._allowed.get(claim.nodepool, ())), default=1)
        if going > allowed:
            self.fail(
                f"{claim.name}: {going} nodes of NodePool {claim.nodepool} go at once, its budgets allow {allowed}"
            )

    def _check_pods(self, claim: NodeClaim) -> None:
        for pod in self.world.cluster.all("pods"):
            if pod.node_name == claim.node_name and pod.is_active and pod.node_name:
                self.fail(f"{claim.name} is disrupted as empty and runs {pod.key}")


class ReplacementsFirst(Invariant):
    """The pods of a node leave when what replaces it was Initialized once, or when EC2 takes the node at any moment."""

    name = "no node goes before its replacements are there"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._initialized: set[str] = set()

    def after_step(self) -> None:
        self.remember()

    def before(self, call: Call) -> None:
        if not (call.is_to("cluster", "delete") and call.args[0] == "nodeclaims"):
            return
        claim = self.world.cluster.find("nodeclaims", call.args[1].key)
        if claim is None or claim.metadata.deletion_timestamp is not None or self._goes_anyway(claim):
            return
        if call.kwargs.get("as_read") and call.args[1].resource_version != claim.metadata.resource_version:
            # The API server refuses it.
            return
        self.remember()
        for row in self.world.state.rows.values():
            if not isinstance(row, CommandRow) or row.candidate_uids.get(claim.name) != claim.metadata.uid:
                continue
            if row.phase == "waiting" and claim.name in row.candidates and row.replacements:
                self.checked += 1
                missing = set(row.replacements) - set(row.initialized_replacements) - self._initialized
                if missing and not (row.forced and self.now_ms() >= row.deadline):
                    self.fail(f"{claim.name} is deleted, and {', '.join(sorted(missing))} was not Initialized")

    def remember(self) -> None:
        self._initialized |= {claim.name for claim in self.world.claims() if claim.is_condition_true("Initialized")}

    def _goes_anyway(self, claim: NodeClaim) -> bool:
        """Whether it goes for another reason: its Node is deleted or sick, its instance ends or is impaired."""
        node = self.world.cluster.find("nodes", claim.node_name)
        id = instance_id(claim.provider_id)
        return (
            node is None
            or node.metadata.deletion_timestamp is not None
            or is_unhealthy(node)
            or id in self.world.ec2.statuses
            or id not in {instance.id for instance in live(self.world)}
        )


def _claim_of(world: CampaignWorld, node: Node) -> NodeClaim | None:
    return next((claim for claim in world.claims() if claim.provider_id == node.provider_id), None)


def _is_past_deadline(claim: NodeClaim, now_ms: int) -> bool:
    stated = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP)
    return stated is not None and datetime.fromisoformat(stated).timestamp() * 1000 <= now_ms
