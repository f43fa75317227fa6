"""Why a pod has no place: per NodePool, which demand removed what, with the nearest miss."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from spotwright.model import labels, quantity, resources
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import untolerated_taints
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES, csi_driver, volume_resource
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, can_meet
from spotwright.scheduling.inputs.pod_classes import PodRequirements
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.offerings.offering_index import OfferingIndex, PoolInstanceType
from spotwright.scheduling.placement.existing_nodes import ExistingNode
from spotwright.scheduling.placement.pending_pods import PendingClass
from spotwright.scheduling.placement.weight_groups import WeightGroup
from spotwright.scheduling.plan import UnplacedPod
from spotwright.scheduling.topology.domain_rules import DomainRule, KnownDomainRule
from spotwright.scheduling.topology.topology import Topology


def explain_unsupported(pod: Pod, snapshot: Snapshot) -> UnplacedPod | None:
    """A pod that cannot be read, or uses what the planner does not handle: it is never placed wrongly."""
    if pod.read_error:
        return UnplacedPod(pod.key, (f"it cannot be read: {pod.read_error}",))
    if pod.unsupported_fields:
        return UnplacedPod(pod.key, tuple(f"{field} is not handled yet" for field in pod.unsupported_fields))
    if not pod.pod_affinity and not pod.pod_anti_affinity:
        return None
    if not snapshot.namespaces and any(
        pod_affinity_term.namespace_selector for pod_affinity_term in (*pod.pod_affinity, *pod.pod_anti_affinity)
    ):
        return UnplacedPod(pod.key, ("its namespaceSelector needs the labels of namespaces, which were not read",))
    return None


def explain_follower(pod: Pod) -> UnplacedPod:
    """A follower in a cluster that has no other work."""
    return UnplacedPod(
        pod.key, ("it follows: it never causes the first node, and takes a place on any node made for other pods",)
    )


def explain_unplaced(
    waiting: Sequence[PendingClass],
    tiers: Sequence[WeightGroup],
    rooms: Sequence[ExistingNode],
    topology: Topology,
    disks: VolumeTopology,
    closed: Mapping[str, str],
) -> list[UnplacedPod]:
    """The pods that are left, each with a sentence per NodePool."""
    found = []
    for pending_class in waiting:
        if pending_class.pod_keys:
            why = _why(pending_class, tiers, rooms, topology, disks, closed)
            found += [UnplacedPod(key, why) for key in pending_class.pod_keys]
    return found


def explain_empty_nodepools(tiers: Iterable[WeightGroup]) -> dict[str, str]:
    """NodePools that sell nothing whatever is asked, and why."""
    return {
        template.nodepool.name: _empty(tier.offering_index, number)
        for tier in tiers
        for number, template in enumerate(tier.offering_index.templates)
        if not tier.offering_index.offerings_of_template[number]
    }


def _why(
    pending_class: PendingClass,
    tiers: Sequence[WeightGroup],
    rooms: Sequence[ExistingNode],
    topology: Topology,
    disks: VolumeTopology,
    closed: Mapping[str, str],
) -> tuple[str, ...]:
    if not pending_class.pod_class.requirement_levels:
        if pending_class.pod_class.pod.node_affinity and not any(pending_class.pod_class.pod.node_affinity):
            return ("its node affinity matches no node: a term without matchExpressions matches nothing",)
        return ("its nodeSelector and node affinity contradict each other: no node could meet them",)
    demand = pending_class.pod_class.requirement_levels[-1]
    rules = [
        rule for rule in topology.domain_rules(pending_class.pod_class, demand) if not isinstance(rule, KnownDomainRule)
    ]
    volumes = disks.node_requirements(pending_class.pod_class.pod)
    said = [
        f"NodePool {template.nodepool.name}: {_of_pool(pending_class, demand, tier, number, rules, volumes)}"
        for tier in tiers
        for number, template in enumerate(tier.offering_index.templates)
    ]
    said += [f"NodePool {name}: {why}" for name, why in sorted(closed.items())]
    if not said:
        said = ["there is no NodePool"]
    if rooms:
        said.append(f"none of the {len(rooms)} nodes that exist or are in flight has room, labels and taints for it")
    return tuple(said)


def _of_pool(
    pending_class: PendingClass,
    demand: PodRequirements,
    tier: WeightGroup,
    number: int,
    rules: Sequence[DomainRule],
    volumes: Sequence[Requirements],
) -> str:
    market, template = tier.offering_index, tier.offering_index.templates[number]
    ours = market.offerings_of_template[number]
    if not ours:
        return _empty(market, number)
    missing = untolerated_taints(template.taints, demand.tolerations)
    if missing:
        return f"it does not tolerate taint {missing[0]}"
    undeclared = template.requirements.undefined_keys(demand.requirements, template.known_label_keys)
    if undeclared:
        return _undeclared(undeclared[0], tier, number)
    left = ours
    for requirement in sorted(
        demand.requirements, key=lambda each: (ours & market.offerings_meeting(each)).bit_count()
    ):
        kept = left & market.offerings_meeting(requirement)
        if not kept:
            return _conflict(requirement, market, left, template)
        left = kept
    fitting = left & market.offerings_with_room(pending_class.size)
    if not fitting:
        return _too_large(pending_class, market, left, template)
    if not market.keep_min_values(fitting):
        return _too_alike(market, number, fitting)
    if volumes and not any(fitting & market.offerings_meeting_all(requirements) for requirements in volumes):
        return _out_of_reach(volumes, template)
    if not fitting & tier.offerings_without_port_conflicts(pending_class.pod_class.host_ports):
        return "a DaemonSet takes its host port on every node"
    return _rule(tier, fitting, rules) or _limit(tier, number, fitting) or _together(rules)


def _out_of_reach(volumes: Sequence[Requirements], template: NodeClaimTemplate) -> str:
    """Where its volumes are, and what keeps the pool from there."""
    where = " or ".join(", ".join(map(str, requirements)) for requirements in volumes)
    barred = {
        str(requirement)
        for requirements in volumes
        for asked in requirements
        if (requirement := template.requirements.by_key.get(asked.key)) is not None and not can_meet(requirement, asked)
    }
    why = f"the pool allows only {', '.join(sorted(barred))}" if barred else "none of the instance types left is sold"
    return f"its volumes can be attached only where {where}, but {why}{'' if barred else ' there'}"


def _empty(market: OfferingIndex, number: int) -> str:
    """Why a pool has nothing to sell, whatever is asked."""
    template = market.templates[number]
    left: Sequence[InstanceType] = template.instance_types
    for requirement in template.requirements:
        stated = {instance_type.requirements.get(requirement.key) for instance_type in left}
        met = {one for one in stated if can_meet(one, requirement)}
        if not met:
            known = {value for one in stated for value in one.values}
            has = f"; they have {_listed(known)}" if known else ""
            return f"the pool's requirements filtered out all available instance types: none has {requirement}{has}"
        if len(met) < len(stated):
            left = [instance_type for instance_type in left if instance_type.requirements.get(requirement.key) in met]
    sold = {
        instance_type.name
        for instance_type in left
        if any(offering.available and template.allows(offering) for offering in instance_type.offerings)
    }
    if not sold:
        return _unsold(template, left)
    return f"none of the {len(sold)} instance types that meet the pool's requirements has room for its DaemonSets"


def _unsold(template: NodeClaimTemplate, types: Sequence[InstanceType]) -> str:
    """Which demand on zone or capacity type no available offering meets."""
    offered = [offering for instance_type in types for offering in instance_type.offerings if offering.available]
    for key, values in (
        (labels.ZONE, {offering.zone for offering in offered}),
        (labels.CAPACITY_TYPE, {offering.capacity_type for offering in offered}),
    ):
        requirement = template.requirements.get(key)
        if offered and not any(requirement.has(value) for value in values):
            known = ", ".join(sorted(values))
            return (
                f"the pool's requirements filtered out all available offerings: none has {requirement}; known: {known}"
            )
    return (
        f"none of the {len({instance_type.name for instance_type in types})} instance types that meet the pool's"
        f" requirements has an available offering"
        f"{_closed(types)}"
    )


def _closed(types: Iterable[InstanceType]) -> str:
    """What EC2 said of the offerings that are left alone for a while, with the number of offerings."""
    said = Counter(
        offering.unavailable_reason
        for instance_type in types
        for offering in instance_type.offerings
        if offering.unavailable_reason
    )
    return f"; EC2 said lately: {', '.join(f'{code} ({said[code]})' for code in sorted(said))}" if said else ""


def _undeclared(key: str, tier: WeightGroup, number: int) -> str:
    template = tier.offering_index.templates[number]
    known = sorted(template.known_label_keys.union(template.requirements.by_key))
    name = key.rpartition("/")[2]
    near = [one for one in known if one.rpartition("/")[2] == name] or [one for one in known if key in one]
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"label {key} has no known values there{hint}: declare it in the pool's labels or requirements"


def _conflict(requirement: Requirement, market: OfferingIndex, left: int, template: NodeClaimTemplate) -> str:
    allowed = template.requirements.by_key.get(requirement.key)
    if allowed is not None and not can_meet(allowed, requirement):
        return f"it asks for {requirement}, but the pool allows only {allowed}: one of the two would have to change"
    stated = market.label_statements(requirement.key).items()
    shown = _listed(value for value, mask in stated if isinstance(value, str) and mask & left)
    kinds = [goods.instance_type for goods in market.pool_types if goods.offerings & left]
    types = len({instance_type.name for instance_type in kinds})
    has = (f"; they have {shown}" if shown else "") + _closed(kinds)
    return f"it asks for {requirement}, which no offering of the {types} instance types left has now{has}"


def _listed(values: Iterable[str]) -> str:
    """The first values in order, and how many more there are."""
    ordered = sorted(values)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} others" if len(ordered) > 5 else "")


def _too_large(pending_class: PendingClass, market: OfferingIndex, left: int, template: NodeClaimTemplate) -> str:
    """The first resource that alone rules everything out, or the best compromise; then what the pool keeps away."""
    return (
        _short_of(pending_class, market, left)
        + _elsewhere(pending_class, market, left)
        + _ruled_out(pending_class, template)
    )


def _elsewhere(pending_class: PendingClass, market: OfferingIndex, left: int) -> str:
    """Where a type that has more in some offerings than in others has room for the pod."""
    number = market.pool_type_of[(left & -left).bit_length() - 1].template_index
    roomy = sum(
        goods.offerings for goods in market.pool_types if goods.instance_type.name in market.split_types[number]
    )
    roomy &= market.offerings_of_template[number] & market.offerings_with_room(pending_class.size)
    if not roomy:
        return ""
    choice = (roomy & -roomy).bit_length() - 1
    offer = market.offerings[choice]
    return (
        f"; {market.pool_type_of[choice].instance_type.name} has room for it as {offer.capacity_type} in {offer.zone}"
    )


def _ruled_out(pending_class: PendingClass, template: NodeClaimTemplate) -> str:
    """The smallest type with room for the pod that only the pool's own requirements rule out."""
    asked = pending_class.pod_class.requests
    unlimited = {name: UNLIMITED_VOLUMES for name in asked if csi_driver(name)}
    fitting = [each for each in template.instance_types if resources.fits(asked, unlimited | _offered(each))]
    for instance_type in sorted(fitting, key=lambda each: (each.allocatable.get(resources.CPU, 0), each.name)):
        unmet = [
            demand
            for demand in template.requirements
            if demand.key in instance_type.requirements
            and not can_meet(instance_type.requirements.get(demand.key), demand)
        ]
        if len(unmet) == 1:
            return f"; {instance_type.name} would hold it, but for the pool's {unmet[0]}"
    return ""


