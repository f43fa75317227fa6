"""Why a NodePool makes no node for a pod: the first thing that leaves no offering, and the nearest miss."""

from collections.abc import Sequence

import msgspec

from spotwright.model import labels, quantity, resources
from spotwright.model.kubernetes.taints import untolerated_taints
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.explain.empty_nodepools import explain_empty_nodepool, list_some, list_unavailable
from spotwright.scheduling.explain.too_large_pods import explain_too_large
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, can_meet
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.placement.node_options import PodNeeds
from spotwright.scheduling.topology.domain_rules import DomainRule


class PoolOfGroup(msgspec.Struct, frozen=True):
    """A NodePool of a weight group. ``number``: its place among the group's templates."""

    group: WeightGroup
    number: int

    @property
    def index(self) -> OfferingIndex:
        return self.group.offering_index

    @property
    def template(self) -> NodeClaimTemplate:
        return self.index.templates[self.number]


def explain_nodepool(needs: PodNeeds, pool: PoolOfGroup) -> str:
    """The first of taints, labels, room, minValues, volumes, host ports, rules and limits that leaves no offering."""
    index, template, group = pool.index, pool.template, pool.group
    if not index.offerings_of_template[pool.number]:
        return explain_empty_nodepool(template)
    taints = untolerated_taints(template.taints, needs.pod_requirements.tolerations)
    if taints:
        return f"it does not tolerate taint {taints[0]}"
    if undefined := template.requirements.undefined_keys(
        needs.pod_requirements.requirements, template.known_label_keys
    ):
        return _explain_undefined_label(undefined[0], template)
    left, unmet = _narrow(needs, pool)
    if unmet is not None:
        return _explain_unmet(unmet, index, left, template)
    fitting = left & index.by_capacity.with_room(needs.pending_class.size)
    if not fitting:
        return explain_too_large(needs.pending_class, index, left, template)
    if not index.keep_min_values(fitting):
        return _explain_min_values(pool, fitting)
    volumes = needs.volume_requirements
    if volumes and not any(fitting & index.by_label.meeting_all(reachable) for reachable in volumes):
        return _explain_volumes(volumes, template)
    if not fitting & group.offerings_without_port_conflicts(needs.pending_class.pod_class.host_ports):
        return "a DaemonSet takes its host port on every node"
    return _explain_rule(group, fitting, needs.rules) or _explain_limit(pool, fitting) or _explain_rules(needs.rules)


def _narrow(needs: PodNeeds, pool: PoolOfGroup) -> tuple[int, Requirement | None]:
    """The NodePool's offerings that meet the pod's requirements. Where none does: the offerings that meet the
    requirements before the first that rules out all of them, and that requirement.
    """
    index, left = pool.index, pool.index.offerings_of_template[pool.number]
    of_pool = left
    for requirement in sorted(
        needs.pod_requirements.requirements,
        key=lambda requirement: (of_pool & index.by_label.meeting(requirement)).bit_count(),
    ):
        kept = left & index.by_label.meeting(requirement)
        if not kept:
            return left, requirement
        left = kept
    return left, None


def _explain_undefined_label(key: str, template: NodeClaimTemplate) -> str:
    defined = sorted(template.known_label_keys.union(template.requirements.by_key))
    name = key.rpartition("/")[2]
    similar = [label for label in defined if label.rpartition("/")[2] == name] or [
        label for label in defined if key in label
    ]
    hint = f" (did you mean {similar[0]}?)" if similar else ""
    return f"label {key} has no known values there{hint}: declare it in the pool's labels or requirements"


def _explain_unmet(requirement: Requirement, index: OfferingIndex, left: int, template: NodeClaimTemplate) -> str:
    allowed = template.requirements.by_key.get(requirement.key)
    if allowed is not None and not can_meet(allowed, requirement):
        return f"it asks for {requirement}, but the pool allows only {allowed}: one of the two would have to change"
    statements = index.by_label.statements(requirement.key).items()
    values = list_some(value for value, stating in statements if isinstance(value, str) and stating & left)
    entries = [pool_type.instance_type for pool_type in index.pool_types if pool_type.offerings & left]
    types = len({instance_type.name for instance_type in entries})
    has = (f"; they have {values}" if values else "") + list_unavailable(entries)
    return f"it asks for {requirement}, which no offering of the {types} instance types left has now{has}"


def _explain_min_values(pool: PoolOfGroup, fitting: int) -> str:
    """Which minValues cannot be kept."""
    index = pool.index
    of_pool = fitting & index.offerings_of_template[pool.number]
    for key, least in index.min_values[pool.number].items():
        if index.by_label.count_values(key, of_pool, at_most=least) < least:
            statements = index.by_label.statements(key).items()
            kept = list_some(value for value, stating in statements if stating & of_pool and isinstance(value, str))
            return f"minValues asks for {least} different values of {key}, the instance types that fit have only {kept}"
    return "its minValues cannot be kept"


def _explain_volumes(volumes: Sequence[Requirements], template: NodeClaimTemplate) -> str:
    """Where the pod's volumes are, and what keeps the NodePool from there."""
    where = " or ".join(", ".join(map(str, requirements)) for requirements in volumes)
    barring = {
        str(allowed)
        for requirements in volumes
        for requirement in requirements
        if (allowed := template.requirements.by_key.get(requirement.key)) is not None
        and not can_meet(allowed, requirement)
    }
    why = (
        f"the pool allows only {', '.join(sorted(barring))}"
        if barring
        else "none of the instance types left is sold there"
    )
    return f"its volumes can be attached only where {where}, but {why}"


def _explain_rule(group: WeightGroup, fitting: int, rules: Sequence[DomainRule]) -> str:
    """The rule between pods that no domain keeps; "" if there is none."""
    for rule in rules:
        if rule.topology_key == labels.HOSTNAME:
            possible = rule.allows("a new node")
        else:
            label_bits = group.undetermined_labels.initial_bits_of_any(fitting)
            possible = any(map(rule.allows, group.possible_values(rule.topology_key, fitting, label_bits)))
        if not possible:
            return f"no node it could make satisfies its {rule}"
    return ""


def _explain_limit(pool: PoolOfGroup, fitting: int) -> str:
    """The limit that leaves no room for even the smallest node that fits; "" if there is none."""
    smallest = min(
        (pool_type.instance_type for pool_type in pool.index.pool_types if pool_type.offerings & fitting),
        key=lambda instance_type: (instance_type.capacity.get(resources.CPU, 0), instance_type.name),
    )
    for name, amount in sorted(pool.group.limits.by_template[pool.number].items()):
        size = 1 if name == resources.NODES else smallest.capacity.get(name, 0)
        if size > amount:
            limit = pool.template.nodepool.limits[name]
            return (
                f"its limit of {name} {quantity.text(name, limit)} leaves {quantity.text(name, max(amount, 0))}, the"
                f" smallest instance type that fits ({smallest.name}) counts {quantity.text(name, size)}"
            )
    return ""


def _explain_rules(rules: Sequence[DomainRule]) -> str:
    """What keeps the pod out when each rule alone could be kept."""
    if not rules:
        return "nodes it could make are needed for pods that come first"
    return "no node it could make satisfies all of: " + "; ".join(sorted({str(rule) for rule in rules}))
