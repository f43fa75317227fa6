"""Drifted nodes, replaced as far as the budgets of their NodePools allow.

Source: Karpenter v1.14 ``pkg/controllers/disruption/drift.go``: nodes without pods first, then by how long they have
been drifted. Its difference: it replaces one node in each pass, of which the next begins at once. Nodes of static
NodePools go with the others; see ``static_drift``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from spotwright.decisions.decision import DRIFTED
from spotwright.disruption import simulation, static_drift
from spotwright.disruption.candidates import Blocked, Candidate, build_candidates, from_another, within_budgets
from spotwright.disruption.rollouts import REPLACEMENT_TIMEOUT, Phase, Rollout, find_destinations, since_when
from spotwright.disruption.simulation import Simulation
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan

REASON: Final = DRIFTED
# Nodes that are replaced at once; others follow in the next evaluation.
MAXIMUM_CANDIDATES: Final = 100
# Nodes that drifted within so long of each other did so for the same change.
TOGETHER: Final = timedelta(minutes=5)
# A trial without the nodes whose pods had no place follows; so many in an evaluation. The last one begins anywhere.
MAXIMUM_TRIALS: Final = 6


class DriftReplacement(msgspec.Struct, frozen=True):
    """``candidates``: drifted nodes to replace now. ``blocked``: those that may not be, or have no replacement.

    ``snapshot``: the cluster without the candidates; ``plan``: what is decided for it.
    """

    candidates: tuple[Candidate, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    snapshot: Snapshot | None = None
    plan: Plan = Plan()


def replace_drifted(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    *,
    locked: frozenset[str],
    only: Collection[str] | None = None,
    rollouts: Mapping[str, Rollout] = MappingProxyType({}),
    has_time: Callable[[], bool] = lambda: True,
) -> DriftReplacement:
    """Which drifted nodes go now, MAXIMUM_CANDIDATES at most, and where their pods go.

    ``plan``: where pending pods go, without new nodes. ``only``: names of NodeClaims, None = any. ``rollouts``: by
    NodePool; of others budgets alone count.
    ``has_time``: asked before each further trial; without time nothing is replaced now.
    """
    drifted = [
        claim for claim in snapshot.nodeclaims if _is_drifted(claim, locked) and (only is None or claim.name in only)
    ]
    candidates, blocked = build_candidates(snapshot, plan, drifted, catalog, ignores_pods_with_grace_period=True)
    candidates, stopped = _of_running_rollouts(candidates, rollouts)
    blocked += stopped
    # A replacement that has failed keeps no other one from being bought.
    settled = simulation.close_late_nodes(simulation.settle(snapshot, plan), within=REPLACEMENT_TIMEOUT)
    destinations = find_destinations(snapshot, rollouts) if rollouts else {}
    failures, waiting = dict[str, str](), list[Blocked]()
    for number in range(MAXIMUM_TRIALS):
        if number and not has_time():
            break
        ordered = _in_order(simulation.without(candidates, failures.keys()))
        if number == MAXIMUM_TRIALS - 1:
            ordered = from_another(ordered, snapshot.now)
        ordered, waiting = static_drift.within_limits(ordered, snapshot)
        left, _ = within_budgets(ordered, snapshot, REASON, locked=locked, maximum=MAXIMUM_CANDIDATES)
        if not left:
            break
        trial = simulation.simulate(settled, left, catalog)
        first = _canaries_first(left, trial.plan, rollouts, destinations)
        if len(first) < len(left):
            left, trial = first, simulation.simulate(settled, first, catalog)
        found = _failures(left, trial) | _held_by_others(left, trial.plan, rollouts, destinations)
        if not found:
            blocked_claims = _all_blocked((*blocked, *waiting), failures)
            return DriftReplacement(tuple(left), blocked_claims, trial.snapshot, trial.plan)
        failures |= found
    return DriftReplacement(blocked=_all_blocked((*blocked, *waiting), failures))


def _of_running_rollouts(
    candidates: Iterable[Candidate], rollouts: Mapping[str, Rollout]
) -> tuple[list[Candidate], list[Blocked]]:
    """The candidates whose roll-out goes on; of those that wait, whose roll-out has stopped, and why."""
    allowed, stopped = list[Candidate](), list[Blocked]()
    for candidate in candidates:
        rollout = rollouts.get(candidate.pool.name)
        if rollout is None or rollout.phase in (Phase.CANARY, Phase.REPLACING):
            allowed.append(candidate)
        elif rollout.is_stopped:
            stopped.append(Blocked(candidate.name, rollout.message))
    return allowed, stopped


def _canaries_first(
    candidates: Sequence[Candidate], plan: Plan, rollouts: Mapping[str, Rollout], destinations: Mapping[str, Rollout]
) -> list[Candidate]:
    """Where new nodes are made of NodePools that need a canary, fewer candidates: of each NodePool the first of them.

    Candidates of such a NodePool that have pods, or are replaced in any case, and those of others whose pods go there.
    """
    made = {node.nodepool for node in plan.new_nodes}
    needing = {name for name in made & destinations.keys() if destinations[name].phase == Phase.CANARY}
    own = {name for name in made & rollouts.keys() if rollouts[name].phase == Phase.CANARY}
    kept, seen, taking = list[Candidate](), set[str](), _new_nodepools(candidates, plan)
    for candidate in candidates:
        pool = candidate.pool
        is_canary = pool.name in own and (pool.replicas is not None or _has_pods(candidate))
        if is_canary or (pool.name in rollouts and taking[candidate.name] & needing):
            if pool.name in seen:
                continue
            seen.add(pool.name)
        kept.append(candidate)
    return kept


def _held_by_others(
    candidates: Sequence[Candidate], plan: Plan, rollouts: Mapping[str, Rollout], destinations: Mapping[str, Rollout]
) -> dict[str, str]:
    """Candidates whose pods would go to new nodes of another NodePool that waits for its canary or has stopped.

    By name, and why.
    """
    held, taking = dict[str, str](), _new_nodepools(candidates, plan)
    for candidate in candidates:
        if candidate.pool.name in rollouts:
            for name in sorted((taking[candidate.name] - {candidate.pool.name}) & destinations.keys()):
                if destinations[name].phase not in (Phase.CANARY, Phase.REPLACING):
                    held[candidate.name] = (
                        f"pods would go to new nodes of NodePool {name}: {destinations[name].message}"
                    )
    return held


def _new_nodepools(candidates: Iterable[Candidate], plan: Plan) -> dict[str, set[str]]:
    """Of which NodePools new nodes are made for a candidate's pods, by candidate."""
    nodepools = {pod: node.nodepool for node in plan.new_nodes for pod in node.pods}
    return {
        candidate.name: {nodepools[pod.key] for pod in candidate.pods if pod.key in nodepools}
        for candidate in candidates
    }


