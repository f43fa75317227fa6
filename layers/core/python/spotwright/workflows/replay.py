"""Replay: decide again what was decided, from the stored snapshot and catalog, and compare."""

import msgspec

from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows import decisions
from spotwright.workflows.decisions import Decision
from spotwright.workflows.ports import BlobPort, CatalogPort
from spotwright.workflows.provision import code_digest, decide


class Replayed(msgspec.Struct, frozen=True):
    """A decision beside what the present code decides on the same snapshot.

    ``comparable``: whether the decision's plan is a function of snapshot and catalog alone; a disruption's is not
    replayed yet. ``same_code``: whether the code that decided is the code that replayed.
    """

    decision: Decision
    plan: Plan
    comparable: bool
    same_code: bool

    @property
    def agrees(self) -> bool:
        return self.plan == self.decision.plan


def replay(key: str, *, blobs: BlobPort, catalogs: CatalogPort) -> Replayed:
    """Decide again; raises NotFound when the decision, its snapshot or its catalog is gone."""
    decision = decisions.decode(blobs.get(key))
    snapshot = msgspec.json.decode(blobs.get(decision.snapshot), type=Snapshot)
    return Replayed(
        decision=decision,
        plan=decide(snapshot, catalogs.read(snapshot.catalog_key)),
        comparable=decision.kind == "provision",
        same_code=decision.code == code_digest(),
    )
