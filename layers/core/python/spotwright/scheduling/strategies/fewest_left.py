"""How many pods limits leave at least, whatever nodes are chosen."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.state_nodes import StateNode


def count_fewest_left(groups: Sequence[WeightGroup], state_nodes: Iterable[StateNode], pods: Iterable[Pod]) -> int:
    """How many of these pods have no place on any nodes within the limits.

    Of each resource that all NodePools limit: as many of the pods that request least of it find a place as would if
    nodes had no waste but what every type reserves. A lower bound: nodes are whole, and have other resources too.
    """
    room, requests = _room(groups, state_nodes), [pod.requests for pod in pods]
    return max((_count_left([amounts.get(name, 0) for amounts in requests], most) for name, most in room), default=0)


def _count_left(amounts: Sequence[int], room: float) -> int:
    for placed, amount in enumerate(sorted(amounts)):
        room -= amount
        if room < 0:
            return len(amounts) - placed
    return 0


def _room(groups: Sequence[WeightGroup], state_nodes: Iterable[StateNode]) -> Iterable[tuple[str, float]]:
    """What new nodes within the limits and existing nodes have room for, at most; resources that are not limited in
    some NodePool are left out.
    """
    room: Counter[str] = Counter()
    for state_node in state_nodes:
        for name, free in state_node.free_capacity.items():
            room[name] += max(free, 0)
    most = {name: float(amount) for name, amount in room.items()}
    for group in groups:
        for number, left in enumerate(group.initial_limits.by_template):
            for place, name in enumerate(group.offering_index.dimensions):
                most[name] = most.get(name, 0.0) + _room_within(group, number, place, name, left)
    return [(name, amount) for name, amount in most.items() if amount < inf]


def _room_within(group: WeightGroup, number: int, place: int, name: str, left: Mapping[str, int]) -> float:
    """What a NodePool's limit leaves, without what each of its types at least reserves of it."""
    if name not in left:
        return inf
    shares = (
        pool_type.free_capacity[place] / pool_type.counted(name)
        for pool_type in group.offering_index.pool_types
        if pool_type.template_index == number and pool_type.counted(name)
    )
    return max(left[name], 0) * max(shares, default=0.0)
