"""Who comes first when limits leave no room for all: higher priority, then age."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from spotwright.model.kubernetes.pod import Pod

# Pods of one priority are told apart by age as finely as this many steps allow: each step is a round of packing.
_STEPS: Final = 32
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

type PriorityKey = tuple[int, datetime]


def priority_key(pod: Pod) -> PriorityKey:
    """Smaller comes first."""
    return -pod.priority, pod.metadata.creation_timestamp or _LONG_AGO


def priority_batches(pods: Iterable[Pod]) -> list[list[Pod]]:
    """The pods in steps, first come first; a step never mixes priorities."""
    by_rank: dict[PriorityKey, list[Pod]] = {}
    for pod in pods:
        by_rank.setdefault(priority_key(pod), []).append(pod)
    together = -(-len(by_rank) // _STEPS)
    found: list[list[Pod]] = []
    last, held = 0, 0
    for key in sorted(by_rank):
        if not found or key[0] != last or held == together:
            found.append([])
            held = 0
        found[-1] += by_rank[key]
        last, held = key[0], held + 1
    return found


def violates_priority(left: Sequence[Pod], placed: Iterable[Pod]) -> bool:
    """True when somebody was placed though somebody who comes first was left."""
    if not left:
        return False
    first = min(map(priority_key, left))
    return any(priority_key(pod) > first for pod in placed)
