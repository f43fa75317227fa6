"""Feature gates of a plan: what ``--feature-gates`` turns on, and objects without effect while their gate is off."""

from collections.abc import Sequence
from typing import Final

import msgspec

from spotwright.aws.instance_types.capacity import Overheads
from spotwright.cli import InputError
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.snapshot import CAPACITY_BUFFER, NODE_OVERLAY, NODE_REPAIR, SPOT_TO_SPOT_CONSOLIDATION, Snapshot
from spotwright.settings import FEATURE_GATES, NODE_CLASS_CEL, parse_feature_gates

_MAX_NAMES: Final = 3


class FeatureGates(msgspec.Struct, frozen=True):
    """``for_decision``: the gates of the setting FEATURE_GATES, in its form. ``notes``: sentences."""

    for_decision: str
    overheads: Overheads = Overheads()
    notes: tuple[str, ...] = ()


def read_feature_gates(given: str) -> FeatureGates:
    """The gates of ``--feature-gates``, those of Karpenter and of its AWS provider together; raises InputError."""
    from spotwright.errors import InvalidRequest

    try:
        gates = parse_feature_gates(given, (NODE_CLASS_CEL,))
    except InvalidRequest as error:
        raise InputError(f"--feature-gates: {error}") from None
    with_effect = {*FEATURE_GATES, NODE_CLASS_CEL} - {NODE_REPAIR, SPOT_TO_SPOT_CONSOLIDATION}
    without_effect = [gate for gate, is_on in gates.items() if is_on and gate not in with_effect]
    return FeatureGates(
        ",".join(f"{gate}={str(gates[gate]).lower()}" for gate in FEATURE_GATES),
        Overheads(nodeclass_cel=gates[NODE_CLASS_CEL]),
        tuple(
            f"feature gate {gate} has no effect: a plan of pods that wait disrupts no node" for gate in without_effect
        ),
    )


def drop_gated_objects(snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot without objects that the cluster would not look at; and sentences that say so."""
    kinds = {
        "nodeoverlays": (NODE_OVERLAY, "NodeOverlay", [overlay.metadata for overlay in snapshot.nodeoverlays]),
        "capacity_buffers": (CAPACITY_BUFFER, "CapacityBuffer", [each.metadata for each in snapshot.capacity_buffers]),
    }
    dropped = {
        field: _without_effect(kind, found, gate)
        for field, (gate, kind, found) in kinds.items()
        if found and gate not in snapshot.settings.feature_gates
    }
    return msgspec.structs.replace(snapshot, **dict.fromkeys(dropped, ())), tuple(dropped.values())


def _without_effect(kind: str, found: Sequence[ObjectMeta], gate: str) -> str:
    names = ", ".join(metadata.name for metadata in found[:_MAX_NAMES])
    more = f" and {len(found) - _MAX_NAMES} more" if len(found) > _MAX_NAMES else ""
    have = "has" if len(found) == 1 else "have"
    return (
        f"{kind} {names}{more} {have} no effect: the feature gate {gate} is off; turn it on with --feature-gates"
        f" {gate}=true"
    )