def _offered(instance_type: InstanceType) -> dict[str, int]:
    return instance_type.allocatable | {
        volume_resource(driver): count for driver, count in instance_type.attachable_volumes.items()
    }


def _short_of(pending_class: PendingClass, market: OfferingIndex, left: int) -> str:
    goods = [pool_type for pool_type in market.pool_types if pool_type.offerings & left]
    for place, name in enumerate(market.dimensions):
        most = max(goods, key=lambda pool_type: (pool_type.free_capacity[place], pool_type.instance_type.name))
        if pending_class.size[place] > 0 and most.free_capacity[place] <= 0:
            asked = quantity.text(name, pending_class.size[place])
            return f"it asks for {name} {asked}, none of {_types(goods)} has any"
        if pending_class.size[place] > most.free_capacity[place] and csi_driver(name):
            return (
                f"it attaches {pending_class.size[place]} volumes through {csi_driver(name)}, the most is"
                f" {most.free_capacity[place]} on {most.instance_type.name} ({_types(goods)})"
            )
        if pending_class.size[place] > most.free_capacity[place]:
            return (
                f"it asks for {name} {quantity.text(name, pending_class.size[place])}, the most is"
                f" {_amount(name, most.free_capacity[place])} on {most.instance_type.name} ({_types(goods)})"
            )
    asked = ", ".join(
        f"{csi_driver(name) or name} {value}"
        for name, value in resources.text(pending_class.pod_class.requests).items()
        if name != resources.PODS
    )
    return f"none of {_types(goods)} has {asked} together"


