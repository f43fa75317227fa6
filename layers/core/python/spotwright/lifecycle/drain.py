"""Draining a node: which pods are evicted now, which are deleted by force, and which the drain waits for.

Source: Karpenter v1.14 ``pkg/controllers/node/termination/terminator``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget

CRITICAL_CLASSES: Final = ("system-cluster-critical", "system-node-critical")
# A drain lasts at least this long, so that it includes pods bound just before the taint.
MINIMUM_DRAIN: Final = timedelta(seconds=5)
# Until the pod that takes another's place is Ready, and a PodDisruptionBudget lets the next one go.
REPLACED_SECONDS: Final = 10
# What a plan for the pods of a deleted node and its CreateFleet take; evictions wait so long for them.
PLANNING_PERIOD: Final = timedelta(seconds=3)


class ForcedDelete(msgspec.Struct, frozen=True):
    """A pod whose full grace period would outlast the node's deadline; ``grace_seconds`` is at least 1."""

    pod: Pod
    grace_seconds: int


class Drain(msgspec.Struct, frozen=True):
    """``waiting``: pods that the drain waits for, by key. ``evict``: pods of the first tier that still has pods.

    ``next_forced_deletion``: when the next forced deletion is due; None = there is none.
    """

    waiting: tuple[Pod, ...] = ()
    evict: tuple[Pod, ...] = ()
    delete: tuple[ForcedDelete, ...] = ()
    next_forced_deletion: datetime | None = None


def drain(
    pods: Iterable[Pod],
    *,
    deadline: datetime | None,
    now: datetime,
    tier_deadlines: Mapping[int, datetime] = MappingProxyType({}),
) -> Drain:
    """``pods``: the pods of a node. ``deadline``: when its instance is terminated at the latest; None = no deadline.

    ``tier_deadlines``: by tier, when its pods must have stopped so that later tiers have their time; absent = deadline.
    """
    waiting = tuple(sorted((pod for pod in pods if eviction.is_waiting_eviction(pod, now)), key=lambda pod: pod.key))
    if not waiting:
        return Drain()
    delete = tuple(
        ForcedDelete(pod, _forced_grace_seconds(pod, deadline, now))
        for pod in waiting
        if deadline is not None and _must_force(pod, deadline, tier_deadlines.get(tier(pod), deadline), now)
    )
    lowest = min(tier(pod) for pod in waiting)
    forced = {forced_delete.pod.key for forced_delete in delete}
    evict = tuple(
        sorted(
            (
                pod
                for pod in waiting
                if tier(pod) == lowest and pod.key not in forced and eviction.is_evictable(pod, now)
            ),
            key=partial(_order, Counter(map(_controller, waiting))),
        )
    )
    return Drain(waiting, evict, delete, _next_forced_deletion(waiting, deadline, tier_deadlines, now))


def evicts_before_plan(drain: Drain, *, deadline: datetime | None, now: datetime) -> bool:
    """Whether evictions begin at once, although nobody has planned for the pods yet.

    So it is where no pod will come back and need another node, and where the pods need all the time that is left until
    the deadline.
    """
    if drain.delete or not any(eviction.is_reschedulable(pod) and _comes_back(pod) for pod in drain.evict):
        return True
    needed = PLANNING_PERIOD + timedelta(seconds=seconds_needed(drain.waiting, (), now))
    return deadline is not None and now + needed > deadline


def _comes_back(pod: Pod) -> bool:
    """Whether a controller replaces the pod; one that nobody owns is gone when it is evicted."""
    return bool(pod.metadata.owner_references)


def tier(pod: Pod) -> int:
    """0 to 3: pods of a tier are evicted when no pod of an earlier tier is left."""
    return 2 * (pod.priority_class_name in CRITICAL_CLASSES) + eviction.is_owned_by_daemonset(pod)


def _order(replicas: Mapping[str, int], pod: Pod) -> tuple[bool, int, int, str]:
    """Which pods of a tier are evicted first: those that serve nobody, for which a budget may make an exception; then
    those that take longest to stop, and those of which no other replica is here. Budgets may let only the first go.

    Replicas on other nodes are not known: the only pod of ten that is here comes no later than one that is alone.
    """
    return pod.is_ready, -pod.termination_grace_period_seconds, replicas[_controller(pod)], pod.key


