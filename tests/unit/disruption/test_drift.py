"""Which drifted nodes are replaced first, and which never keep the others."""

from datetime import timedelta

import msgspec

from spotwright.disruption.drift import replace_drifted
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.simulation import builders
from tests.unit.disruption.builders import LONG_AGO, NOBODY, NOW, claim, on, snapshot

TYPES = Catalog({"": (builders.instance_type("m5.large", 2, 8, on_demand=0.1),)})


def drifted(bound: int, free: int, minute: int) -> Snapshot:
    """Nodes with a pod each, drifted one after the other; the pods of the first ones run on their node alone."""
    names = [f"n{number:02}" for number in range(bound + free)]
    claims, pods = [], []
    for number, name in enumerate(names):
        selector = {labels.HOSTNAME: f"node-{name}"} if number < bound else {}
        pods.append(on(name, builders.pod(f"p-{name}", cpu_millicores=900, node_selector=selector)))
        condition = Condition("Drifted", "True", last_transition_time=LONG_AGO + timedelta(seconds=number))
        base = claim(name)
        claims.append(msgspec.structs.replace(base, conditions=(*base.conditions, condition)))
    return snapshot(
        *names,
        nodeclaims=tuple(claims),
        pods=tuple(pods),
        nodepools=(builders.nodepool(budgets=(Budget("1"),)),),
        nodeclasses=(builders.nodeclass(),),
        now=NOW + timedelta(minutes=minute),
    )


def test_nodes_without_a_replacement_never_keep_all_others() -> None:
    """However many have drifted before: within as many minutes as there are nodes, each of the others has its turn."""
    replaced = set()
    for minute in range(12):
        found = replace_drifted(drifted(8, 4, minute), Plan(), TYPES, locked=NOBODY)
        replaced |= {candidate.name for candidate in found.candidates}
    assert replaced == {"n08", "n09", "n10", "n11"}


def test_nodes_of_a_static_pool_are_left_alone() -> None:
    """Their replacements are not made for pods."""
    static = (builders.nodepool(replicas=2, budgets=(Budget("100%"),)),)
    observed = drifted(0, 2, 0)
    room = (*observed.nodes, builders.unmanaged_node("other"))
    observed = msgspec.structs.replace(observed, nodepools=static, nodes=room)
    assert replace_drifted(observed, Plan(), TYPES, locked=NOBODY).candidates == ()
