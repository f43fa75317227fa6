"""Why a pod has no place: per NodePool, which demand removed what, with the nearest miss."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from spotwright.model import labels, quantity, resources
from spotwright.model.instancetype import InstanceType
from spotwright.model.pod import Pod
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import Snapshot
from spotwright.model.taints import untolerated
from spotwright.model.volumes import ENDLESS, driver_of, slot
from spotwright.scheduling.classes import Demand
from spotwright.scheduling.disks import Disks
from spotwright.scheduling.market import Goods, Market
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


def barren(tiers: Iterable[Tier]) -> dict[str, str]:
    """NodePools that sell nothing whatever is asked, and why."""
    return {
        template.pool.name: _empty(tier.market, number)
        for tier in tiers
        for number, template in enumerate(tier.market.templates)
        if not tier.market.of_template[number]
    }


def _why(
    one: Waiting,
    tiers: Sequence[Tier],
    rooms: Sequence[Room],
    topology: Topology,
    disks: Disks,
    closed: Mapping[str, str],
) -> tuple[str, ...]:
    if not one.cls.demands:
        if one.cls.pod.node_affinity and not any(one.cls.pod.node_affinity):
            return ("its node affinity matches no node: a term without matchExpressions matches nothing",)
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
            return _conflict(requirement, market, left, template)
        left = kept
    fitting = left & market.fitting(one.size)
    if not fitting:
        return _too_large(one, market, left, template)
    if not market.enough(fitting):
        return _too_alike(market, number, fitting)
    if volumes and not any(fitting & market.meeting_all(one) for one in volumes):
        return _out_of_reach(volumes, template)
    if not fitting & tier.without_ports(one.cls.host_ports):
        return "a DaemonSet takes its host port on every node"
    return _rule(tier, fitting, rules) or _limit(tier, number, fitting) or _together(rules)


def _out_of_reach(volumes: Sequence[Requirements], template: Template) -> str:
    """Where its volumes are, and what keeps the pool from there."""
    where = " or ".join(", ".join(map(str, one)) for one in volumes)
    barred = {
        str(ours)
        for one in volumes
        for asked in one
        if (ours := template.requirements.by_key.get(asked.key)) is not None and not meets(ours, asked)
    }
    why = f"the pool allows only {', '.join(sorted(barred))}" if barred else "none of the instance types left is sold"
    return f"its volumes can be attached only where {where}, but {why}{'' if barred else ' there'}"


def _empty(market: Market, number: int) -> str:
    """Why a pool has nothing to sell, whatever is asked."""
    template = market.templates[number]
    left: Sequence[InstanceType] = template.types
    for requirement in template.requirements:
        stated = {one.requirements.get(requirement.key) for one in left}
        met = {one for one in stated if meets(one, requirement)}
        if not met:
            known = {value for one in stated for value in one.values}
            has = f"; they have {_listed(known)}" if known else ""
            return f"the pool's requirements filtered out all available instance types: none has {requirement}{has}"
        if len(met) < len(stated):
            left = [one for one in left if one.requirements.get(requirement.key) in met]
    sold = {one.name for one in left if any(each.available and template.sells(each) for each in one.offerings)}
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
        f"none of the {len({one.name for one in types})} instance types that meet the pool's requirements has an"
        f" available offering"
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


def _conflict(requirement: Requirement, market: Market, left: int, template: Template) -> str:
    allowed = template.requirements.by_key.get(requirement.key)
    if allowed is not None and not meets(allowed, requirement):
        return f"it asks for {requirement}, but the pool allows only {allowed}: one of the two would have to change"
    stated = market.statements(requirement.key).items()
    shown = _listed(value for value, mask in stated if isinstance(value, str) and mask & left)
    kinds = [goods.type for goods in market.goods if goods.mask & left]
    types = len({one.name for one in kinds})
    has = (f"; they have {shown}" if shown else "") + _closed(kinds)
    return f"it asks for {requirement}, which no offering of the {types} instance types left has now{has}"


def _listed(values: Iterable[str]) -> str:
    """The first values in order, and how many more there are."""
    ordered = sorted(values)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} others" if len(ordered) > 5 else "")


def _too_large(one: Waiting, market: Market, left: int, template: Template) -> str:
    """The first resource that alone rules everything out, or the best compromise; then what the pool keeps away."""
    return _short_of(one, market, left) + _elsewhere(one, market, left) + _ruled_out(one, template)


def _elsewhere(one: Waiting, market: Market, left: int) -> str:
    """Where a type that has more in some offerings than in others has room for the pod."""
    number = market.goods_of[(left & -left).bit_length() - 1].template
    roomy = sum(goods.mask for goods in market.goods if goods.type.name in market.divided[number])
    roomy &= market.of_template[number] & market.fitting(one.size)
    if not roomy:
        return ""
    choice = (roomy & -roomy).bit_length() - 1
    offer = market.offers[choice]
    return f"; {market.goods_of[choice].type.name} has room for it as {offer.capacity_type} in {offer.zone}"


def _ruled_out(one: Waiting, template: Template) -> str:
    """The smallest type with room for the pod that only the pool's own requirements rule out."""
    asked = one.cls.requests
    unlimited = {name: ENDLESS for name in asked if driver_of(name)}
    fitting = [each for each in template.types if resources.fits(asked, unlimited | _offered(each))]
    for each in sorted(fitting, key=lambda each: (each.allocatable.get(resources.CPU, 0), each.name)):
        unmet = [
            demand
            for demand in template.requirements
            if demand.key in each.requirements and not meets(each.requirements.get(demand.key), demand)
        ]
        if len(unmet) == 1:
            return f"; {each.name} would hold it, but for the pool's {unmet[0]}"
    return ""


