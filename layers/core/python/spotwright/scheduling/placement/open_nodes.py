"""Nodes in the making whose pods have rules about each other: each pod narrows what its node can become."""

from collections.abc import Iterator, Sequence
from itertools import product

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import Requirement, Requirements, conjunction
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED
from spotwright.scheduling.packing.problem import PER_NODE_COST_PICOUSD_PER_HOUR
from spotwright.scheduling.placement.pending_pods import PendingClass
from spotwright.scheduling.placement.planned_nodes import PlannedNode, PodCount
from spotwright.scheduling.placement.weight_groups import WeightGroup
from spotwright.scheduling.topology.domain_rules import DomainRule

# A pod joins a node only while the node stays within this size; one that needs more gets it on a node of its own.
_SIZE = 48_000


class OfferingOptions:
    """What a node can still become: choices, open keys, and what volumes and rules between pods ask of its labels."""

    __slots__ = ("label_bits", "offerings", "topology_requirements")

    def __init__(self, mask: int, fields: int = UNCONSTRAINED, pins: Requirements | None = None) -> None:
        self.offerings = mask
        self.label_bits = fields
        self.topology_requirements = pins or Requirements()


class OpenNode:
    """A node in the making. ``options`` narrows with every pod; ``offering`` is the cheapest that would do now."""

    __slots__ = (
        "host_ports",
        "name",
        "offering",
        "options",
        "placed_pods",
        "pod_counts",
        "recorded_counts",
        "template_index",
        "usage",
        "weight_group",
    )

    def __init__(self, name: str, tier: WeightGroup, template: int, state: OfferingOptions) -> None:
        self.name = name
        self.weight_group = tier
        self.template_index = template
        self.options = state
        self.offering = -1
        self.usage = (0,) * len(tier.offering_index.dimensions)
        self.pod_counts: list[tuple[PodClass, int]] = []
        self.placed_pods: list[tuple[PodRequirements, tuple[str, ...]]] = []
        self.recorded_counts: dict[str, int] = {}
        self.host_ports: tuple[HostPort, ...] = ()

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.weight_group.offering_index.templates[self.template_index].taints

    def domain(self, key: str) -> str | None:
        if key == labels.HOSTNAME:
            return self.name
        return self.options.topology_requirements.get(key).sole_value or self.weight_group.certain_value(
            key, self.options.offerings
        )

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return bool(self.weight_group.offering_index.offerings_meeting_all(requirements) & self.options.offerings)

    def add_pod(self, waiting: PendingClass, demand: PodRequirements, state: OfferingOptions, choice: int) -> None:
        """Seat the next pod of a class; limits follow the choice."""
        if self.offering >= 0:
            self.weight_group.limits.spend(self.weight_group.offering_index, self.offering, -1)
        self.weight_group.limits.spend(self.weight_group.offering_index, choice, 1)
        self.offering, self.host_ports = choice, self.host_ports + waiting.pod_class.host_ports
        self.add_pods(waiting, demand, 1, state)

    def interchangeable_offerings(self) -> int:
        """Choices of the type it counts on, under the same capacity type or reservation."""
        market = self.weight_group.offering_index
        kind = market.offerings[self.offering].capacity_type
        same = market.pool_type_of[self.offering].offerings & market.offerings_meeting(
            Requirement(labels.CAPACITY_TYPE, False, frozenset((kind,)))
        )
        return market.same_reservation(same, self.offering)

    def add_pods(self, waiting: PendingClass, demand: PodRequirements, count: int, state: OfferingOptions) -> None:
        """Seat pods that its type has room for; the zone may become another."""
        alike = state.offerings & self.interchangeable_offerings()
        if not alike >> self.offering & 1:
            self.offering = (alike & -alike).bit_length() - 1
        self.usage = tuple(one + count * other for one, other in zip(self.usage, waiting.size, strict=True))
        self.pod_counts.append((waiting.pod_class, count))
        self.placed_pods.append((demand, waiting.take(count)))
        self.options = state

    @staticmethod
    def from_planned_node(draft: PlannedNode, tier: WeightGroup, pods: tuple[str, ...], name: str) -> "OpenNode":
        """A node that was packed, as one that may take more."""
        site = OpenNode(
            name,
            tier,
            draft.template_index,
            OfferingOptions(draft.offerings, draft.label_bits, draft.topology_requirements),
        )
        site.offering, site.usage = draft.offering, draft.usage
        left = list(pods)
        for member in draft.pod_counts:
            site.pod_counts.append((member.pod_class, member.count))
            site.placed_pods.append((member.pod_requirements, tuple(left[: member.count])))
            site.host_ports += member.pod_class.host_ports * member.count
            del left[: member.count]
        return site

    def to_planned_node(self) -> PlannedNode:
        """The node as decided."""
        members = [
            PodCount(cls, demand, count)
            for (cls, count), (demand, _) in zip(self.pod_counts, self.placed_pods, strict=True)
        ]
        draft = PlannedNode(
            self.weight_group.offering_index, self.offering, members, self.weight_group.undetermined_labels
        )
        draft.topology_requirements = self.options.topology_requirements
        draft.narrow([(self.options.offerings, self.options.label_bits)])
        draft.pods_by_node.append(tuple(key for _, keys in self.placed_pods for key in keys))
        return draft


class NodeOption:
    """A way to seat one pod. ``cost``: what it adds to the price, in picodollars per hour."""

    __slots__ = ("cost", "offering", "open_node", "options", "rank")

    def __init__(self, site: OpenNode, state: OfferingOptions, choice: int, rank: int, cost: int) -> None:
        self.open_node = site
        self.options = state
        self.offering = choice
        self.rank = rank
        self.cost = cost


