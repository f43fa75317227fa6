"""Why a pod has no place: per NodePool, which demand removed what, with the nearest miss."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from spotwright.model import labels, quantity, resources
from spotwright.model.instancetype import InstanceType
from spotwright.model.pod import Pod
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import Snapshot
from spotwright.model.taints import untolerated
from spotwright.scheduling.classes import Demand
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.market import Market
from spotwright.scheduling.plan import Refused
from spotwright.scheduling.rooms import Room
from spotwright.scheduling.rules import FixedRule, Rule
from spotwright.scheduling.templates import Template, meets
from spotwright.scheduling.tiers import Tier
from spotwright.scheduling.topology import Topology
from spotwright.scheduling.waiting import Waiting


def beyond(pod: Pod, snapshot: Snapshot) -> Refused | None:
    """A pod that cannot be read, or uses what the planner does not handle: it is never placed wrongly."""
    if pod.problem:
        return Refused(pod.key, (f"it cannot be read: {pod.problem}",))
    if pod.unhandled:
        return Refused(pod.key, tuple(f"{field} is not handled yet" for field in pod.unhandled))
    if not pod.near and not pod.apart:
        return None
    if not snapshot.namespaces and any(one.namespace_selector for one in (*pod.near, *pod.apart)):
        return Refused(pod.key, ("its namespaceSelector needs the labels of namespaces, which were not read",))
    return None


def following(pod: Pod) -> Refused:
    """A follower in a cluster that has no other work."""
    return Refused(
        pod.key, ("it follows: it never causes the first node, and takes a place on any node made for other pods",)
    )


def refused(
    waiting: Sequence[Waiting],
    tiers: Sequence[Tier],
    rooms: Sequence[Room],
    topology: Topology,
    disks: Disks,
    closed: Mapping[str, str],
) -> list[Refused]:
    """The pods that are left, each with a sentence per NodePool."""
    found = []
    for one in waiting:
        if one.keys:
            why = _why(one, tiers, rooms, topology, disks, closed)
            found += [Refused(key, why) for key in one.keys]
    return found


def _why(
    one: Waiting,
    tiers: Sequence[Tier],
    rooms: Sequence[Room],
    topology: Topology,
    disks: Disks,
    closed: Mapping[str, str],
) -> tuple[str, ...]:
    if not one.cls.demands:
        return ("its nodeSelector and node affinity contradict each other: no node could meet them",)
    demand = one.cls.demands[-1]
    rules = [rule for rule in topology.rules(one.cls, demand) if not isinstance(rule, FixedRule)]
    volumes = disks.reachable(one.cls.pod)
    said = [
        f"NodePool {template.pool.name}: {_of_pool(one, demand, tier, number, rules, volumes)}"
        for tier in tiers
        for number, template in enumerate(tier.market.templates)
    ]
    said += [f"NodePool {name}: {why}" for name, why in sorted(closed.items())]
    if not said:
        said = ["there is no NodePool"]
    if rooms:
        said.append(f"none of the {len(rooms)} nodes that exist or are in flight has room, labels and taints for it")
    return tuple(said)


def _of_pool(
    one: Waiting, demand: Demand, tier: Tier, number: int, rules: Sequence[Rule], volumes: Sequence[Requirements]
) -> str:
    market, template = tier.market, tier.market.templates[number]
    ours = market.of_template[number]
    if not ours:
        return _empty(market, number)
    missing = untolerated(template.taints, demand.tolerations)
    if missing:
        return f"it does not tolerate taint {missing[0]}"
    undeclared = template.requirements.undefined(demand.requirements, template.known)
    if undeclared:
        return _undeclared(undeclared[0], tier, number)
    left = ours
    for requirement in sorted(demand.requirements, key=lambda each: (ours & market.meeting(each)).bit_count()):
        kept = left & market.meeting(requirement)
        if not kept:
            return _conflict(requirement, market, left)
        left = kept
    fitting = left & market.fitting(one.size)
    if not fitting:
        return _too_large(one, market, left)
    if not market.enough(fitting):
        return _too_alike(market, number, fitting)
    if volumes and not any(fitting & market.meeting_all(one) for one in volumes):
        where = " or ".join(str(one) for one in volumes)
        return f"its volumes can be attached only where {where}, which none of the instance types left offers"
    if not fitting & tier.without_ports(one.cls.host_ports):
        return "a DaemonSet takes its host port on every node"
    return _rules(tier, fitting, rules) or _limit(tier, number, fitting)


def _empty(market: Market, number: int) -> str:
    """Why a pool has nothing to sell, whatever is asked."""
    template = market.templates[number]
    left: Sequence[InstanceType] = template.types
    for requirement in template.requirements:
        kept = [one for one in left if meets(one.requirements.get(requirement.key), requirement)]
        if not kept:
            known = {value for one in left for value in one.requirements.get(requirement.key).values}
            has = f"; they have {_listed(known)}" if known else ""
            return f"the pool's requirements filtered out all available instance types: none has {requirement}{has}"
        left = kept
    sold = [one for one in left if any(each.available and template.sells(each) for each in one.offerings)]
    if not sold:
        return _unsold(template, left)
    return f"none of the {len(sold)} instance types that meet the pool's requirements has room for its DaemonSets"


def _unsold(template: Template, types: Sequence[InstanceType]) -> str:
    """Which demand on zone or capacity type no available offering meets."""
    offered = [each for one in types for each in one.offerings if each.available]
    for key, values in (
        (labels.ZONE, {one.zone for one in offered}),
        (labels.CAPACITY_TYPE, {one.capacity_type for one in offered}),
    ):
        requirement = template.requirements.get(key)
        if offered and not any(requirement.has(value) for value in values):
            known = ", ".join(sorted(values))
            return (
                f"the pool's requirements filtered out all available offerings: none has {requirement}; known: {known}"
            )
    return (
        f"none of the {len(types)} instance types that meet the pool's requirements has an available offering"
        f"{_closed(types)}"
    )


def _closed(types: Iterable[InstanceType]) -> str:
    """What EC2 said of the offerings that are left alone for a while, with the number of offerings."""
    said = Counter(each.closed_for for one in types for each in one.offerings if each.closed_for)
    return f"; EC2 said lately: {', '.join(f'{code} ({said[code]})' for code in sorted(said))}" if said else ""


def _undeclared(key: str, tier: Tier, number: int) -> str:
    template = tier.market.templates[number]
    known = sorted(template.known.union(template.requirements.by_key))
    name = key.rpartition("/")[2]
    near = [one for one in known if one.rpartition("/")[2] == name] or [one for one in known if key in one]
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"label {key} has no known values there{hint}: declare it in the pool's labels or requirements"


def _conflict(requirement: Requirement, market: Market, left: int) -> str:
    stated = market.statements(requirement.key).items()
    shown = _listed(value for value, mask in stated if isinstance(value, str) and mask & left)
    kinds = {goods.type.name: goods.type for goods in market.goods if goods.mask & left}
    types = len({id(goods) for goods in market.goods if goods.mask & left})
    has = (f"; they have {shown}" if shown else "") + _closed(kinds.values())
    return f"it asks for {requirement}, which no offering of the {types} instance types left has now{has}"


def _listed(values: Iterable[str]) -> str:
    """The first values in order, and how many more there are."""
    ordered = sorted(values)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} others" if len(ordered) > 5 else "")


def _too_large(one: Waiting, market: Market, left: int) -> str:
    """The first resource that alone rules everything out, or the best compromise."""
    goods = [each for each in market.goods if each.mask & left]
    for place, name in enumerate(market.dimensions):
        most = max(goods, key=lambda each: (each.room[place], each.type.name))
        if one.size[place] > most.room[place]:
            return (
                f"it asks for {name} {quantity.text(name, one.size[place])}, the most is"
                f" {_amount(name, most.room[place])} on {most.type.name} ({len(goods)} instance types)"
            )
    asked = ", ".join(
        f"{name} {value}" for name, value in resources.text(one.cls.requests).items() if name != resources.PODS
    )
    return f"none of {len(goods)} instance types has {asked} together"


def _too_alike(market: Market, number: int, fitting: int) -> str:
    """Which minValues cannot be kept."""
    for key, least in market.least[number].items():
        kept = market.distinct(key, fitting & market.of_template[number], at_most=least)
        if kept < least:
            return f"minValues asks for {least} different values of {key}, the instance types that fit have {kept}"
    return "its minValues cannot be kept"


def _amount(name: str, size: int) -> str:
    return f"{size // 2**20}Mi" if name == resources.MEMORY and size % 2**20 else quantity.text(name, size)


def _rules(tier: Tier, fitting: int, rules: Sequence[Rule]) -> str:
    """The rule between pods that no domain keeps, or all of them if each alone could be kept."""
    for rule in rules:
        if rule.key == labels.HOSTNAME:
            possible = rule.allows("a new node")
        else:
            values = tier.values(rule.key, fitting, tier.keys.starts(fitting))
            possible = any(rule.allows(value) for value in values)
        if not possible:
            return f"no node it could make satisfies its {rule}"
    if not rules or any(not left for left in tier.allowance.left):
        return ""
    return "no node it could make satisfies all of: " + "; ".join(sorted({str(rule) for rule in rules}))


def _limit(tier: Tier, number: int, fitting: int) -> str:
    left = tier.allowance.left[number]
    smallest = min(
        (goods for goods in tier.market.goods if goods.mask & fitting),
        key=lambda each: (each.type.capacity.get(resources.CPU, 0), each.type.name),
    )
    for name, amount in sorted(left.items()):
        size = 1 if name == resources.NODES else smallest.type.capacity.get(name, 0)
        if size > amount:
            limit = tier.market.templates[number].pool.limits[name]
            return (
                f"its limit of {name} {quantity.text(name, limit)} leaves {quantity.text(name, max(amount, 0))}, the"
                f" smallest instance type that fits ({smallest.type.name}) counts {quantity.text(name, size)}"
            )
    return "its limits leave no room for a node that fits"
