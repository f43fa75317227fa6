"""What is bought: nothing twice, for no pod twice, within limits; and what is too much goes."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from spotwright.decisions.decision import REBALANCED, decode_decision
from spotwright.disruption import rebalance
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows.ports.rows import FINAL_PHASES, RECOMMENDED, SCHEDULED, CommandRow, LaunchRow, NominationRow
from tests.campaign.calls import Call
from tests.campaign.invariants.invariant import BY_CHOICE, CARRIED_OUT_MS, Invariant, live, remember
from tests.campaign.world import CampaignWorld


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
        running = [instance.id for instance in live(self.world) if instance.tags.get(labels.LAUNCH_TAG) == launch]
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
        instances = {instance.id for instance in live(self.world)}
        claims = Counter(instance_id(claim.provider_id) for claim in self.world.claims() if claim.provider_id)
        nodes = Counter(instance_id(node.provider_id) for node in self.world.cluster.all("nodes"))
        for instance in sorted(instances | claims.keys() | nodes.keys()):
            found = (int(instance in instances), claims[instance], nodes[instance])
            if found != (1, 1, 1):
                yield f"instance {instance}: {found[0]} running, {found[1]} NodeClaims, {found[2]} Nodes"


class SurplusEnds(Invariant):
    """A launch becomes history when none of its instances runs without a NodeClaim: nothing but its row knows them."""

    name = "no launch ends while it has instances without a NodeClaim"

    def after(self, call: Call, answer: Any) -> None:
        row = call.args[0] if call.is_to("state", "save") else None
        if not isinstance(row, LaunchRow) or row.phase != "done" or row.due:
            return
        self.checked += 1
        used = {instance_id(claim.provider_id) for claim in self.world.claims()} | self.world.torn_out
        for instance in live(self.world):
            if instance.tags.get(labels.LAUNCH_TAG) == row.id and instance.id not in used:
                self.fail(f"launch {row.id} ends, and {instance.id} is {instance.state} without a NodeClaim")


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
            remember(self._limits.setdefault(pool.name, deque()), pool.limits.get("cpu", 2**63), self.now_ms())

    def after(self, call: Call, answer: Any) -> None:
        if not call.is_to("ec2", "create_fleet") or self.is_table_lost():
            return
        self.checked += 1
        pool = _tag(call.args[0], labels.NODEPOOL)
        of_pool = [instance for instance in live(self.world) if instance.tags[labels.NODEPOOL] == pool]
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


def is_going(world: CampaignWorld, claim: NodeClaim) -> bool:
    """Whether the claim is being deleted, or EC2 takes its instance back."""
    notice = world.state.rows.get(f"notice#{instance_id(claim.provider_id)}")
    return claim.metadata.deletion_timestamp is not None or (
        notice is not None and notice.phase not in (RECOMMENDED, SCHEDULED)
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


def _cpu(world: CampaignWorld, instance: Instance) -> int:
    types = {kind.name: kind for kinds in world.catalogs.catalog.by_nodeclass.values() for kind in kinds}
    return types[instance.instance_type].capacity["cpu"]
