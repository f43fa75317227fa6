"""Drifted nodes with a pod each, of which some have no other place."""

from datetime import timedelta

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders
from tests.unit.disruption.builders import LONG_AGO, NOW, claim, on, snapshot

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
