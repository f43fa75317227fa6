"""A bound on how much of a plan is lost with one node: no node larger than a share of everything that is to be placed.

Small plans are not cut into tiny nodes: what a node of eight cores holds may always go together.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from spotwright.model import resources
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate

# Nodes up to this size are always allowed: cpu millicores, memory bytes.
_SMALL: Final = {resources.CPU: 8_000, resources.MEMORY: 64 * 2**30}


def cap_node_size(templates: Iterable[NodeClaimTemplate], pods: Sequence[Pod], share: int) -> list[NodeClaimTemplate]:
    """The NodePools without types that are larger than ``share`` percent of what the pods ask for together.

    A pool of which nothing would be left keeps its smallest types. A pod that asks for more than such a node has
    finds none: whoever calls decides what then.
    """
    total = resources.add(*(pod.requests for pod in pods))
    bound = {name: max(total.get(name, 0) * share // 100, least) for name, least in _SMALL.items()}
    return [template.with_instance_types(_within(template.instance_types, bound)) for template in templates]


def _within(types: tuple[InstanceType, ...], bound: dict[str, int]) -> tuple[InstanceType, ...]:
    kept = tuple(
        instance_type
        for instance_type in types
        if all(instance_type.allocatable.get(name, 0) <= most for name, most in bound.items())
    )
    if kept or not types:
        return kept
    least = min(instance_type.capacity.get(resources.CPU, 0) for instance_type in types)
    return tuple(instance_type for instance_type in types if instance_type.capacity.get(resources.CPU, 0) == least)