def _offered(one: InstanceType) -> dict[str, int]:
    return one.allocatable | {slot(driver): count for driver, count in one.attachable.items()}


def _short_of(one: Waiting, market: Market, left: int) -> str:
    goods = [each for each in market.goods if each.mask & left]
    for place, name in enumerate(market.dimensions):
        most = max(goods, key=lambda each: (each.room[place], each.type.name))
        if one.size[place] > 0 and most.room[place] <= 0:
            asked = quantity.text(name, one.size[place])
            return f"it asks for {name} {asked}, none of {_types(goods)} has any"
        if one.size[place] > most.room[place] and driver_of(name):
            return (
                f"it attaches {one.size[place]} volumes through {driver_of(name)}, the most is"
                f" {most.room[place]} on {most.type.name} ({_types(goods)})"
            )
        if one.size[place] > most.room[place]:
            return (
                f"it asks for {name} {quantity.text(name, one.size[place])}, the most is"
                f" {_amount(name, most.room[place])} on {most.type.name} ({_types(goods)})"
            )
    asked = ", ".join(
        f"{driver_of(name) or name} {value}"
        for name, value in resources.text(one.cls.requests).items()
        if name != resources.PODS
    )
    return f"none of {_types(goods)} has {asked} together"


def _types(goods: Sequence[Goods]) -> str:
    number = len({one.type.name for one in goods})
    return f"{number} instance type{'' if number == 1 else 's'}"


def _too_alike(market: Market, number: int, fitting: int) -> str:
    """Which minValues cannot be kept."""
    for key, least in market.least[number].items():
        ours = fitting & market.of_template[number]
        if market.distinct(key, ours, at_most=least) < least:
            kept = _listed(
                value for value, mask in market.statements(key).items() if mask & ours and isinstance(value, str)
            )
            return f"minValues asks for {least} different values of {key}, the instance types that fit have only {kept}"
    return "its minValues cannot be kept"


def _amount(name: str, size: int) -> str:
    return f"{size // 2**20}Mi" if name == resources.MEMORY and size % 2**20 else quantity.text(name, size)


def _rule(tier: Tier, fitting: int, rules: Sequence[Rule]) -> str:
    """The rule between pods that no domain keeps."""
    for rule in rules:
        if rule.key == labels.HOSTNAME:
            possible = rule.allows("a new node")
        else:
            values = tier.values(rule.key, fitting, tier.keys.starts(fitting))
            possible = any(rule.allows(value) for value in values)
        if not possible:
            return f"no node it could make satisfies its {rule}"
    return ""


def _together(rules: Sequence[Rule]) -> str:
    """What is left to blame when each demand alone could be met."""
    if not rules:
        return "nodes it could make are needed for pods that come first"
    return "no node it could make satisfies all of: " + "; ".join(sorted({str(rule) for rule in rules}))


def _limit(tier: Tier, number: int, fitting: int) -> str:
    """The limit that leaves no room for even the smallest node that fits; "" if there is none."""
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
    return ""
