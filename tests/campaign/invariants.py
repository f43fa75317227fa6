"""What must hold: at every call of a function, and when the campaign is at rest.

An invariant sees every call (``before``, ``after``, ``refused``) and is asked after each step (``after_step``). At rest
(``unsettled``) it says what is not as it should be yet, which may take until the campaign's bound.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.decisions.decision import DRIFTED, REBALANCED, SCHEDULED_CHANGE, UNDERUTILIZED, decode_decision
from spotwright.disruption import rebalance
from spotwright.errors import InvalidRequest
from spotwright.lifecycle.instance_health import failing_checks
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.karpenter.repair_policies import is_unhealthy, unhealthy_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation.state import MAXIMUM_ITEM_BYTES
from spotwright.telemetry.events import UNHEALTHY
from spotwright.workflows.ports.rows import (
    FINAL_PHASES,
    RECOMMENDED,
    SCHEDULED,
    CommandRow,
    LaunchRow,
    NominationRow,
    NoticeRow,
    sort_key,
)
from tests.campaign.calls import Call, Watcher
from tests.campaign.world import CampaignWorld

# A change of a budget or limit binds what is decided afterwards, and a decision is carried out within this time.
CARRIED_OUT_MS: Final = 15 * 60 * 1000
# A launch that was under way when the table was lost may be bought again (ARCHITECTURE.md) within this time.
TABLE_LOSS_MS: Final = 15 * 60 * 1000
# More than this for each object that messages can be about is a flood.
MESSAGES_PER_OBJECT: Final = 40
# An invocation lasts a minute at most.
REMEMBERED_MS: Final = 60 * 1000
LIVE: Final = ("pending", "running")
CLUSTER: Final = "the cluster"
# Reasons of budgets for which nodes with pods go, and all reasons for which nodes go by choice.
WITH_PODS: Final = (DRIFTED, UNDERUTILIZED)
BY_CHOICE: Final = ("Empty", *WITH_PODS, REBALANCED, SCHEDULED_CHANGE)


class Violation(msgspec.Struct, frozen=True):
    """An invariant that did not hold, and how."""

    invariant: str
    details: str


class Invariant(Watcher):
    """``checked``: how often it was looked at; ``violations``: what was found."""

    name = ""

    def __init__(self, world: CampaignWorld) -> None:
        self.world = world
        self.checked = 0
        self.violations: list[Violation] = []

    def after_step(self) -> None:
        """After every step."""

    def unsettled(self) -> Iterator[str]:
        """At rest: what is not as it should be yet."""
        yield from ()

    def fail(self, details: str) -> None:
        self.violations.append(Violation(self.name, details))

    def now_ms(self) -> int:
        return self.world.clock.milliseconds()

    def is_table_lost(self) -> bool:
        """Whether the table was lost lately."""
        return self.world.table_lost_at > 0 and self.now_ms() - self.world.table_lost_at < TABLE_LOSS_MS


class NothingBoughtTwice(Invariant):
    """A launch has at most one running instance for each of its NodeClaims."""

    name = "no instance is bought twice for a launch"

    def after(self, call: Call, answer: Any) -> None:
        if not call.is_to("ec2", "create_fleet"):
            return
        launch = _tag(call.args[0], labels.LAUNCH_TAG)
        row = self.world.state.rows.get(f"launch#{launch}")
        if not isinstance(row, LaunchRow) or self.is_table_lost():
            return
        self.checked += 1
        running = [instance.id for instance in _live(self.world) if instance.tags.get(labels.LAUNCH_TAG) == launch]
        if len(running) > len(row.claims):
            self.fail(f"launch {launch} of {', '.join(row.claims)} has {len(running)} instances: {', '.join(running)}")


class PodsPlannedOnce(Invariant):
    """A pending pod is in the open nomination of one NodeClaim at most, of those that exist or may yet."""

    name = "no pod is planned for two nodes at the same time"

    def after(self, call: Call, answer: Any) -> None:
        if not (call.is_to("state", "create") and isinstance(call.args[0], NominationRow)) or self.is_table_lost():
            return
        self.checked += 1
        row = call.args[0]
        claims = {claim.name: claim for claim in self.world.claims()}
        launch = self.world.state.rows.get(f"launch#{row.launch}")
        if row.claim not in claims and isinstance(launch, LaunchRow) and launch.phase == "failed":
            # Written late, of a launch that was given up: no plan puts pods on a node that will never be.
            return
        if row.claim in claims and is_going(self.world, claims[row.claim]):
            # Written late as well: its pods may have been planned for another node since.
            return
        for other in self.world.state.rows.values():
            if not isinstance(other, NominationRow) or other.claim == row.claim or other.phase in FINAL_PHASES:
                continue
            claim = claims.get(other.claim)
            if claim is None or is_going(self.world, claim) or other.due <= row.created:
                continue
            both = sorted(set(row.pods.items()) & set(other.pods.items()))
            if both:
                self.fail(f"{both[0][0]} is planned for {row.claim} and for {other.claim}")


class NoLeak(Invariant):
    """At rest every instance has one NodeClaim and one Node, and the other way round."""

    name = "no instance without a NodeClaim and no NodeClaim without an instance"

    def unsettled(self) -> Iterator[str]:
        self.checked += 1
        instances = {instance.id for instance in _live(self.world)}
        claims = Counter(instance_id(claim.provider_id) for claim in self.world.claims() if claim.provider_id)
        nodes = Counter(instance_id(node.provider_id) for node in self.world.cluster.all("nodes"))
        for instance in sorted(instances | claims.keys() | nodes.keys()):
            found = (int(instance in instances), claims[instance], nodes[instance])
            if found != (1, 1, 1):
                yield f"instance {instance}: {found[0]} running, {found[1]} NodeClaims, {found[2]} Nodes"


class EveryClaimEnds(Invariant):
    """At rest every NodeClaim is initialized, and neither NodeClaim nor Node is being deleted."""

    name = "every NodeClaim becomes initialized or goes"

    def unsettled(self) -> Iterator[str]:
        self.checked += 1
        for claim in self.world.claims():
            if claim.metadata.deletion_timestamp is not None:
                yield f"{claim.name} is being deleted since {claim.metadata.deletion_timestamp}"
            elif not claim.is_condition_true("Initialized"):
                yield f"{claim.name} is not initialized"
        for node in self.world.cluster.all("nodes"):
            if node.metadata.deletion_timestamp is not None:
                yield f"node {node.name} is being deleted since {node.metadata.deletion_timestamp}"


class NoPodWaits(Invariant):
    """At rest every pod has a node that exists: a pod whose Node is gone is about to be replaced by another."""

    name = "no pod is without a node for long once faults stop"

    def unsettled(self) -> Iterator[str]:
        self.checked += 1
        nodes = {node.name for node in self.world.cluster.all("nodes")}
        for pod in self.world.cluster.all("pods"):
            if not pod.node_name:
                yield f"{pod.key} has no node"
            elif pod.node_name not in nodes:
                yield f"{pod.key} is on {pod.node_name}, which is gone"


class NodesAreOpen(Invariant):
    """At rest no node is closed to pods by a taint of ours that nobody needs any more."""

    name = "no node stays tainted without a reason"

    def unsettled(self) -> Iterator[str]:
        self.checked += 1
        for node in self.world.cluster.all("nodes"):
            left = [
                taint.key for taint in node.taints if taint.key in (labels.DISRUPTED, labels.HELD, labels.UNREGISTERED)
            ]
            if left:
                yield f"{node.name} has the taints {', '.join(left)}"


class NoEmptyNode(Invariant):
    """At rest nodes without pods are removed, as their budgets allow it."""

    name = "no empty node stays"

    def unsettled(self) -> Iterator[str]:
        self.checked += 1
        used = {pod.node_name for pod in self.world.cluster.all("pods")}
        for node in self.world.cluster.all("nodes"):
            if node.name not in used:
                yield f"{node.name} has no pods"


class RowsEnd(Invariant):
    """At rest no launch, command or notice is open, and nothing that is history waits for a time."""

    name = "every row ends"

    def unsettled(self) -> Iterator[str]:
        self.checked += 1
        for key, row in sorted(self.world.state.rows.items()):
            if isinstance(row, NoticeRow) and row.phase in (RECOMMENDED, SCHEDULED) and row.due > self.now_ms():
                # While budgets have no room, a recommendation or a change that EC2 has scheduled waits for its time.
                continue
            if row.phase not in FINAL_PHASES and not isinstance(row, NominationRow):
                yield f"{key} is in phase {row.phase}"
        if self.world.state.cluster_row.pending_decisions:
            yield f"{len(self.world.state.cluster_row.pending_decisions)} decisions were not acted on"


class SurplusEnds(Invariant):
    """A launch becomes history when none of its instances runs without a NodeClaim: nothing but its row knows them."""

    name = "no launch ends while it has instances without a NodeClaim"

    def after(self, call: Call, answer: Any) -> None:
        row = call.args[0] if call.is_to("state", "save") else None
        if not isinstance(row, LaunchRow) or row.phase != "done" or row.due:
            return
        self.checked += 1
        used = {instance_id(claim.provider_id) for claim in self.world.claims()} | self.world.torn_out
        for instance in _live(self.world):
            if instance.tags.get(labels.LAUNCH_TAG) == row.id and instance.id not in used:
                self.fail(f"launch {row.id} ends, and {instance.id} is {instance.state} without a NodeClaim")


class RowsAndMessagesBounded(Invariant):
    """The table refuses a row for its size only when a NodePool is as large, and messages do not multiply."""

    name = "rows and messages stay within their limits"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self.most_messages = 0

    def refused(self, call: Call, error: Exception) -> None:
        if not isinstance(error, InvalidRequest) or call.port not in ("state", "doorbells"):
            return
        row = call.args[0] if call.is_to("state", "create") else None
        if not isinstance(row, LaunchRow) or len(row.node) < MAXIMUM_ITEM_BYTES // 2:
            self.fail(f"{call.port}.{call.action}: {error}")

    def after(self, call: Call, answer: Any) -> None:
        if call.is_to("state", "create", "save"):
            self.checked += 1

    def after_step(self) -> None:
        messages = len(self.world.doorbells.messages)
        self.most_messages = max(self.most_messages, messages)
        objects = 10 + len(self.world.claims()) + len(self.world.state.rows)
        if messages > MESSAGES_PER_OBJECT * objects:
            self.fail(f"{messages} messages wait for {objects} objects")


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
            _remember(self._allowed.setdefault(pool.name, deque()), allowed, self.now_ms())

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
        self._remember()

    def before(self, call: Call) -> None:
        if not (call.is_to("cluster", "delete") and call.args[0] == "nodeclaims"):
            return
        claim = self.world.cluster.find("nodeclaims", call.args[1].key)
        if claim is None or claim.metadata.deletion_timestamp is not None or self._goes_anyway(claim):
            return
        if call.kwargs.get("as_read") and call.args[1].resource_version != claim.metadata.resource_version:
            # The API server refuses it.
            return
        self._remember()
        for row in self.world.state.rows.values():
            if not isinstance(row, CommandRow) or row.candidate_uids.get(claim.name) != claim.metadata.uid:
                continue
            if row.phase == "waiting" and claim.name in row.candidates and row.replacements:
                self.checked += 1
                missing = set(row.replacements) - set(row.initialized_replacements) - self._initialized
                if missing and not (row.forced and self.now_ms() >= row.deadline):
                    self.fail(f"{claim.name} is deleted, and {', '.join(sorted(missing))} was not Initialized")

    def _remember(self) -> None:
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
            or id not in {instance.id for instance in _live(self.world)}
        )


class StormsChurnNothing(Invariant):
    """However many instances EC2 recommends to leave, so many nodes are replaced for that within any hour."""

    name = "rebalance recommendations replace few nodes an hour"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._created: dict[str, int] = {}
        self._nodes: deque[tuple[int, int]] = deque()

    def after(self, call: Call, answer: Any) -> None:
        """A table that was lost has forgotten what was replaced before."""
        if not call.is_to("state", "create") or not isinstance(row := call.args[0], CommandRow):
            return
        if row.reason != REBALANCED or row.id in self._created:
            return
        self._created[row.id] = row.created
        since = max(row.created - rebalance.WINDOW_MS, self.world.table_lost_at)
        lately = sum(1 for created in self._created.values() if created > since)
        allowed = rebalance.nodes_per_hour(max((count for _, count in self._nodes), default=0))
        if lately > allowed:
            self.fail(f"{lately} nodes are replaced for recommendations within an hour, {allowed} may be")

    def after_step(self) -> None:
        self.checked += any(row.phase == RECOMMENDED for row in self.world.state.rows.values())
        self._nodes.append((self.now_ms(), sum(claim.is_managed for claim in self.world.claims())))
        while self.now_ms() - self._nodes[0][0] > CARRIED_OUT_MS:
            self._nodes.popleft()


class LimitsKept(Invariant):
    """The nodes of a NodePool have no more cpu than its limits allow.

    As in Karpenter, without those that go, or were chosen to go.
    """

    name = "no NodePool limit is exceeded"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._limits: dict[str, deque[tuple[int, int]]] = {}

    def after_step(self) -> None:
        for pool in self.world.cluster.all("nodepools"):
            _remember(self._limits.setdefault(pool.name, deque()), pool.limits.get("cpu", 2**63), self.now_ms())

    def after(self, call: Call, answer: Any) -> None:
        if not call.is_to("ec2", "create_fleet") or self.is_table_lost():
            return
        self.checked += 1
        pool = _tag(call.args[0], labels.NODEPOOL)
        of_pool = [instance for instance in _live(self.world) if instance.tags[labels.NODEPOOL] == pool]
        used = sum(_cpu(self.world, instance) for instance in self._staying(of_pool))
        limit = max((value for _, value in self._limits.get(pool, ())), default=2**63)
        if used > limit:
            self.fail(f"NodePool {pool} has {used}m cpu, its limit is {limit}m")

    def _staying(self, instances: Iterable[Instance]) -> Iterator[Instance]:
        """Those of which a NodeClaim stays. Of new ones only the launch is known: as many as its NodeClaims need."""
        unassigned: dict[str, list[Instance]] = {}
        for instance in instances:
            row = self.world.state.rows.get(f"launch#{instance.tags.get(labels.LAUNCH_TAG, '')}")
            assigned = row.instances if isinstance(row, LaunchRow) else {}
            owners = [
                claim
                for claim in self.world.claims()
                if instance_id(claim.provider_id) == instance.id or assigned.get(claim.name) == instance.id
            ]
            if not owners and isinstance(row, LaunchRow):
                unassigned.setdefault(row.id, []).append(instance)
            elif not owners or not all(map(self._goes, owners)):
                yield instance
        for launch, new in unassigned.items():
            yield from new[: self._waiting(launch)]

    def _goes(self, claim: NodeClaim) -> bool:
        return is_going(self.world, claim) or is_chosen_to_go(self.world, claim)

    def _waiting(self, launch: str) -> int:
        """How many NodeClaims of a launch wait for their instance, and stay."""
        row = self.world.state.rows[f"launch#{launch}"]
        if not isinstance(row, LaunchRow):
            return 0
        names = set(row.claims) - row.instances.keys()
        waiting = [claim for claim in self.world.claims() if claim.name in names]
        return sum(not claim.provider_id and not is_going(self.world, claim) for claim in waiting)


class NothingTakenInOutages(Invariant):
    """While the API server, the table or EC2 does not answer, no instance ends and no Node of one that runs goes."""

    name = "nothing is removed while something does not answer"

    def before(self, call: Call) -> None:
        outages = " and ".join(sorted(self.world.outages.keys() & {"cluster", "state", "ec2"}))
        if not outages:
            return
        self.checked += 1
        if call.is_to("ec2", "terminate") and outages != "ec2":
            self.fail(f"terminate of {', '.join(call.args[0])} while {outages} does not answer")
        if call.is_to("cluster", "delete") and call.args[0] == "nodes" and self._runs(call.args[1].key):
            self.fail(f"deletion of node {call.args[1].key} while {outages} does not answer")
        if call.is_to("cluster", "delete") and call.args[0] == "nodeclaims" and outages == "state":
            claim = self.world.cluster.find("nodeclaims", call.args[1].key)
            if claim is not None and is_disrupted_by_choice(self.world, claim) and not self._leaves_anyway(claim):
                self.fail(f"deletion of {call.args[1].key} while {outages} does not answer")

    def _leaves_anyway(self, claim: NodeClaim) -> bool:
        """Whether somebody deletes its Node, as the cloud does when the instance has ended: then nobody chose that."""
        node = self.world.cluster.find("nodes", claim.node_name)
        return node is None or node.metadata.deletion_timestamp is not None

    def _runs(self, name: str) -> bool:
        node = self.world.cluster.find("nodes", name)
        return node is not None and instance_id(node.provider_id) in {instance.id for instance in _live(self.world)}


class UidsStated(Invariant):
    """Nothing is deleted or evicted by its name alone."""

    name = "what is deleted or evicted is named by its uid"

    def before(self, call: Call) -> None:
        if call.is_to("cluster", "delete", "evict"):
            self.checked += 1
            target = call.args[0].metadata if call.action == "evict" else call.args[1]
            if not target.uid:
                self.fail(f"{call.action} of {target.key} without a uid")


class NothingOverwritten(Invariant):
    """What is written is made from what is there: a row of its version, a decision of the version of the cluster."""

    name = "no write replaces what its writer has not seen"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._found: dict[str, int] = {}

    def before(self, call: Call) -> None:
        if call.is_to("state", "commit"):
            self._found[CLUSTER] = self.world.state.cluster_row.version
        elif call.is_to("state", "save"):
            key = sort_key(call.args[0])
            row = self.world.state.rows.get(key)
            self._found[key] = -1 if row is None else row.version

    def after(self, call: Call, answer: Any) -> None:
        if not call.is_to("state", "commit", "save"):
            return
        self.checked += 1
        seen = call.kwargs["expected_version"] if call.action == "commit" else call.args[0].version
        what = CLUSTER if call.action == "commit" else sort_key(call.args[0])
        found = self._found[what]
        if seen != found:
            self.fail(f"{what} was at version {found} and is replaced by what was made from version {seen}")


class InstancesEndFirst(Invariant):
    """A NodeClaim keeps its finalizer until its instance ends."""

    name = "no NodeClaim is let go before its instance ends"

    def before(self, call: Call) -> None:
        if not (call.is_to("cluster", "patch_metadata") and call.args[0] == "nodeclaims"):
            return
        if labels.FINALIZER in call.args[2].get("finalizers", (labels.FINALIZER,)):
            return
        self.checked += 1
        claim = self.world.cluster.find("nodeclaims", call.args[1].key)
        for instance in _live(self.world):
            if claim is not None and instance_id(claim.provider_id) == instance.id:
                self.fail(f"{claim.name} loses its finalizer and {instance.id} is {instance.state}")


class ErrorsAreAnswers(Invariant):
    """An invocation ends with an error of an API or with none."""

    name = "no function ends with an error of its own"

    def after_step(self) -> None:
        self.checked += 1
        for error in self.world.errors:
            self.fail(f"{type(error).__name__}: {error}")
        self.world.errors.clear()


INVARIANTS: Final[tuple[type[Invariant], ...]] = (
    NothingBoughtTwice, PodsPlannedOnce, NoLeak, EveryClaimEnds, NoPodWaits, NodesAreOpen, NoEmptyNode, RowsEnd,
    SurplusEnds, RowsAndMessagesBounded, PodsAreAsked, BudgetsKept, LimitsKept, NothingTakenInOutages, UidsStated,
    NothingOverwritten, InstancesEndFirst, ErrorsAreAnswers, OnlySickRepaired, StormsChurnNothing, ReplacementsFirst,
)  # fmt: skip


def is_going(world: CampaignWorld, claim: NodeClaim) -> bool:
    """Whether the claim is being deleted, or EC2 takes its instance back."""
    notice = world.state.rows.get(f"notice#{instance_id(claim.provider_id)}")
    return claim.metadata.deletion_timestamp is not None or (
        notice is not None and notice.phase not in (RECOMMENDED, SCHEDULED)
    )


def is_disrupted_by_choice(world: CampaignWorld, claim: NodeClaim, reasons: Collection[str] = BY_CHOICE) -> bool:
    """Whether a command takes the claim's node because it is empty, has drifted, or costs too much."""
    return any(
        isinstance(row, CommandRow)
        and row.phase == "waiting"
        and row.reason in reasons
        and claim.name in row.candidates
        for row in world.state.rows.values()
    )


