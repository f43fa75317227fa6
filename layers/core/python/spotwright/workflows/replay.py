"""Replay: decide again what was decided, from the stored snapshot and catalog, and compare."""

import msgspec

from spotwright.disruption import emptiness
from spotwright.failures import InvalidRequest
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows import decisions
from spotwright.workflows.decisions import Decision
from spotwright.workflows.ports import BlobPort, CatalogPort
from spotwright.workflows.provision import code_digest, decide


class Replayed(msgspec.Struct, frozen=True):
    """A decision beside what the present code decides on the same snapshot.

    ``plan``: what is decided now; of an interruption, for the snapshot without the node that goes. ``kept``: nodes that
    a disruption took and that would stay now. ``same_code``: whether the code that decided is the code that replayed.
    """

    decision: Decision
    plan: Plan
    same_code: bool
    kept: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return self.plan == self.decision.plan and not self.kept


def replay(key: str, *, blobs: BlobPort, catalogs: CatalogPort) -> Replayed:
    """Decide again; raises NotFound when the decision, its snapshot or its catalog is gone."""
    decision = decisions.decode(blobs.get(key))
    snapshot = msgspec.json.decode(blobs.get(decision.snapshot), type=Snapshot)
    plan, same = decide(snapshot, catalogs.read(snapshot.catalog_key)), decision.code == code_digest()
    match decision.kind:
        case "provision" | "interrupt":
            return Replayed(decision, plan, same)
        case "disrupt":
            return Replayed(decision, Plan(), same, _kept(decision, snapshot, plan))
        case "scale-down":
            return Replayed(decision, Plan(excess_nodeclaims=plan.excess_nodeclaims), same)
        case other:
            known = "provision, interrupt, disrupt, scale-down"
            raise InvalidRequest(f"decision {decision.id}: kind {other!r} is not one of {known}")


def _kept(decision: Decision, snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Candidates that would stay. Others might have gone too: a proposal or the breaker left them out."""
    assert decision.disruption is not None
    found = emptiness.find_empty_nodes(snapshot, plan, locked=frozenset(decision.disruption.locked))
    return tuple(name for name in decision.disruption.candidates if name not in found.claims)
