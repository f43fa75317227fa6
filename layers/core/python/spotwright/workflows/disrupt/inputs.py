"""What a proposal and its validation both read: snapshot, plan, locked claims, and why nothing may be disrupted."""

from datetime import datetime
from typing import Final, Protocol

import msgspec

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import EMPTY, Decision, decode_decision
from spotwright.disruption import breaker, interruption
from spotwright.disruption.emptiness import Emptiness
from spotwright.errors import Conflict
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.plurals import counted
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.planning import time_budget
from spotwright.workflows.planning.launch_bounds import with_launch_bounds
from spotwright.workflows.planning.snapshot import instances_going
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.rows import EXPECTED, RECOMMENDED, SCHEDULED, ClusterRow, CommandRow, epoch_ms

# Karpenter's validation delay: a node must still be empty after it.
VALIDATION_SECONDS: Final = 15
# A proposal that was not validated within this time is dropped, milliseconds.
PROPOSAL_MS: Final = 120_000
# Phases of notices that keep no claim from being disrupted.
_LOCKING_NOTHING: Final = frozenset((RECOMMENDED, SCHEDULED, EXPECTED))


class DisruptResult(msgspec.Struct, frozen=True):
    """What an evaluation or validation did. ``obstacle``: why nothing may be disrupted at all, "" = it may.

    ``reason``: Empty, Drifted or Underutilized, of what was proposed or committed. ``details``: what it is worth, and
    why nodes stay that are not empty, the first of them.
    """

    obstacle: str = ""
    breaker_open: bool = False
    reason: str = ""
    proposed: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    emptiness: Emptiness = Emptiness()
    details: tuple[str, ...] = ()


class Gather(Protocol):
    """``gather`` or ``gather_live`` of planning. Raises NotListedError where the cluster is not to be listed now."""

    def __call__(self, ports: ProvisionPorts, row: ClusterRow, /, *, now: datetime) -> Snapshot: ...


def gather_and_plan(
    ports: ProvisionPorts, gather: Gather, now: datetime, seconds_left: SecondsLeft
) -> tuple[Snapshot, Plan, str]:
    """What ``gather`` reads, where pending pods would go, and why nothing may be disrupted.

    Replacements are held to the ceilings of launches, where they are proposed as well as where they are committed: what
    a ceiling holds back is not read live. Pods come first, whose plan is asked for without ceilings.
    """
    state = ports.state.cluster()
    snapshot = _without_empty_nodes_going(ports, state, gather(ports, state, now=now))
    if state.disruption_held_by:
        return snapshot, Plan(), state.disruption_held_by
    if not snapshot.catalog_key:
        return snapshot, Plan(), "the instance catalog is not there yet"
    unlaunched = [
        nodeclaim.name
        for nodeclaim in snapshot.nodeclaims
        if not nodeclaim.provider_id and nodeclaim.metadata.deletion_timestamp is None
    ]
    unlaunched += [in_flight.nodeclaim.name for in_flight in snapshot.in_flight]
    if unlaunched:
        return snapshot, Plan(), f"waiting for the launch of NodeClaims {', '.join(sorted(unlaunched))}"
    fitted, left_out = time_budget.fit(snapshot, seconds_left)
    if left_out:
        return snapshot, Plan(), f"time ran out before {left_out} of the pending pods were placed"
    plan = decide(fitted, ports.catalogs.read(fitted.catalog_key))
    return with_launch_bounds(fitted, state, ports.state), plan, ""


def _without_empty_nodes_going(ports: ProvisionPorts, state: ClusterRow, snapshot: Snapshot) -> Snapshot:
    """Empty nodes that were decided to go are no place for pods that would have to move; see ``gather``."""
    decisions = tuple(decode_decision(ports.blobs.get(key)) for key in state.pending_decisions)
    going = instances_going(snapshot, decisions, ports.state.commands(), (EMPTY,))
    return interruption.mark_deleting(snapshot, going) if going else snapshot


def locked_claims(ports: ProvisionPorts, snapshot: Snapshot, *, but: str = "") -> frozenset[str]:
    """Claims that a proposal, a command or a committed decision names, and those with an interruption notice.

    A notice that is left to ``disrupt`` locks no claim: it says nothing against other reasons to replace it. One of an
    expected end is of a claim that is being deleted.
    """
    names = {name for row in ports.state.commands() if row.id != but for name in row.candidates}
    for decision in _pending(ports):
        names |= set(decision.candidates)
    interrupted = {row.instance_id for row in ports.state.notices() if row.phase not in _LOCKING_NOTHING}
    names |= {claim.name for claim in snapshot.nodeclaims if instance_id(claim.provider_id) in interrupted}
    return frozenset(names)


def _pending(ports: ProvisionPorts) -> list[Decision]:
    """Committed decisions without rows yet."""
    return [decode_decision(ports.blobs.get(key)) for key in ports.state.cluster().pending_decisions]


def buying(plan: Plan) -> str:
    """Why nodes with pods are left alone while nodes are being bought for others; "" = none is."""
    if not plan.new_nodes:
        return ""
    number = len(plan.new_nodes)
    return f"{counted(number, 'node')} {'is' if number == 1 else 'are'} needed for pending pods first"


def admit(ports: ProvisionPorts, snapshot: Snapshot, id: str, wanted: int) -> tuple[int, bool]:
    """How many nodes the breaker admits, counted before they are committed; and whether it is open from now on."""
    before, now = ports.state.breaker(), epoch_ms(snapshot.now)
    total, percent = sum(claim.is_managed for claim in snapshot.nodeclaims), snapshot.settings.breaker_percent
    admission = breaker.admit(before, id, wanted, total=total, percent=percent, now=now)
    if wanted and admission.breaker != before:
        ports.state.save_breaker(admission.breaker)
    return admission.nodes, breaker.is_open(admission.breaker, now)


def abort_proposal(ports: ProvisionPorts, row: CommandRow) -> bool:
    """Give a proposal up, unless it is committed: its row becomes the command, whose nodes are being bought then.

    False when it was not given up here.
    """
    if any(row.id == disruption.id for decision in _pending(ports) for disruption in decision.disruptions):
        return False
    try:
        ports.state.save(msgspec.structs.replace(row, phase="aborted", moves=(), due=0))
    except Conflict:
        # Another validation of the same proposal was first.
        return False
    return True
