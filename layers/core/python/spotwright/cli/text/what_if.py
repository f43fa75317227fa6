"""What would be disrupted, as text and as a document for programs."""

from collections.abc import Iterator
from typing import Any, Final

from spotwright.cli.text.terminal import Terminal
from spotwright.disruption.what_if import PossibleMove, WhatIf
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.plurals import counted

type Json = dict[str, Any]

SCHEMA: Final = 1
_SHOWN: Final = 20


def what_if_to_text(found: WhatIf, terminal: Terminal, *, is_wide: bool) -> Iterator[str]:
    """A line that sums up, the moves with the largest saving first, then why the other nodes stay."""
    if found.nodes_needed:
        yield f"Nothing is disrupted: {counted(found.nodes_needed, 'new node')} must come for pending pods first."
        return
    if not found.moves:
        yield "No node would go."
    else:
        claims = sum(len(move.claims) for move in found.moves)
        bought = sum(len(move.new_nodes) for move in found.moves)
        evictions = sum(move.evictions for move in found.moves)
        yield (
            f"{counted(claims, 'node')} would go, {counted(bought, 'new node')} would come:"
            f" {_dollars(_monthly(found))} a month less, {counted(evictions, 'eviction')}."
        )
        yield ""
        yield terminal.heading("Moves")
        for move in sorted(found.moves, key=lambda move: (-move.dollars_per_month, move.claims)):
            yield from _move(move)
    if found.rollouts:
        yield ""
        yield terminal.heading("Roll-outs")
        for rollout in found.rollouts:
            yield f"  NodePool {rollout.nodepool}: {rollout.message}"
    if found.stays:
        yield ""
        yield terminal.heading("Nodes that stay")
        shown = found.stays if is_wide else found.stays[:_SHOWN]
        for stays in shown:
            yield f"  {stays.claim}: {stays.reason}"
        if len(shown) < len(found.stays):
            yield f"  and {len(found.stays) - len(shown)} more, with -o wide"


def _move(move: PossibleMove) -> Iterator[str]:
    names = ", ".join(node or claim for claim, node in zip(move.claims, move.nodes, strict=True))
    if move.new_nodes:
        kinds = ", ".join(
            f"{node.capacity_type} {node.instance_types[0]} at ${node.price_picousd_per_hour / PICOUSD:.4f}/h"
            for node in move.new_nodes
        )
        yield f"  {move.reason}: {names} → {kinds}"
    else:
        yield f"  {move.reason}: {names} → deleted"
    saving = move.saving_picousd_per_hour / PICOUSD
    yield (
        f"    {_dollars(move.dollars_per_month)} a month less (${move.price_picousd_per_hour / PICOUSD:.4f}/h →"
        f" ${move.price_picousd_per_hour / PICOUSD - saving:.4f}/h), {_evictions(move)}"
    )


def _evictions(move: PossibleMove) -> str:
    if not move.evictions:
        return "no evictions"
    each = f", {_dollars(move.dollars_per_month / move.evictions)} a month for each" if _saves(move) else ""
    return f"{counted(move.evictions, 'eviction')}{each}"


def _saves(move: PossibleMove) -> bool:
    return move.saving_picousd_per_hour > 0


def _monthly(found: WhatIf) -> float:
    return sum(move.dollars_per_month for move in found.moves)


def _dollars(amount: float) -> str:
    return f"-${-amount:,.2f}" if amount < 0 else f"${amount:,.2f}"


def what_if_document(found: WhatIf) -> Json:
    """The JSON document as a value; prices in USD."""
    return {
        "schema": SCHEMA,
        "summary": {
            "nodesGoing": sum(len(move.claims) for move in found.moves),
            "newNodes": sum(len(move.new_nodes) for move in found.moves),
            "evictions": sum(move.evictions for move in found.moves),
            "savingPerMonth": round(_monthly(found), 2),
            "nodesNeededFirst": found.nodes_needed,
        },
        "moves": [_move_document(move) for move in found.moves],
        "rollouts": [{"nodePool": rollout.nodepool, "message": rollout.message} for rollout in found.rollouts],
        "staying": [{"nodeClaim": stays.claim, "reason": stays.reason} for stays in found.stays],
    }


def _move_document(move: PossibleMove) -> Json:
    return {
        "reason": move.reason,
        "nodeClaims": list(move.claims),
        "nodes": list(move.nodes),
        "newNodes": [
            {
                "nodePool": node.nodepool,
                "capacityType": node.capacity_type,
                "instanceTypes": list(node.instance_types),
                "zones": list(node.zones),
                "pods": list(node.pods),
                "pricePerHour": node.price_picousd_per_hour / PICOUSD,
            }
            for node in move.new_nodes
        ],
        "evictions": move.evictions,
        "pricePerHour": move.price_picousd_per_hour / PICOUSD,
        "savingPerHour": move.saving_picousd_per_hour / PICOUSD,
        "savingPerMonth": round(move.dollars_per_month, 2),
    }
