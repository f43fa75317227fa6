"""Ways to place one more pod with rules: on a planned node, or on a new one."""

from collections.abc import Iterator, Sequence

import msgspec

from spotwright.model import labels
from spotwright.model.requirements import Requirement, Requirements, conjunction
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.packing.problem import PER_NODE_COST_PICOUSD_PER_HOUR
from spotwright.scheduling.topology.domain_rules import DomainRule

# A pod joins a node only while the node stays within this size; a pod that needs more gets a node of its own.
_SHARED_NODE_MILLICORES = 48_000


class PodNeeds(msgspec.Struct, frozen=True):
    """What the next pod of a class needs of its node.

    ``rules``: which domains it may join, as the counts stand; ``volume_requirements``: where its volumes can be
    attached, alternatives of which one must hold, () = anywhere.
    """

    pending_class: PendingClass
    pod_requirements: PodRequirements
    rules: Sequence[DomainRule]
    volume_requirements: Sequence[Requirements]

    def allows_host(self, name: str) -> bool:
        return all(rule.allows(name) for rule in self.rules if rule.topology_key == labels.HOSTNAME)

    @property
    def domain_keys(self) -> list[str]:
        """Labels other than the host's that its rules look at."""
        return sorted({rule.topology_key for rule in self.rules if rule.topology_key != labels.HOSTNAME})


class NodeOption:
    """A way to place a pod. ``cost``: what it adds to the price, in picodollars per hour.

    ``rank``: how many pods the pod's spread constraints count in its domains.
    """

    __slots__ = ("cost", "offering", "options", "planned_node", "rank")

    def __init__(
        self, planned_node: PlannedNode, options: OfferingOptions, offering: int, rank: int, cost: int
    ) -> None:
        self.planned_node = planned_node
        self.options = options
        self.offering = offering
        self.rank = rank
        self.cost = cost

    def choose(self, needs: PodNeeds) -> None:
        """Put the pod there."""
        self.planned_node.resize(self.offering)
        self.planned_node.add_pods(needs.pending_class, needs.pod_requirements, 1, self.options)


def find_join_option(planned_node: PlannedNode, needs: PodNeeds) -> NodeOption | None:
    """The best way for a pod to join a planned node; None if it cannot."""
    pending_class, group = needs.pending_class, planned_node.weight_group
    if not needs.allows_host(planned_node.name):
        return None
    host_ports = pending_class.pod_class.host_ports
    if host_ports and any(port.conflicts_with(used) for port in host_ports for used in planned_node.host_ports):
        return None
    usage = [used + size for used, size in zip(planned_node.usage, pending_class.size, strict=True)]
    if not planned_node.options.offerings & group.offering_index.by_capacity.with_room(usage):
        return None
    before, largest = group.price(planned_node.offering), group.millicores(planned_node.offering)
    best: NodeOption | None = None
    for options, rank in _narrowed_options(group, planned_node.options, needs):
        offerings = group.suitable_offerings(options.offerings, usage, max(_SHARED_NODE_MILLICORES, largest))
        offering = group.cheapest_offering(offerings, instead_of=planned_node.offering)
        if offering >= 0:
            options = msgspec.structs.replace(options, offerings=offerings)
            best = _better(best, NodeOption(planned_node, options, offering, rank, group.price(offering) - before))
    return best


def find_new_node_option(name: str, group: WeightGroup, needs: PodNeeds) -> NodeOption | None:
    """The best node of its own for a pod; None if the NodePools of this weight have none."""
    if not needs.allows_host(name):
        return None
    index = group.offering_index
    best: NodeOption | None = None
    for options, rank in _narrowed_options(group, OfferingOptions(index.all_offerings), needs):
        offerings = group.suitable_offerings(options.offerings, needs.pending_class.size, None)
        offering = group.cheapest_offering(offerings, instead_of=-1)
        if offering >= 0:
            template = index.pool_type_of[offering].template_index
            offerings = index.same_reservation(offerings & index.offerings_of_template[template], offering)
            options = msgspec.structs.replace(options, offerings=offerings)
            planned_node = PlannedNode(group, template, options, name)
            cost = group.price(offering) + PER_NODE_COST_PICOUSD_PER_HOUR
            best = _better(best, NodeOption(planned_node, options, offering, rank, cost))
    return best


def _better(best: NodeOption | None, option: NodeOption) -> NodeOption:
    return option if best is None or (option.rank, option.cost) < (best.rank, best.cost) else best


def _narrowed_options(
    group: WeightGroup, start: OfferingOptions, needs: PodNeeds
) -> Iterator[tuple[OfferingOptions, int]]:
    """What is left of a node with the pod on it, for each choice of its volumes' places and of its domains."""
    offerings = start.offerings & group.compatible_offerings(needs.pod_requirements)
    offerings &= group.offerings_without_port_conflicts(needs.pending_class.pod_class.host_ports)
    if not offerings:
        return
    label_bits = start.label_bits & group.undetermined_labels.requirement_bits(needs.pod_requirements.requirements)
    for reachable in needs.volume_requirements or (Requirements(),):
        topology_requirements = conjunction((*start.topology_requirements, *reachable))
        if topology_requirements is not None:
            left = label_bits & group.undetermined_labels.requirement_bits(reachable)
            near = offerings & group.offering_index.by_label.meeting_all(reachable)
            near = group.undetermined_labels.narrow(near, left)
            if near:
                yield from _with_domains(group, OfferingOptions(near, left, topology_requirements), needs)


def _with_domains(
    group: WeightGroup, options: OfferingOptions, needs: PodNeeds
) -> Iterator[tuple[OfferingOptions, int]]:
    """The options in every combination of domains that all rules allow, each with its rank."""
    keys = needs.domain_keys
    if not keys:
        yield options, 0
        return
    ranks: dict[str, dict[str | None, int]] = {}
    for key in keys:
        ranks[key] = _domains(group, options, key, needs)
        if not ranks[key]:
            return
    for combination in group.value_combinations({key: tuple(ranks[key]) for key in keys}, options.offerings):
        domains = dict(zip(keys, combination, strict=True))
        fixed = Requirements(
            {
                key: Requirement(key, False, frozenset((domain,)))
                for key, domain in domains.items()
                if domain is not None
            }
        )
        label_bits = options.label_bits & group.undetermined_labels.requirement_bits(fixed)
        offerings = options.offerings & group.offering_index.by_label.meeting_all(fixed)
        offerings = group.undetermined_labels.narrow(offerings, label_bits)
        if offerings:
            topology_requirements = options.topology_requirements.intersection(fixed)
            yield (
                OfferingOptions(offerings, label_bits, topology_requirements),
                sum(ranks[key][domain] for key, domain in domains.items()),
            )


def _domains(group: WeightGroup, options: OfferingOptions, key: str, needs: PodNeeds) -> dict[str | None, int]:
    """The values of a label that are possible and allowed, with their rank; None, of rank 0, where it may be absent."""
    rules = [rule for rule in needs.rules if rule.topology_key == key]
    sole = options.topology_requirements.get(key).sole_value
    values = [sole] if sole is not None else group.possible_values(key, options.offerings, options.label_bits)
    allowed = [value for value in values if all(rule.allows(value) for rule in rules)]
    return {domain: 0 if domain is None else sum(rule.rank(domain) for rule in rules) for domain in allowed}
