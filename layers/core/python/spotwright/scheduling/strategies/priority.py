"""Which pods are placed first where limits allow nodes for only some: those of higher priority, then the older."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from spotwright.model.kubernetes.pod import Pod

# About so many batches at most, because every batch is packed by itself: pods of similar age share a batch.
_MAX_BATCHES: Final = 32
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

type PriorityKey = tuple[int, datetime]


def priority_key(pod: Pod) -> PriorityKey:
    """A pod with a smaller key comes first."""
    return -pod.priority, pod.metadata.creation_timestamp or _LONG_AGO


def priority_batches(pods: Iterable[Pod]) -> list[list[Pod]]:
    """The pods in batches, in order of priority and age; all pods of a batch have the same priority."""
    by_key: dict[PriorityKey, list[Pod]] = {}
    for pod in pods:
        by_key.setdefault(priority_key(pod), []).append(pod)
    keys_per_batch = -(-len(by_key) // _MAX_BATCHES)
    batches: list[list[Pod]] = []
    last_priority, key_count = 0, 0
    for key in sorted(by_key):
        if not batches or key[0] != last_priority or key_count == keys_per_batch:
            batches.append([])
            key_count = 0
        batches[-1] += by_key[key]
        last_priority, key_count = key[0], key_count + 1
    return batches


def violates_priority(unplaced: Sequence[Pod], placed: Iterable[Pod]) -> bool:
    """True when a pod was placed that comes after an unplaced pod."""
    if not unplaced:
        return False
    first = min(map(priority_key, unplaced))
    return any(priority_key(pod) > first for pod in placed)
