"""What a cluster costs at least after so many evictions: the linear program in which nodes and pods can be divided.

``min Σ p·k + Σ c·x`` where ``Σ a·k + Σ A·x ≥ demand`` for each resource, ``Σ e·(1 - k) ≤ E``, ``0 ≤ k ≤ 1``, ``x ≥ 0``.
Part ``k`` of a node of price ``p``, room ``a`` and ``e`` evictions stays; ``x`` nodes of a type of price ``c`` and room
``A`` are bought.
"""

import highspy
import numpy as np

from spotwright.disruption import consolidation, removal_order
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan


def find_bound(snapshot: Snapshot, catalog: Catalog, most_evictions: int) -> float:
    """Picodollars per hour; no cluster costs less that is made of this one with so many evictions."""
    candidates, _, _ = consolidation.find_candidates(snapshot, Plan(), catalog, locked=frozenset())
    nodes, spare, shapes = removal_order.build_problem(candidates, snapshot, catalog, filled=1.0, in_whole_pods=False)
    rooms = [*(node.room for node in nodes), *(shape.room for shape in shapes)]
    demand = [sum(node.room[d] for node in nodes) - spare[d] for d in range(len(spare))]
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    for column, price in enumerate([*(node.price for node in nodes), *(shape.price for shape in shapes)]):
        highs.addVar(0.0, 1.0 if column < len(nodes) else highspy.kHighsInf)
        # In dollars: the solver's tolerances are absolute.
        highs.changeColCost(column, price / 1e12)
    columns = np.arange(len(rooms), dtype=np.int32)
    for d, needed in enumerate(demand):
        if needed > 0:
            row = np.array([room[d] / needed for room in rooms])
            highs.addRow(1.0, highspy.kHighsInf, len(columns), columns, row)
    moving = np.array([node.evictions for node in nodes])
    highs.addRow(float(moving.sum()) - most_evictions, highspy.kHighsInf, len(nodes), columns[: len(nodes)], moving)
    highs.run()
    return float(highs.getInfo().objective_function_value) * 1e12
