"""A node that was decided, from the shape it was packed for to what may be launched."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from spotwright.model import labels, quantity, resources
from spotwright.model.ec2.instance_type import PICOUSD, Offering
from spotwright.model.kubernetes.volumes import csi_driver
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements
from spotwright.scheduling.inputs.relaxation import relaxed_preferences
from spotwright.scheduling.offerings.offering_index import OfferingIndex, PoolInstanceType, Vector, iterate_bits
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED, UndeterminedLabels
from spotwright.scheduling.offerings.unintended_offerings import find_unintended_offerings, offering_label
from spotwright.scheduling.packing.problem import RemainingLimits
from spotwright.scheduling.plan import AlternativeOffering, NewNode

# A launch sends at most 60 types to EC2 after its own filters; more only make claims and decisions long.
MAX_INSTANCE_TYPES: Final = 100
# Where a pool asks for a number of different values, as many as Karpenter keeps.
MAX_INSTANCE_TYPES_WITH_MIN_VALUES: Final = 600
_ALTERNATIVES: Final = 4
_PLACE: Final = (labels.ZONE, labels.CAPACITY_TYPE)


class PodCount:
    """How many pods of one class each node of a draft holds, under the demand they were placed by."""

    __slots__ = ("count", "pod_class", "pod_requirements")

    def __init__(self, cls: PodClass, demand: PodRequirements, count: int) -> None:
        self.pod_class = cls
        self.pod_requirements = demand
        self.count = count


class PlannedNode:
    """Equal nodes to make. ``offering``: what they were packed for; ``offerings``: every choice that would do.

    ``pods_by_node``: the pods of each node, by name.
    """

    __slots__ = (
        "label_bits",
        "offering",
        "offering_index",
        "offerings",
        "pod_counts",
        "pods_by_node",
        "topology_requirements",
        "undetermined_labels",
        "usage",
    )

    def __init__(
        self, market: OfferingIndex, choice: int, members: Sequence[PodCount], keys: UndeterminedLabels
    ) -> None:
        self.offering_index = market
        self.offering = choice
        self.pod_counts = tuple(members)
        self.undetermined_labels = keys
        self.pods_by_node: list[tuple[str, ...]] = []
        self.topology_requirements = Requirements()
        self.usage = _used(market, members)
        self.label_bits = UNCONSTRAINED
        self.offerings = market.offerings_of_template[
            market.pool_type_of[choice].template_index
        ] & market.offerings_with_room(self.usage)

    def narrow(self, asked: Iterable[tuple[int, int]]) -> None:
        """Leave what these demands leave: (choices, open keys) of each."""
        for choices, fields in asked:
            self.offerings &= choices
            self.label_bits &= fields
        mask = self.offering_index.same_reservation(
            self.undetermined_labels.narrow(self.offerings, self.label_bits), self.offering
        )
        self.offerings = self.offering_index.keep_min_values(mask & self.offering_index.general_purpose) or mask

    @property
    def cheapest_pool_type(self) -> PoolInstanceType:
        """The cheapest that would do."""
        return self.offering_index.pool_type_of[(self.offerings & -self.offerings).bit_length() - 1]

    @property
    def template_index(self) -> int:
        return self.offering_index.pool_type_of[self.offering].template_index


def _used(market: OfferingIndex, members: Iterable[PodCount]) -> Vector:
    total = [0] * len(market.dimensions)
    for member in members:
        for place, name in enumerate(market.dimensions):
            total[place] += member.pod_class.requests.get(name, 0) * member.count
    return tuple(total)


def restrict_to_limits(drafts: Sequence[PlannedNode], allowance: RemainingLimits) -> None:
    """Drop choices until the limits hold whichever is launched.

    ``allowance``: what the limits left before any of these nodes, per template of their one market. A pool far from
    its limits keeps everything; near them, a node keeps what counts no more than what it was packed for.
    """
    for number, left in enumerate(allowance.by_template):
        planned_nodes = [one for one in drafts if one.template_index == number]
        if not planned_nodes or not left:
            continue
        nodes = {resources.NODES: sum(len(one.pods_by_node) for one in planned_nodes)}
        largest = resources.add(
            *(resources.scale(_largest(one, left), len(one.pods_by_node)) for one in planned_nodes), nodes
        )
        if any(largest.get(name, 0) > amount for name, amount in left.items()):
            for planned_node in planned_nodes:
                planned_node.offerings &= _no_larger(planned_node, left)


def _largest(draft: PlannedNode, limited: Iterable[str]) -> dict[str, int]:
    kept = [
        goods.instance_type.capacity for goods in draft.offering_index.pool_types if goods.offerings & draft.offerings
    ]
    return {name: max(one.get(name, 0) for one in kept) for name in limited if name != resources.NODES}


def _no_larger(draft: PlannedNode, limited: Iterable[str]) -> int:
    ours = draft.offering_index.pool_type_of[draft.offering].instance_type.capacity
    mask = 0
    for goods in draft.offering_index.pool_types:
        if goods.offerings & draft.offerings and all(
            goods.instance_type.capacity.get(name, 0) <= ours.get(name, 0) for name in limited
        ):
            mask |= goods.offerings
    return mask


def to_new_nodes(draft: PlannedNode) -> tuple[NewNode, ...]:
    """The nodes as a plan states them."""
    market, template = draft.offering_index, draft.offering_index.templates[draft.template_index]
    if market.split_types[draft.template_index]:
        draft.offerings = _meant(draft)
    goods, mask = _types(draft)
    names = tuple(dict.fromkeys(pool_type.instance_type.name for pool_type in goods))
    requirements = _achieved(draft.offering_index, mask, _requirements(draft, goods, mask))
    cheapest = (mask & -mask).bit_length() - 1
    binding = _binding(draft)
    other_alternatives = _alternatives(draft, mask, cheapest)
    node = NewNode(
        nodepool=template.nodepool.name,
        nodeclass=template.nodepool.node_class_ref.name,
        pods=(),
        instance_types=names,
        requirements=requirements.node_selector_requirements(),
        labels=template.labels | _resolved(draft, requirements),
        taints=template.nodepool.taints,
        startup_taints=template.nodepool.startup_taints,
        requests=_requests(draft, goods),
        price_picousd_per_hour=market.prices[cheapest],
        capacity_type=market.offerings[cheapest].capacity_type,
        zones=_values(market, labels.ZONE, mask),
        reason=_reason(draft, cheapest, names, binding, other_alternatives),
        binding_resource=binding,
        alternatives=other_alternatives,
        relaxed_preferences=relaxed_preferences(
            (pod_count.pod_class, pod_count.pod_requirements, pod_count.count)
            for pod_count in draft.pod_counts
            if pod_count.pod_requirements is not pod_count.pod_class.requirement_levels[0]
        ),
        price_overlay_applied=any(pool_type.instance_type.price_overlay_applied for pool_type in goods),
        capacity_overlay_applied=any(pool_type.instance_type.capacity_overlay_applied for pool_type in goods),
    )
    return tuple(msgspec.structs.replace(node, pods=tuple(sorted(pods))) for pods in draft.pods_by_node)


def _meant(draft: PlannedNode) -> int:
    """Its choices, so few that a launch can take no other offering; minValues come first.

    The cheapest stays: where its own type is the trouble, no type is bought in those zones, or as that capacity type.
    """
    market, mask = draft.offering_index, draft.offerings
    cheapest = (mask & -mask).bit_length() - 1
    own, offer = instance_type_name(market, cheapest), market.offerings[cheapest]
    lost = _strays(draft, mask)
    for key in sorted(
        _PLACE,
        key=lambda key: any(
            offering_label(offering, key) == offering_label(offer, key) for offering in lost.get(own, ())
        ),
    ):
        away = frozenset(offering_label(offering, key) for offering in lost.get(own, ())) - {offering_label(offer, key)}
        if away:
            mask &= market.offerings_meeting(Requirement(key, True, away))
            lost = _strays(draft, mask)
    for goods in market.pool_types:
        if goods.instance_type.name in lost and goods.instance_type.name != own:
            mask &= ~goods.offerings
    return market.keep_min_values(mask) or draft.offerings


def _strays(draft: PlannedNode, mask: int) -> dict[str, list[Offering]]:
    goods = [pool_type for pool_type in draft.offering_index.pool_types if pool_type.offerings & mask]
    requirements = _requirements(draft, goods, mask)
    return find_unintended_offerings(
        draft.offering_index, draft.template_index, mask, requirements, _requests(draft, goods)
    )


def _types(draft: PlannedNode) -> tuple[list[PoolInstanceType], int]:
    """The cheapest types, with all that is left of each, and the choices that they leave."""
    pool_types: list[PoolInstanceType] = []
    names: set[str] = set()
    left, kept = draft.offerings, 0
    most = (
        MAX_INSTANCE_TYPES_WITH_MIN_VALUES
        if draft.offering_index.min_values[draft.template_index]
        else MAX_INSTANCE_TYPES
    )
    while left and len(names) < most:
        goods = draft.offering_index.pool_type_of[(left & -left).bit_length() - 1]
        left &= ~goods.offerings
        kept |= goods.offerings
        names.add(goods.instance_type.name)
        pool_types.append(goods)
    divided = names & draft.offering_index.split_types[draft.template_index]
    rest = (
        [
            pool_type
            for pool_type in draft.offering_index.pool_types
            if pool_type.offerings & left and pool_type.instance_type.name in divided
        ]
        if divided
        else []
    )
    return [*pool_types, *rest], draft.offerings & reduce(or_, (pool_type.offerings for pool_type in rest), kept)


def _values(market: OfferingIndex, key: str, mask: int) -> tuple[str, ...]:
    statements = market.label_statements(key)
    return tuple(sorted(value for value, choices in statements.items() if isinstance(value, str) and choices & mask))


def _requirements(draft: PlannedNode, goods: Iterable[PoolInstanceType], mask: int) -> Requirements:
    """What a NodeClaim asks for that is to be one of these choices."""
    together = draft.offering_index.templates[draft.template_index].requirements.intersection(
        draft.topology_requirements
    )
    asked = dict.fromkeys(
        requirement
        for member in draft.pod_counts
        for requirement in member.pod_requirements.requirements.by_key.values()
    )
    together = together.intersection(asked)
    narrowed = [
        Requirement(labels.INSTANCE_TYPE, False, frozenset(pool_type.instance_type.name for pool_type in goods)),
        Requirement(labels.CAPACITY_TYPE, False, frozenset(_values(draft.offering_index, labels.CAPACITY_TYPE, mask))),
    ]
    if _is_divided(draft, goods):
        zones, every = (
            _values(draft.offering_index, labels.ZONE, one)
            for one in (mask, draft.offering_index.offerings_of_template[draft.template_index])
        )
        if zones != every:
            narrowed.append(Requirement(labels.ZONE, False, frozenset(zones)))
    reservation = draft.offering_index.reservation_ids[draft.offering]
    if reservation:
        narrowed.append(Requirement(labels.RESERVATION_ID, False, frozenset((reservation,))))
    return together.intersection(narrowed)


def _is_divided(draft: PlannedNode, goods: Iterable[PoolInstanceType]) -> bool:
    """Whether a type has other resources in some offerings: then a claim says where all of its pods have room."""
    divided = draft.offering_index.split_types[draft.template_index]
    return bool(divided) and any(pool_type.instance_type.name in divided for pool_type in goods)


def _achieved(market: OfferingIndex, mask: int, requirements: Requirements) -> Requirements:
    """Requirements whose minValues are no more than what the types keep; less only where that is allowed."""
    changed = {}
    for requirement in requirements:
        if requirement.min_values:
            kept = market.count_values(requirement.key, mask, at_most=requirement.min_values)
            changed[requirement.key] = msgspec.structs.replace(requirement, min_values=kept)
    return Requirements(requirements.by_key | changed)


def _resolved(draft: PlannedNode, requirements: Requirements) -> dict[str, str]:
    """A value for every label of the user's own that must be there."""
    known = draft.offering_index.templates[draft.template_index].known_label_keys
    left = draft.label_bits & draft.undetermined_labels.initial_bits(draft.offering)
    found = {}
    for requirement in requirements:
        open_key = draft.undetermined_labels.get(requirement.key)
        absent = open_key.allows_absence(left) if open_key else requirement.allows_absence
        if requirement.key not in known and not absent:
            found[requirement.key] = (
                requirement.sole_value
                or (open_key.first_value(left) if open_key else None)
                or allowed_value(requirement)
            )
    return found


