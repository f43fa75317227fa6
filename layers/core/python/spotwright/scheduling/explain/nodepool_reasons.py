"""Why a NodePool makes no node for a pod: the first thing that leaves no offering, and the nearest miss."""

from collections.abc import Sequence

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.taints import untolerated_taints
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.explain.empty_nodepools import explain_empty_nodepool, list_some, list_unavailable
from spotwright.scheduling.explain.label_values import explain_unknown_values, known_values, nearest
from spotwright.scheduling.explain.limit_reasons import explain_limit, explain_min_values_within_limits
from spotwright.scheduling.explain.reasons import Nearness, PoolOfGroup, PoolReason
from spotwright.scheduling.explain.too_large_pods import count_types, explain_too_large
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, can_meet
from spotwright.scheduling.inputs.nodepools import field_path
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.placement.node_options import PodNeeds
from spotwright.scheduling.topology.domain_rules import DomainRule


def explain_nodepool(needs: PodNeeds, pool: PoolOfGroup) -> PoolReason:
    """The first of taints, labels, room, minValues, volumes, host ports, rules and limits that leaves no offering."""
    index, template, group = pool.index, pool.template, pool.group
    if not index.offerings_of_template[pool.number]:
        return PoolReason("NodePoolEmpty", explain_empty_nodepool(template), Nearness.CLOSED)
    if reason := _explain_labels(needs, pool):
        return msgspec.structs.replace(reason, mismatches=_count_mismatches(needs, template))
    left, _ = _narrow(needs, pool)
    fitting = left & index.by_capacity.with_room(needs.pending_class.size)
    if not fitting:
        return explain_too_large(needs, index, left, template)
    if not index.keep_min_values(fitting):
        return PoolReason("MinValues", _explain_min_values(pool, fitting), Nearness.SOME_FIT)
    volumes = needs.volume_requirements
    if volumes and not any(fitting & index.by_label.meeting_all(reachable) for reachable in volumes):
        return PoolReason("VolumeElsewhere", _explain_volumes(volumes, template), Nearness.SOME_FIT)
    if not fitting & group.offerings_without_port_conflicts(needs.pending_class.pod_class.host_ports):
        return PoolReason("HostPortTaken", "a DaemonSet takes its host port on every node", Nearness.SOME_FIT)
    if rule := _explain_rule(group, fitting, needs.rules):
        return PoolReason("TopologyRule", rule, Nearness.SOME_FIT)
    return (
        explain_limit(needs, pool, fitting)
        or explain_min_values_within_limits(pool, fitting)
        or _explain_rules(needs.rules)
    )


def _explain_labels(needs: PodNeeds, pool: PoolOfGroup) -> PoolReason | None:
    """What keeps a pod from every node of the NodePool, whatever its size: a taint, or a label."""
    template, requirements = pool.template, needs.pod_requirements.requirements
    if taints := untolerated_taints(template.taints, needs.pod_requirements.tolerations):
        text = f"it does not tolerate taint {taints[0]}"
        return PoolReason("TaintNotTolerated", text, Nearness.NEVER_FITS, str(taints[0]), {"taint": str(taints[0])})
    if undefined := template.requirements.undefined_keys(requirements, template.known_label_keys):
        return _explain_undefined_label(requirements.get(undefined[0]), template)
    left, unmet = _narrow(needs, pool)
    return _explain_unmet(unmet, pool.index, left, template) if unmet is not None else None


def _count_mismatches(needs: PodNeeds, template: NodeClaimTemplate) -> int:
    """How many taints and labels of the NodePool stand against a pod."""
    requirements = needs.pod_requirements.requirements
    return (
        len(untolerated_taints(template.taints, needs.pod_requirements.tolerations))
        + len(template.requirements.undefined_keys(requirements, template.known_label_keys))
        + sum(
            requirement.key in template.requirements
            and not can_meet(template.requirements.get(requirement.key), requirement)
            for requirement in requirements
        )
    )


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


def _explain_undefined_label(requirement: Requirement, template: NodeClaimTemplate) -> PoolReason:
    key, value = requirement.key, requirement.sole_value
    defined = sorted(template.known_label_keys.union(template.requirements.by_key))
    name = key.rpartition("/")[2]
    similar = next((label for label in defined if label.rpartition("/")[2] == name), "") or nearest(key, defined)
    needed = f"the node label {key}={value}" if value is not None else f"a node label: {requirement}"
    text = f"it needs {needed}, which the pool does not set: " + (
        f"did you mean {similar}?" if similar else "add it to spec.template.metadata.labels"
    )
    return PoolReason("LabelNotSet", text, Nearness.NEVER_FITS, key, {"key": key, "asked": str(requirement)})


def _explain_unmet(
    requirement: Requirement, index: OfferingIndex, left: int, template: NodeClaimTemplate
) -> PoolReason:
    key, details = requirement.key, {"key": requirement.key, "asked": str(requirement)}
    if unknown := explain_unknown_values(requirement, known_values(key, template.instance_types)):
        return PoolReason("NoSuchValue", f"it asks for {requirement}: {unknown}", Nearness.NEVER_FITS, key, details)
    allowed = template.requirements.by_key.get(key)
    if allowed is not None and not can_meet(allowed, requirement):
        only = f"{allowed.describe_values()} ({field_path(template.nodepool, key)})"
        text = f"it asks for {requirement}, but the pool allows only {only}"
        return PoolReason("RequirementNotMet", text, Nearness.NEVER_FITS, key, details | {"allowed": str(allowed)})
    statements = index.by_label.statements(key).items()
    values = list_some(value for value, stating in statements if isinstance(value, str) and stating & left)
    entries = [pool_type.instance_type for pool_type in index.pool_types if pool_type.offerings & left]
    types = len({instance_type.name for instance_type in entries})
    offerings = f"offerings of the {count_types(types)} left"
    why = f"but the {offerings} have only {values}" if values else f"which none of the {offerings} has now"
    text = f"it asks for {requirement}, {why}{list_unavailable(entries)}"
    return PoolReason("NotAvailable", text, Nearness.NEVER_FITS, key, details)


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


def _explain_rules(rules: Sequence[DomainRule]) -> PoolReason:
    """What keeps the pod out when each rule alone could be kept."""
    if not rules:
        return PoolReason(
            "NeededByOtherPods", "nodes it could make are needed for pods that come first", Nearness.SOME_FIT
        )
    text = "no node it could make satisfies all of: " + "; ".join(sorted({str(rule) for rule in rules}))
    return PoolReason("TopologyRule", text, Nearness.SOME_FIT)
