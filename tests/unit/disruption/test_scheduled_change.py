"""Which nodes go first of those that EC2 will stop, reboot or retire, and which never keep the others."""

import msgspec

from spotwright.disruption.breaker import NOT_ADMITTED
from spotwright.disruption.scheduled_change import replace_scheduled
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.node import instance_id
from spotwright.scheduling.plan import Plan
from tests.unit.disruption.builders import NOBODY
from tests.unit.disruption.drifted_nodes import TYPES, drifted


def test_nodes_without_a_replacement_never_keep_all_others() -> None:
    """With a budget of a single node, more nodes than there are trials, whose pods run on their node alone."""
    replaced = set()
    for minute in range(12):
        observed = drifted(8, 4, minute)
        instances = [instance_id(claim.provider_id) for claim in observed.nodeclaims]
        found = replace_scheduled(observed, Plan(), TYPES, instances, locked=NOBODY, maximum=100, admitted=100)
        replaced |= {candidate.name for candidate in found.candidates}
    assert replaced == {"n08", "n09", "n10", "n11"}


def test_what_the_breaker_does_not_admit_says_so() -> None:
    observed = drifted(0, 3, 0)
    instances = [instance_id(claim.provider_id) for claim in observed.nodeclaims]
    (pool,) = observed.nodepools
    observed = msgspec.structs.replace(observed, nodepools=(msgspec.structs.replace(pool, budgets=(Budget("100%"),)),))
    found = replace_scheduled(observed, Plan(), TYPES, instances, locked=NOBODY, maximum=100, admitted=1)
    assert len(found.candidates) == 1
    assert [blocked.reason for blocked in found.blocked] == [NOT_ADMITTED] * 2