def allowed_value(requirement: Requirement) -> str:
    """A value that the requirement allows: the first it lists, or the smallest number."""
    if not requirement.complement:
        return min(requirement.values)
    number = requirement.gte or 0
    while not requirement.has(str(number)):
        number += 1
    return str(number)


def _requests(draft: PlannedNode, kept: Sequence[PoolInstanceType]) -> dict[str, int]:
    """What the pods ask for, and the least that the daemons will."""
    overheads = {id(goods.daemon_overhead): goods.daemon_overhead for goods in kept}
    names = {name for one in overheads.values() for name in one}
    least = {name: min(one.get(name, 0) for one in overheads.values()) for name in names}
    pods = dict(zip(draft.offering_index.dimensions, draft.usage, strict=True))
    return {name: size for name, size in sorted(resources.add(pods, least).items()) if size and not csi_driver(name)}


def _binding(draft: PlannedNode) -> str:
    """The resource of which least is left on the cheapest type, by share."""
    room = draft.cheapest_pool_type.free_capacity
    shares = [used / size if size else 0.0 for used, size in zip(draft.usage, room, strict=True)]
    return draft.offering_index.dimensions[shares.index(max(shares))]


def _alternatives(draft: PlannedNode, mask: int, cheapest: int) -> tuple[AlternativeOffering, ...]:
    """The next best types, and the best under each other capacity type."""
    market, found = draft.offering_index, list[int]()
    seen = {instance_type_name(market, cheapest)}
    for choice in iterate_bits(mask):
        if len(found) == _ALTERNATIVES:
            break
        if instance_type_name(market, choice) not in seen:
            seen.add(instance_type_name(market, choice))
            found.append(choice)
    for value, choices in market.label_statements(labels.CAPACITY_TYPE).items():
        other = choices & mask
        if value != market.offerings[cheapest].capacity_type and other:
            found.append((other & -other).bit_length() - 1)
    return tuple(_alternative(market, choice) for choice in sorted(set(found)))