def _has_pods(candidate: Candidate) -> bool:
    return any(map(eviction.is_reschedulable, candidate.pods))


def _failures(candidates: Iterable[Candidate], trial: Simulation) -> dict[str, str]:
    """Candidates that may not go, and why; pods of a static NodePool's nodes need no other place."""
    dynamic = {candidate.name for candidate in candidates if candidate.pool.replicas is None}
    failures = {name: why for name, why in trial.failures.items() if name in dynamic}
    return failures | static_drift.without_replacement(list(candidates), trial.plan)


def _all_blocked(blocked: Iterable[Blocked], failures: Mapping[str, str]) -> tuple[Blocked, ...]:
    return (*blocked, *(Blocked(name, failures[name]) for name in sorted(failures)))


def _is_drifted(claim: NodeClaim, locked: frozenset[str]) -> bool:
    return (
        claim.is_managed
        and claim.name not in locked
        and claim.metadata.deletion_timestamp is None
        and claim.is_condition_true(REASON)
    )


def _in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Nodes without pods first, then those that drifted first; zone by zone where they drifted together."""
    by_time = sorted(candidates, key=lambda candidate: (_has_pods(candidate), _since(candidate), candidate.name))
    ordered, together = list[Candidate](), list[Candidate]()
    for candidate in by_time:
        if together and (
            _has_pods(candidate) != _has_pods(together[0]) or _since(candidate) - _since(together[-1]) > TOGETHER
        ):
            ordered += sorted(together, key=_zone)
            together = []
        together.append(candidate)
    return [*ordered, *sorted(together, key=_zone)]


def _since(candidate: Candidate) -> datetime:
    return since_when(candidate.claim, REASON)


def _zone(candidate: Candidate) -> str:
    return candidate.claim.metadata.labels.get(labels.ZONE, "")