def _controller(pod: Pod) -> str:
    """The uid of the pod's owner; of a pod without one, its own key."""
    return next((owner.uid for owner in pod.metadata.owner_references), pod.key)


def seconds_needed(pods: Iterable[Pod], budgets: Iterable[PodDisruptionBudget], now: datetime) -> int:
    """How long the pods of a node need to stop in order, each with its whole grace period.

    Tiers follow one another. Of the pods that a PodDisruptionBudget selects, so many go at a time as it allows now,
    and their successors take REPLACED_SECONDS to be Ready; a budget that allows none is counted as if it allowed one.
    One that cannot be read is not counted: it would select all pods of its namespace, and their drain begin at once.
    """
    waiting = [pod for pod in pods if eviction.is_waiting_eviction(pod, now)]
    known = tuple(budgets)
    return sum(
        _tier_seconds([pod for pod in waiting if tier(pod) == number], known)
        for number in sorted(set(map(tier, waiting)))
    )


def _tier_seconds(pods: Iterable[Pod], budgets: Sequence[PodDisruptionBudget]) -> int:
    """The pods without a budget stop together; those of a budget in rounds, beside them."""
    together, rounds = 0, dict[str, list[int]]()
    allowed = {budget.metadata.key: max(1, budget.disruptions_allowed) for budget in budgets}
    for pod in pods:
        together = max(together, pod.termination_grace_period_seconds)
        for budget in (selecting for selecting in eviction.select_budgets(pod, budgets) if not selecting.read_error):
            rounds.setdefault(budget.metadata.key, []).append(pod.termination_grace_period_seconds)
    return max([together, *(_rounds_seconds(grace, allowed[key]) for key, grace in rounds.items())])


def _rounds_seconds(grace_seconds: Iterable[int], at_once: int) -> int:
    """``at_once`` pods at a time, the longest first."""
    longest = sorted(grace_seconds, reverse=True)[::at_once]
    return sum(longest) + REPLACED_SECONDS * (len(longest) - 1)


def forced_deletion_time(pod: Pod, deadline: datetime) -> datetime:
    """The last moment at which a deletion leaves the pod its whole grace period."""
    return deadline - timedelta(seconds=pod.termination_grace_period_seconds)


def tier_deadlines(pods: Iterable[Pod], deadline: datetime, now: datetime) -> dict[int, datetime]:
    """By tier, when its pods must have stopped for the pods of later tiers to have their grace periods until
    ``deadline``. Nothing is reserved for pods that are told to stop by now."""
    longest: dict[int, int] = {}
    for pod in pods:
        if eviction.is_waiting_eviction(pod, now):
            is_told = pod.metadata.deletion_timestamp is not None or now > forced_deletion_time(pod, deadline)
            needed = 0 if is_told else pod.termination_grace_period_seconds
            longest[tier(pod)] = max(longest.get(tier(pod), 0), needed)
    deadlines: dict[int, datetime] = {}
    for number in sorted(longest, reverse=True):
        deadlines[number] = deadline
        deadline -= timedelta(seconds=longest[number])
    return deadlines


def _must_force(pod: Pod, deadline: datetime, tier_deadline: datetime, now: datetime) -> bool:
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_timestamp > deadline
    return now > forced_deletion_time(pod, tier_deadline)


def _forced_grace_seconds(pod: Pod, deadline: datetime, now: datetime) -> int:
    """What is left until the deadline, and no more than the pod asks for."""
    left = math.floor((deadline - now).total_seconds())
    return max(min(left, pod.termination_grace_period_seconds), 1)


def _next_forced_deletion(
    waiting: tuple[Pod, ...], deadline: datetime | None, tier_deadlines: Mapping[int, datetime], now: datetime
) -> datetime | None:
    if deadline is None:
        return None
    times = (forced_deletion_time(pod, tier_deadlines.get(tier(pod), deadline)) for pod in waiting)
    return min((at for at in times if at >= now), default=None)