def instance_type_name(market: OfferingIndex, choice: int) -> str:
    return market.pool_type_of[choice].instance_type.name


def _alternative(market: OfferingIndex, choice: int) -> AlternativeOffering:
    offer = market.offerings[choice]
    return AlternativeOffering(
        instance_type_name(market, choice), offer.capacity_type, offer.zone, market.prices[choice]
    )


def _reason(
    draft: PlannedNode,
    cheapest: int,
    names: Sequence[str],
    binding: str,
    other_alternatives: Sequence[AlternativeOffering],
) -> str:
    market, offer = draft.offering_index, draft.offering_index.offerings[cheapest]
    pods = sum(member.count for member in draft.pod_counts)
    place = market.dimensions.index(binding)
    used, room = draft.usage[place], market.pool_type_of[cheapest].free_capacity[place]
    text = (
        f"{instance_type_name(market, cheapest)} {offer.capacity_type} at {format_price(market.prices[cheapest])}"
        f" is the cheapest of {_count(len(names), 'type')} with room for {_count(pods, 'pod')};"
        f" {_filled(binding, used, room)}"
    )
    for other_alternative in other_alternatives[:1]:
        price = format_price(other_alternative.price_picousd_per_hour)
        text += f"; next is {other_alternative.instance_type} {other_alternative.capacity_type} at {price}"
    return text


def _filled(binding: str, used: int, room: int) -> str:
    driver = csi_driver(binding)
    if driver:
        return f"its volumes fill it: {used} of {room} that it can attach through {driver}"
    return f"{binding} fills it: {quantity.text(binding, used)} of {_rounded(binding, room)} that daemons leave"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rounded(resource: str, size: int) -> str:
    return f"{size // 2**20}Mi" if resource == resources.MEMORY and size % 2**20 else quantity.text(resource, size)


def format_price(picousd: int) -> str:
    """``$0.3060/h``."""
    return f"${picousd / PICOUSD:.4f}/h"
