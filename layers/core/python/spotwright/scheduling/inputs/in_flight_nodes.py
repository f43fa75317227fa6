"""NodeClaims without a Node, as nodes: what every instance type that the launch may take has in common."""

from collections.abc import Iterable, Mapping, Sequence

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import is_ephemeral
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES
from spotwright.model.requirements import RequirementError, Requirements, conjunction
from spotwright.scheduling.inputs.state_nodes import StateNode


def build_in_flight_node(nodeclaim: NodeClaim, type_names: Sequence[str], catalog: Catalog) -> StateNode:
    """``type_names``: what the launch may take; () = what the NodeClaim's requirements list."""
    requirements = _requirements(nodeclaim)
    types = _possible_types(
        nodeclaim, requirements, type_names, catalog.instance_types(nodeclaim.node_class_ref.name, nodeclaim.nodepool)
    )
    node_labels = {
        **_shared_labels(types, requirements),
        **_shared_tenancy(types, requirements),
        **requirements.labels(),
        **nodeclaim.metadata.labels,
    }
    taints = without_startup_taints(nodeclaim.taints, nodeclaim.startup_taints)
    state_node = StateNode(nodeclaim.name, node_labels, taints, is_initialized=False, is_in_flight=True)
    state_node.capacity = dict(nodeclaim.capacity) or resources.maximum(
        instance_type.capacity for instance_type in types
    )
    state_node.free_capacity = dict(nodeclaim.allocatable) or _least_allocatable(types)
    if not nodeclaim.allocatable and not nodeclaim.requests.get(resources.EFA):
        # An instance whose pods request no EFA devices is launched without them.
        state_node.free_capacity.pop(resources.EFA, None)
    state_node.attachable_volumes = fewest_attachable_volumes(types)
    return state_node


def without_startup_taints(taints: Iterable[Taint], startup_taints: Iterable[Taint]) -> list[Taint]:
    """Taints that stay once a node has started. Key and effect decide whether a taint is a startup taint."""
    startup = {(taint.key, taint.effect) for taint in startup_taints}
    return [taint for taint in taints if (taint.key, taint.effect) not in startup and not is_ephemeral(taint)]


def fewest_attachable_volumes(types: Sequence[InstanceType]) -> dict[str, int]:
    """Volumes by CSI driver that any of these types can attach."""
    drivers = {driver for instance_type in types for driver in instance_type.attachable_volumes}
    return {
        driver: min(instance_type.attachable_volumes.get(driver, UNLIMITED_VOLUMES) for instance_type in types)
        for driver in drivers
    }


def _requirements(nodeclaim: NodeClaim) -> Requirements:
    try:
        return conjunction(expression.requirement() for expression in nodeclaim.requirements) or Requirements()
    except RequirementError:
        return Requirements()


def _possible_types(
    nodeclaim: NodeClaim, requirements: Requirements, type_names: Sequence[str], types: Sequence[InstanceType]
) -> list[InstanceType]:
    """What a launch may take. A type with other resources in some offerings counts where it has room for the claim."""
    names = set(type_names)
    stated = requirements.by_key.get(labels.INSTANCE_TYPE)
    if not names and stated is not None and not stated.complement:
        names = set(stated.values)
    return [
        instance_type
        for instance_type in types
        if instance_type.name in names
        and instance_type.requirements.intersects(requirements)
        and (
            not instance_type.capacity_overlay_applied or resources.fits(nodeclaim.requests, instance_type.allocatable)
        )
    ]


def _shared_labels(types: Sequence[InstanceType], requirements: Requirements) -> dict[str, str]:
    """Labels on which all types agree, but for offerings that the NodeClaim rules out."""
    shared: dict[str, str] | None = None
    for instance_type in types:
        certain = instance_type.requirements.intersection(
            requirements.by_key[key]
            for key in (labels.ZONE, labels.CAPACITY_TYPE)
            if key in requirements and key in instance_type.requirements
        ).labels()
        if shared is None:
            shared = certain
        else:
            shared = {key: value for key, value in shared.items() if certain.get(key) == value}
    return shared or {}


def _shared_tenancy(types: Iterable[InstanceType], requirements: Requirements) -> dict[str, str]:
    """The tenancy that the NodeClaim is launched with, where all its types state theirs."""
    tenancies = set()
    for instance_type in types:
        allowed = instance_type.requirements.get(labels.TENANCY).intersection(requirements.get(labels.TENANCY))
        is_stated = labels.TENANCY in instance_type.requirements
        tenancies.add(next((tenancy for tenancy in labels.TENANCIES if is_stated and allowed.has(tenancy)), ""))
    return {labels.TENANCY: tenancies.pop()} if len(tenancies) == 1 and "" not in tenancies else {}


def _least_allocatable(types: Sequence[InstanceType]) -> dict[str, int]:
    amounts: list[Mapping[str, int]] = [instance_type.allocatable for instance_type in types]
    return {name: min(amount.get(name, 0) for amount in amounts) for name in (amounts[0] if amounts else {})}