def find_join_option(
    site: OpenNode,
    waiting: PendingClass,
    demand: PodRequirements,
    rules: Sequence[DomainRule],
    volumes: Sequence[Requirements],
) -> NodeOption | None:
    """The best way for one more pod to join a node in the making; None if it cannot."""
    if not all(rule.allows(site.name) for rule in rules if rule.topology_key == labels.HOSTNAME):
        return None
    if any(host_port.conflicts_with(port) for host_port in waiting.pod_class.host_ports for port in site.host_ports):
        return None
    used = [one + other for one, other in zip(site.usage, waiting.size, strict=True)]
    tier, before = site.weight_group, site.weight_group.price(site.offering)
    if not site.options.offerings & tier.offering_index.offerings_with_room(used):
        return None
    most = max(_SIZE, tier.millicores(site.offering))
    best: NodeOption | None = None
    for state, rank in _states(tier, site.options, waiting, demand, rules, volumes):
        mask = tier.suitable_offerings(state.offerings, used, most)
        choice = tier.cheapest_offering(mask, instead_of=site.offering)
        if choice >= 0:
            option = NodeOption(
                site,
                OfferingOptions(mask, state.label_bits, state.topology_requirements),
                choice,
                rank,
                tier.price(choice) - before,
            )
            best = _better(best, option)
    return best


def find_new_node_option(
    name: str,
    tier: WeightGroup,
    waiting: PendingClass,
    demand: PodRequirements,
    rules: Sequence[DomainRule],
    volumes: Sequence[Requirements],
) -> NodeOption | None:
    """The best node of its own for a pod; None if the tier has none."""
    if not all(rule.allows(name) for rule in rules if rule.topology_key == labels.HOSTNAME):
        return None
    best: NodeOption | None = None
    for state, rank in _states(
        tier, OfferingOptions(tier.offering_index.all_offerings), waiting, demand, rules, volumes
    ):
        mask = tier.suitable_offerings(state.offerings, waiting.size, None)
        choice = tier.cheapest_offering(mask, instead_of=-1)
        if choice >= 0:
            template = tier.offering_index.pool_type_of[choice].template_index
            ours = tier.offering_index.same_reservation(
                mask & tier.offering_index.offerings_of_template[template], choice
            )
            site = OpenNode(name, tier, template, OfferingOptions(ours))
            option = NodeOption(
                site,
                OfferingOptions(ours, state.label_bits, state.topology_requirements),
                choice,
                rank,
                tier.price(choice) + PER_NODE_COST_PICOUSD_PER_HOUR,
            )
            best = _better(best, option)
    return best


def _better(best: NodeOption | None, other_node_option: NodeOption) -> NodeOption:
    if best is None or (other_node_option.rank, other_node_option.cost) < (best.rank, best.cost):
        return other_node_option
    return best


def _states(
    tier: WeightGroup,
    start: OfferingOptions,
    waiting: PendingClass,
    demand: PodRequirements,
    rules: Sequence[DomainRule],
    volumes: Sequence[Requirements],
) -> Iterator[tuple[OfferingOptions, int]]:
    """What is left of a node with the pod on it, one for each choice of volumes' places and of domains."""
    mask = (
        start.offerings
        & tier.compatible_offerings(demand)
        & tier.offerings_without_port_conflicts(waiting.pod_class.host_ports)
    )
    if not mask:
        return
    fields = start.label_bits & tier.undetermined_labels.requirement_bits(demand.requirements)
    if not volumes:
        mask = tier.undetermined_labels.narrow(mask, fields)
        if mask:
            yield from _pinned(tier, OfferingOptions(mask, fields, start.topology_requirements), rules)
        return
    for reachable in volumes:
        pins = conjunction((*start.topology_requirements, *reachable))
        if pins is None:
            continue
        near = mask & tier.offering_index.offerings_meeting_all(reachable)
        left = fields & tier.undetermined_labels.requirement_bits(reachable)
        near = tier.undetermined_labels.narrow(near, left)
        if near:
            yield from _pinned(tier, OfferingOptions(near, left, pins), rules)


def _pinned(
    tier: WeightGroup, state: OfferingOptions, rules: Sequence[DomainRule]
) -> Iterator[tuple[OfferingOptions, int]]:
    """Every combination of domains that all rules allow."""
    keys = sorted({rule.topology_key for rule in rules if rule.topology_key != labels.HOSTNAME})
    if not keys:
        yield state, 0
        return
    choices = [_domains(tier, state, key, [rule for rule in rules if rule.topology_key == key]) for key in keys]
    for several in product(*choices):
        fixed = Requirements(
            {
                key: Requirement(key, False, frozenset((value,)))
                for key, (value, _) in zip(keys, several, strict=True)
                if value is not None
            }
        )
        fields = state.label_bits & tier.undetermined_labels.requirement_bits(fixed)
        mask = tier.undetermined_labels.narrow(
            state.offerings & tier.offering_index.offerings_meeting_all(fixed), fields
        )
        if mask:
            yield (
                OfferingOptions(mask, fields, state.topology_requirements.intersection(fixed)),
                sum(rank for _, rank in several),
            )


def _domains(
    tier: WeightGroup, state: OfferingOptions, key: str, rules: Sequence[DomainRule]
) -> list[tuple[str | None, int]]:
    """The values of a label that are possible and allowed, with their rank; (None, 0) where it may stay away."""
    sole = state.topology_requirements.get(key).sole_value
    values = [sole] if sole is not None else tier.possible_values(key, state.offerings, state.label_bits)
    allowed = (value for value in values if all(rule.allows(value) for rule in rules))
    return [(one, 0 if one is None else sum(rule.rank(one) for rule in rules)) for one in allowed]
