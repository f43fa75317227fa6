"""What is not so at rest: claims that do not end, pods that wait, nodes that nobody needs, rows that stay."""

from collections.abc import Iterator
from typing import Any, Final

from spotwright.errors import InvalidRequest
from spotwright.model import labels
from spotwright.simulation.state import MAXIMUM_ITEM_BYTES
from spotwright.workflows.ports.rows import FINAL_PHASES, RECOMMENDED, SCHEDULED, LaunchRow, NominationRow, NoticeRow
from tests.campaign.calls import Call
from tests.campaign.invariants.invariant import Invariant
from tests.campaign.world import CampaignWorld

# More than this for each object that messages can be about is a flood.
MESSAGES_PER_OBJECT: Final = 40


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
