"""Replay: decide again what was decided, from the stored snapshot and catalog, and compare."""

import msgspec

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import Decision, decode_decision
from spotwright.disruption import consolidation, drift, emptiness, rebalance, scheduled_change
from spotwright.errors import InvalidRequest
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.quoting import quote
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.planning.code_digest import code_digest
from spotwright.workflows.ports.state import BlobPort, InstanceCatalogPort


class ReplayResult(msgspec.Struct, frozen=True):
    """A decision beside what the present code decides on the same snapshot.

    ``plan``: what is decided now; of an interruption, for the snapshot without the node that goes. ``kept_claims``:
    nodes that a disruption took and that would stay now. ``same_code``: whether the code that decided is the code that
    replayed.
    """

    decision: Decision
    plan: Plan
    same_code: bool
    kept_claims: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return self.plan == self.decision.plan and not self.kept_claims


def replay(key: str, *, blobs: BlobPort, catalogs: InstanceCatalogPort) -> ReplayResult:
    """Decide again; raises NotFound when the decision, its snapshot or its catalog is no longer stored."""
    decision = decode_decision(blobs.get(key))
    snapshot = msgspec.json.decode(blobs.get(decision.snapshot_key), type=Snapshot)
    catalog, same_code = catalogs.read(snapshot.catalog_key), decision.code_digest == code_digest()
    reasons = {disruption.reason for disruption in decision.disruptions}
    if decision.kind == "disrupt" and reasons == {consolidation.REASON}:
        return ReplayResult(decision, *_consolidated(decision, snapshot, catalog, same_code))
    if decision.kind == "disrupt" and reasons == {rebalance.REASON}:
        plan, kept = rebalance.judge_again(snapshot, catalog, decision.candidates)
        return ReplayResult(decision, plan, same_code, kept)
    plan = decide(snapshot, catalog)
    if decision.kind == "disrupt" and reasons in ({drift.REASON}, {scheduled_change.REASON}):
        return ReplayResult(decision, plan, same_code)
    match decision.kind:
        case "provision" | "interrupt":
            return ReplayResult(decision, plan, same_code)
        case "disrupt":
            return ReplayResult(decision, Plan(), same_code, _kept_claims(decision, snapshot, plan))
        case "scale-down":
            return ReplayResult(decision, Plan(excess_nodeclaims=plan.excess_nodeclaims), same_code)
        case kind:
            kinds = "provision, interrupt, disrupt, scale-down"
            raise InvalidRequest(f"decision {decision.id}: kind {quote(kind)} is not one of {kinds}")


def _consolidated(
    decision: Decision, snapshot: Snapshot, catalog: Catalog, same_code: bool
) -> tuple[Plan, bool, tuple[str, ...]]:
    plan, kept = consolidation.judge_again(snapshot, catalog, decision.candidates)
    return plan, same_code, kept


def _kept_claims(decision: Decision, snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Candidates that would stay now. Further empty nodes do not count: proposal or breaker left them out."""
    locked = frozenset(name for disruption in decision.disruptions for name in disruption.locked_claims)
    empty_nodes = emptiness.find_empty_nodes(snapshot, plan, locked=locked)
    return tuple(name for name in decision.candidates if name not in empty_nodes.claims)
