"""What a simulated cluster comes to when its functions go on."""

from typing import Final

import msgspec

from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import FINAL_PHASES

# Longer than every timer of a row; the longest is that of a nomination, a quarter of an hour.
SECONDS: Final = 1000


def run_to_end(world: World) -> None:
    """Nodes with pods stay: nothing is begun for drift or price besides what was begun already."""
    for pool in world.cluster.nodepools():
        closed = (*pool.budgets, Budget("0", reasons=("Drifted", "Underutilized")))
        world.cluster.put("nodepools", msgspec.structs.replace(pool, budgets=closed))
    world.run(SECONDS)


def count(world: World) -> dict[str, int]:
    """Pods that run, instances that were ever started, and instances that still run."""
    return {
        "pods": len(world.running_pods()),
        "started": len(world.ec2.all_instances()),
        "live": len(world.ec2.live_instances()),
    }


def find_unfinished(world: World) -> list[str]:
    """Rows that wait for something, decisions that nobody acted on, instances without a NodeClaim, and NodeClaims
    without an instance."""
    rows = [key for key, row in world.state.rows.items() if row.phase not in FINAL_PHASES or row.due]
    claimed = {instance_id(claim.provider_id) for claim in world.claims()}
    return [
        *rows,
        *world.state.cluster_row.pending_decisions,
        *sorted(claimed ^ {instance.id for instance in world.ec2.live_instances()}),
    ]