def is_chosen_to_go(world: CampaignWorld, claim: NodeClaim) -> bool:
    """Whether a decision or a command that has not ended takes the claim by choice; plans count it as gone."""
    decided = [
        disruption.candidates
        for key in world.state.cluster_row.pending_decisions
        if key in world.blobs.bodies
        for disruption in decode_decision(world.blobs.bodies[key]).disruptions
        if disruption.reason in BY_CHOICE
    ]
    begun = [
        row.candidates
        for row in world.state.rows.values()
        if isinstance(row, CommandRow) and row.reason in BY_CHOICE and row.phase in ("planned", "waiting")
    ]
    return any(claim.name in names for names in (*decided, *begun))


def _live(world: CampaignWorld) -> tuple[Instance, ...]:
    return world.ec2.live_instances()


def _tag(request: Any, key: str) -> str:
    """The tag of the instances that a CreateFleet request asks for."""
    return next(
        (
            str(tag["Value"])
            for specification in request["TagSpecifications"]
            if specification["ResourceType"] == "instance"
            for tag in specification["Tags"]
            if tag["Key"] == key
        ),
        "",
    )


def _claim_of(world: CampaignWorld, node: Node) -> NodeClaim | None:
    return next((claim for claim in world.claims() if claim.provider_id == node.provider_id), None)


def _is_past_deadline(claim: NodeClaim, now_ms: int) -> bool:
    stated = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP)
    return stated is not None and datetime.fromisoformat(stated).timestamp() * 1000 <= now_ms


def _cpu(world: CampaignWorld, instance: Instance) -> int:
    types = {kind.name: kind for kinds in world.catalogs.catalog.by_nodeclass.values() for kind in kinds}
    return types[instance.instance_type].capacity["cpu"]


def _remember(values: deque[tuple[int, int]], value: int, now: int) -> None:
    """Keep the newest value, older ones until CARRIED_OUT_MS after they were replaced. An entry: last seen, value."""
    if values and values[-1][1] == value:
        values[-1] = (now, value)
    else:
        values.append((now, value))
    while values[0][0] < now - CARRIED_OUT_MS:
        values.popleft()
