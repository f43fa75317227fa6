"""Evictions that PodDisruptionBudgets refuse: when the API server is asked again for a pod that they select.

All draining nodes of a cluster share the answer, so that two hundred nodes that wait for the same budget ask for a
single pod. Karpenter asks for each pod by itself.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from spotwright.model.kubernetes.eviction import meets_expressions, select_budgets
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.requirements import NodeSelectorRequirement

# A refused eviction is tried again after so long, then after as long as it has been refused until then.
FIRST_RETRY: Final = timedelta(seconds=2)
# Karpenter's longest as well (pkg/controllers/node/termination/terminator/eviction.go).
LONGEST_RETRY: Final = timedelta(seconds=10)
# Nobody has asked for so long: what was refused then says nothing now.
FORGOTTEN: Final = timedelta(seconds=60)
# So long the budgets are relied on to select what they selected.
BUDGETS_HOLD: Final = timedelta(seconds=30)


class RefusedEvictions(msgspec.Struct, frozen=True):
    """What PodDisruptionBudgets refuse, all of which select the same pods: several only where a pod has several.

    ``budgets``: names; ``selectors``: theirs, in the same order. ``ready``: whether it was a Ready pod, since budgets
    may make an exception for others. ``since_ms``: of the first refusal, 0 = evictions succeed again; ``retry_at_ms``:
    until then nobody asks; ``read_at_ms``: when the budgets were read; all epoch milliseconds. ``version``: optimistic
    lock, 0 = there is no row.
    """

    namespace: str
    budgets: tuple[str, ...]
    selectors: tuple[tuple[NodeSelectorRequirement, ...], ...]
    ready: bool
    since_ms: int = 0
    retry_at_ms: int = 0
    read_at_ms: int = 0
    version: int = 0
    schema: int = 1

    @property
    def key(self) -> str:
        """Whose evictions are meant; a slash is in no name of Kubernetes."""
        return "/".join((self.namespace, *self.budgets, "ready" if self.ready else "unready"))

    def concerns(self, pod: Pod) -> bool:
        """Whether the pod's eviction would be refused as well, as far as is known."""
        return (
            self.since_ms > 0
            and is_asked_for(pod)
            and (pod.metadata.namespace, pod.is_ready) == (self.namespace, self.ready)
            and all(meets_expressions(selector, pod.metadata.labels) for selector in self.selectors)
        )

    def is_due(self, now: datetime) -> bool:
        """Whether it is time to ask again. A time further away than any wait is of a clock that is wrong."""
        return not timedelta(0) < self.retry_at - now <= LONGEST_RETRY

    def are_budgets_old(self, now: datetime) -> bool:
        """Whether the budgets may select other pods by now, and must be read again."""
        return abs(now - _time(self.read_at_ms)) >= BUDGETS_HOLD

    @property
    def retry_at(self) -> datetime:
        return _time(self.retry_at_ms)


def find_refusal(pod: Pod, known: Iterable[RefusedEvictions]) -> RefusedEvictions | None:
    """The refusal that concerns a pod; the one with most budgets, which says nothing of pods with one of them."""
    return max((refused for refused in known if refused.concerns(pod)), key=_budget_count, default=None)


def _budget_count(refused: RefusedEvictions) -> int:
    return len(refused.budgets)


def is_asked_for(pod: Pod) -> bool:
    """Whether PodDisruptionBudgets are asked for the pod's eviction; a pod that does not run yet goes without."""
    return pod.phase != "Pending"


def refuse(pod: Pod, budgets: Iterable[PodDisruptionBudget], now: datetime) -> RefusedEvictions | None:
    """The first refusal, of a pod's eviction; None where no budget selects the pod: then the API server had no time.

    ``budgets``: as they are now.
    """
    selecting = select_budgets(pod, budgets) if is_asked_for(pod) else ()
    if not selecting:
        return None
    names = tuple(budget.metadata.name for budget in selecting)
    selectors = tuple(budget.selector or () for budget in selecting)
    return RefusedEvictions(
        namespace=pod.metadata.namespace,
        budgets=names,
        selectors=selectors,
        ready=pod.is_ready,
        since_ms=_milliseconds(now),
        retry_at_ms=_milliseconds(now + FIRST_RETRY),
        read_at_ms=_milliseconds(now),
    )


def ask_again(refused: RefusedEvictions, now: datetime) -> RefusedEvictions:
    """The refusal while somebody asks again now; everybody else waits until its next time."""
    since = _time(refused.since_ms)
    if since > now or now - refused.retry_at > FORGOTTEN:
        since = now
    wait = min(LONGEST_RETRY, max(FIRST_RETRY, now - since))
    return msgspec.structs.replace(refused, since_ms=_milliseconds(since), retry_at_ms=_milliseconds(now + wait))


def with_budgets_of(refused: RefusedEvictions, current: RefusedEvictions) -> RefusedEvictions:
    """The refusal with what the same budgets select now."""
    return msgspec.structs.replace(refused, selectors=current.selectors, read_at_ms=current.read_at_ms)


def end_refusal(refused: RefusedEvictions) -> RefusedEvictions:
    """The same when an eviction succeeded: everybody may ask."""
    return msgspec.structs.replace(refused, since_ms=0)


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _time(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
