"""A cap on what is lost with one node: no node larger than a share of all that is to be placed.

Small plans are not cut into tiny nodes: what a node of eight cores holds may always go together.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.followers import place_with_followers
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext

# Nodes up to this size are always allowed: cpu millicores, memory bytes.
_SMALL: Final = {resources.CPU: 8_000, resources.MEMORY: 64 * 2**30}


def place_with_node_share(context: PlanningContext, pods: Sequence[Pod]) -> tuple[Placement, tuple[str, ...]]:
    """The placement with no node above the setting's share of the plan, and what that costs.

    A pod that this leaves without a node counts more: then the cap does not hold, which the note says.
    """
    share, uncapped = context.settings.largest_node_share, place_with_followers(context, pods)
    if share >= 100:
        return uncapped, ()
    smaller = msgspec.structs.replace(context, templates=_cap_node_size(context.templates, pods, share))
    capped = place_with_followers(smaller, pods)
    capped.work_units += uncapped.work_units
    cap = f"at most {share} % of the plan on one node"
    more_unplaced = len(capped.unplaced_pods()) - len(uncapped.unplaced_pods())
    if more_unplaced > 0:
        return uncapped, (f"{cap} cannot be kept: {more_unplaced} pods would be left without a node",)
    dearer = capped.price() - uncapped.price()
    cost = f"costs ${dearer / PICOUSD:.4f} an hour more" if dearer > 0 else "costs nothing"
    return capped, (f"{cap} {cost}",)


def _cap_node_size(templates: Iterable[NodeClaimTemplate], pods: Sequence[Pod], share: int) -> list[NodeClaimTemplate]:
    """NodePools without the types that are larger than ``share`` percent of what the pods request together.

    A NodePool of which nothing would be left keeps its smallest types.
    """
    total = resources.add(*(pod.requests for pod in pods))
    cap = {name: max(total.get(name, 0) * share // 100, least) for name, least in _SMALL.items()}
    return [template.with_instance_types(_within(template.instance_types, cap)) for template in templates]


def _within(types: tuple[InstanceType, ...], cap: dict[str, int]) -> tuple[InstanceType, ...]:
    kept = tuple(
        instance_type
        for instance_type in types
        if all(instance_type.allocatable.get(name, 0) <= most for name, most in cap.items())
    )
    if kept or not types:
        return kept
    least = min(instance_type.capacity.get(resources.CPU, 0) for instance_type in types)
    return tuple(instance_type for instance_type in types if instance_type.capacity.get(resources.CPU, 0) == least)