def _types(goods: Sequence[PoolInstanceType]) -> str:
    number = len({pool_type.instance_type.name for pool_type in goods})
    return f"{number} instance type{'' if number == 1 else 's'}"


def _too_alike(market: OfferingIndex, number: int, fitting: int) -> str:
    """Which minValues cannot be kept."""
    for key, least in market.min_values[number].items():
        ours = fitting & market.offerings_of_template[number]
        if market.count_values(key, ours, at_most=least) < least:
            kept = _listed(
                value for value, mask in market.label_statements(key).items() if mask & ours and isinstance(value, str)
            )
            return f"minValues asks for {least} different values of {key}, the instance types that fit have only {kept}"
    return "its minValues cannot be kept"


def _amount(name: str, size: int) -> str:
    return f"{size // 2**20}Mi" if name == resources.MEMORY and size % 2**20 else quantity.text(name, size)


def _rule(tier: WeightGroup, fitting: int, rules: Sequence[DomainRule]) -> str:
    """The rule between pods that no domain keeps."""
    for rule in rules:
        if rule.topology_key == labels.HOSTNAME:
            possible = rule.allows("a new node")
        else:
            values = tier.possible_values(
                rule.topology_key, fitting, tier.undetermined_labels.initial_bits_of_any(fitting)
            )
            possible = any(rule.allows(value) for value in values)
        if not possible:
            return f"no node it could make satisfies its {rule}"
    return ""


def _together(rules: Sequence[DomainRule]) -> str:
    """What is left to blame when each demand alone could be met."""
    if not rules:
        return "nodes it could make are needed for pods that come first"
    return "no node it could make satisfies all of: " + "; ".join(sorted({str(rule) for rule in rules}))


def _limit(tier: WeightGroup, number: int, fitting: int) -> str:
    """The limit that leaves no room for even the smallest node that fits; "" if there is none."""
    left = tier.limits.by_template[number]
    smallest = min(
        (goods for goods in tier.offering_index.pool_types if goods.offerings & fitting),
        key=lambda pool_type: (pool_type.instance_type.capacity.get(resources.CPU, 0), pool_type.instance_type.name),
    )
    for name, amount in sorted(left.items()):
        size = 1 if name == resources.NODES else smallest.instance_type.capacity.get(name, 0)
        if size > amount:
            limit = tier.offering_index.templates[number].nodepool.limits[name]
            return (
                f"its limit of {name} {quantity.text(name, limit)} leaves {quantity.text(name, max(amount, 0))}, the"
                f" smallest instance type that fits ({smallest.instance_type.name}) counts {quantity.text(name, size)}"
            )
    return ""
