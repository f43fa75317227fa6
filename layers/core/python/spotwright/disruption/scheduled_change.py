"""Nodes whose instances EC2 will stop, reboot or retire at a time that it names: replaced before, as budgets allow.

EC2 says so days ahead. Until an hour before its time the node is replaced when the budgets of its NodePool have room,
so in their windows; whatever is left then is drained at once, as Karpenter's AWS provider does when the notice comes.
"""

from collections.abc import Collection
from typing import Final

from spotwright.decisions.decision import SCHEDULED_CHANGE
from spotwright.disruption import simulation
from spotwright.disruption.breaker import NOT_ADMITTED
from spotwright.disruption.candidates import build_candidates, from_another
from spotwright.disruption.noticed import Noticed, as_blocked, close_nodes, within_all_budgets, within_limit
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan

REASON: Final = SCHEDULED_CHANGE
# A trial without the nodes whose pods had no place follows; so many in an evaluation. The last one begins anywhere.
MAXIMUM_TRIALS: Final = 6


def replace_scheduled(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    instances: Collection[str],
    *,
    locked: frozenset[str],
    maximum: int,
    admitted: int,
) -> Noticed:
    """Which of the nodes with these instances go now, ``maximum`` at most, and where their pods go.

    ``admitted``: how many nodes the breaker has left.
    ``plan``: where pending pods go, without new nodes.
    """
    concerned = [claim for claim in snapshot.nodeclaims if _is_concerned(claim, instances, locked)]
    built, blocked = build_candidates(snapshot, plan, concerned, catalog, ignores_pods_with_grace_period=True)
    refusals = {
        candidate.name: f"NodePool {candidate.pool.name} is static: its node goes an hour before what EC2 has scheduled"
        for candidate in built
        if candidate.pool.replicas is not None
    }
    settled = close_nodes(simulation.settle(snapshot, plan), instances)
    stays = tuple(blocked)
    for number in range(MAXIMUM_TRIALS):
        ordered = simulation.without(built, refusals)
        if number == MAXIMUM_TRIALS - 1:
            ordered = from_another(ordered, snapshot.now)
        left, waiting = within_all_budgets(ordered, snapshot, locked)
        left, more = within_limit(left[:maximum], admitted, NOT_ADMITTED)
        stays = (*blocked, *waiting, *more, *as_blocked(refusals))
        if not left:
            break
        trial = simulation.simulate(settled, left, catalog)
        if not trial.failures:
            sentences = {
                candidate.name: f"NodeClaim {candidate.name} is replaced before what EC2 has scheduled for its instance"
                for candidate in left
            }
            return Noticed(tuple(left), stays, trial.snapshot, trial.plan, sentences)
        refusals |= trial.failures
    return Noticed(blocked=stays)


def _is_concerned(claim: NodeClaim, instances: Collection[str], locked: frozenset[str]) -> bool:
    return (
        claim.is_managed
        and claim.name not in locked
        and claim.metadata.deletion_timestamp is None
        and instance_id(claim.provider_id) in instances
    )
