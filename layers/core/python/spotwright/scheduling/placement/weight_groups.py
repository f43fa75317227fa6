"""NodePools of one weight, and the nodes they make for the pods that wait."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from spotwright.model import resources
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.kubernetes.taints import untolerated_taints
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.inputs.nodeclaim_templates import DaemonSetPod, NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements
from spotwright.scheduling.offerings.offering_index import OfferingIndex, Vector
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import build_host_constraints, shared_host_caps
from spotwright.scheduling.packing.lower_bound import HOST_UNITS, PodGroup, compute_lower_bound
from spotwright.scheduling.packing.problem import Packing, PackingProblem, RemainingLimits, offerings_up_to_size
from spotwright.scheduling.packing.search import NODE_SIZE_BOUNDS_MILLICORES, find_cheapest_packing
from spotwright.scheduling.placement.pending_pods import PendingClass
from spotwright.scheduling.placement.planned_nodes import PlannedNode, PodCount, restrict_to_limits
from spotwright.scheduling.topology.topology import Topology

# Of so many states of the limits it is known what they allow.
_OPENED: Final = 1000
# Rules on hosts that a lower bound knows of.
_RULES: Final = 4


class WeightGroup:
    """Pools of one weight share a market: among them only the price decides.

    ``asked``: every demand that may come, and labels that rules look at with the values they know: what open keys
    must tell apart. ``reserved``: instances left by capacity reservation, shared by all tiers.
    """

    def __init__(
        self,
        market: OfferingIndex,
        daemons: Sequence[DaemonSetPod],
        used: Mapping[str, Mapping[str, int]],
        asked: Iterable[Requirements],
        reserved: dict[str, int],
    ) -> None:
        self.offering_index = market
        self.daemonset_pods = daemons
        self.undetermined_labels = UndeterminedLabels(market, asked)
        self.initial_limits = RemainingLimits(
            [_left(template, used.get(template.nodepool.name, {})) for template in market.templates], reserved
        )
        self.limits = self.initial_limits.copy()
        self.limits.by_reservation = reserved
        self.planned_nodes: list[PlannedNode] = []
        self._masks: dict[int, tuple[PodRequirements, int]] = {}
        self._opened: dict[object, int] = {}

    def compatible_offerings(self, demand: PodRequirements) -> int:
        """Choices whose labels and taints a demand accepts."""
        known = self._masks.get(id(demand))
        if known is None:
            known = self._masks[id(demand)] = (demand, self._mask(demand))
        return known[1]

    def possible_offerings(self, mask: int, fields: int) -> int:
        """Choices of a mask that can have what is left of open keys, without pools that keep too few kinds."""
        return self.offering_index.keep_min_values(self.undetermined_labels.narrow(mask, fields))

    def _mask(self, demand: PodRequirements) -> int:
        mask = self.offering_index.offerings_meeting_all(demand.requirements)
        for template, ours in zip(
            self.offering_index.templates, self.offering_index.offerings_of_template, strict=True
        ):
            if template.taints and untolerated_taints(template.taints, demand.tolerations):
                mask &= ~ours
        return mask

    def offerings_without_port_conflicts(self, ports: Sequence[HostPort]) -> int:
        """Choices whose DaemonSets leave these host ports free."""
        mask = self.offering_index.all_offerings
        for daemon in self.daemonset_pods if ports else ():
            if any(host_port.conflicts_with(other_port) for host_port in daemon.host_ports for other_port in ports):
                for goods in self.offering_index.pool_types:
                    if self.offering_index.templates[goods.template_index].runs_daemonset(daemon, goods.instance_type):
                        mask &= ~goods.offerings
        return mask

    def possible_values(self, key: str, mask: int, fields: int) -> Iterator[str | None]:
        """Values that a label can still have, sorted; None first where it may stay away."""
        found: set[str] = set()
        absent = False
        for statement, choices in self.offering_index.label_statements(key).items():
            if choices & mask:
                if isinstance(statement, str):
                    found.add(statement)
                elif statement is None or (isinstance(statement, Requirement) and statement.allows_absence):
                    absent = True
        open_key = self.undetermined_labels.get(key)
        if open_key is not None:
            left = self.undetermined_labels.initial_bits_of_any(mask) & fields
            found = set(open_key.possible_values(left))
            absent = open_key.allows_absence(left)
        yield from (None,) if absent else ()
        yield from sorted(found)

    def certain_value(self, key: str, mask: int) -> str | None:
        """The value of a label if every choice states the same one."""
        stated = [
            label_statement
            for label_statement, choices in self.offering_index.label_statements(key).items()
            if choices & mask
        ]
        return stated[0] if len(stated) == 1 and isinstance(stated[0], str) else None

    def suitable_offerings(self, mask: int, used: Sequence[int], most: int | None) -> int:
        """Choices with so much room, plain ones if possible, of at most so many millicores.

        ``most`` None: within the usual bound on node size if possible.
        """
        fitting = self.offering_index.keep_min_values(mask & self.offering_index.offerings_with_room(used))
        bounded = self.offering_index.keep_min_values(
            fitting
            & offerings_up_to_size(
                self.offering_index.offerings_by_millicores, NODE_SIZE_BOUNDS_MILLICORES[0] if most is None else most
            )
        )
        fitting = bounded or (fitting if most is None else 0)
        return self.offering_index.keep_min_values(fitting & self.offering_index.general_purpose) or fitting

    def cheapest_offering(self, mask: int, *, instead_of: int) -> int:
        """The cheapest choice that the limits allow when another node is given back; -1 if there is none."""
        if any(self.limits.by_template) or self.offering_index.reserved_offerings:
            mask &= self._open_instead_of(instead_of)
        return (mask & -mask).bit_length() - 1

    def _open_instead_of(self, choice: int) -> int:
        """Choices that the limits allow when a node is given back; choice -1 = none is."""
        goods = self.offering_index.pool_type_of[choice] if choice >= 0 else None
        given_back = (id(goods), self.offering_index.reservation_ids[choice] if goods else "")
        left = [tuple(one.values()) for one in self.limits.by_template]
        look = (given_back, tuple(left), tuple(self.limits.by_reservation.values()))
        known = self._opened.get(look)
        if known is None:
            allowance = self.limits.copy()
            if goods:
                allowance.spend(self.offering_index, choice, -1)
            if len(self._opened) > _OPENED:
                self._opened.clear()
            known = self._opened[look] = allowance.allowed_offerings(self.offering_index)
        return known

    def price(self, choice: int) -> int:
        return self.offering_index.prices[choice] if choice >= 0 else 0

    def millicores(self, choice: int) -> int:
        """Millicores of a choice's type."""
        return (
            self.offering_index.pool_type_of[choice].instance_type.capacity.get(resources.CPU, 0) if choice >= 0 else 0
        )

    def pack(self, waiting: Iterable[PendingClass], topology: Topology, budget: int) -> int:
        """Make nodes for as many as possible; the work it took."""
        pending_classes = [
            pending_class
            for pending_class in waiting
            if pending_class.pod_keys and pending_class.pod_requirements is not None
        ]
        masks = [self._open(pending_class) for pending_class in pending_classes]
        units = 0
        # What is reserved is paid for: it is used up before anything is bought.
        for sold in (
            self.offering_index.reserved_offerings,
            self.offering_index.all_offerings & ~self.offering_index.reserved_offerings,
        ):
            for together in _components([mask & sold for mask in masks]):
                several = [masks[j] & sold for j in together]
                units += self._serve([pending_classes[j] for j in together], several, topology, budget - units)
        return units

    def _open(self, waiting: PendingClass) -> int:
        """Choices with room for a pod, whose daemons leave its host ports free."""
        assert waiting.pod_requirements is not None
        mask = self.compatible_offerings(waiting.pod_requirements) & self.offering_index.offerings_with_room(
            waiting.size
        )
        return mask & self.offerings_without_port_conflicts(waiting.pod_class.host_ports)

    def _serve(
        self, pending_classes: Sequence[PendingClass], masks: Sequence[int], topology: Topology, budget: int
    ) -> int:
        asked = [
            self.undetermined_labels.requirement_bits(pending_class.pod_requirements.requirements)
            for pending_class in pending_classes
            if pending_class.pod_requirements is not None
        ]
        bound = build_host_constraints(
            [
                (pending_class.pod_class, pending_class.pod_requirements)
                for pending_class in pending_classes
                if pending_class.pod_requirements is not None
            ],
            topology,
        )
        problem = PackingProblem(
            self.offering_index,
            Items([pending_class.size for pending_class in pending_classes]),
            masks,
            asked,
            self.undetermined_labels,
            bound,
        )
        units = 0
        while True:
            answer = find_cheapest_packing(
                problem, [len(pending_class.pod_keys) for pending_class in pending_classes], self.limits, budget - units
            )
            units += answer.work_units
            if not answer.nodes:
                return units
            self._draft(answer, pending_classes, list(zip(masks, asked, strict=True)))
            self.limits.by_template = answer.limits.by_template
            self.limits.by_reservation.update(answer.limits.by_reservation)

    def _draft(
        self, answer: Packing, pending_classes: Sequence[PendingClass], asked: Sequence[tuple[int, int]]
    ) -> None:
        for batch in answer.nodes:
            members = [_member(pending_classes[j], count) for j, count in sorted(batch.pod_counts.items())]
            draft = PlannedNode(self.offering_index, batch.offering, members, self.undetermined_labels)
            draft.narrow(asked[j] for j in batch.pod_counts)
            for _ in range(batch.node_count):
                # In the order of the members.
                draft.pods_by_node.append(
                    tuple(
                        key for j, count in sorted(batch.pod_counts.items()) for key in pending_classes[j].take(count)
                    )
                )
            self.planned_nodes.append(draft)

    def lower_bound(self, topology: Topology) -> int:
        """What the pods of its nodes cost at least in these pools, in picodollars per hour."""
        counts: dict[tuple[int, int], int] = {}
        pairs: dict[tuple[int, int], tuple[PodClass, PodRequirements]] = {}
        for draft in self.planned_nodes:
            for pod_count in draft.pod_counts:
                look = pod_count.pod_class.index, id(pod_count.pod_requirements)
                pairs[look] = pod_count.pod_class, pod_count.pod_requirements
                counts[look] = counts.get(look, 0) + pod_count.count * len(draft.pods_by_node)
        ours = list(pairs)
        shares = _hosts([pairs[look] for look in ours], [counts[look] for look in ours], topology)
        lots: dict[tuple[Vector, int, tuple[int, ...]], int] = {}
        for j, look in enumerate(ours):
            cls, demand = pairs[look]
            size = tuple([cls.requests.get(name, 0) for name in self.offering_index.dimensions])
            lot = size, self.compatible_offerings(demand), tuple([share.get(j, 0) for share in shares])
            lots[lot] = lots.get(lot, 0) + counts[look]
        return compute_lower_bound(self.offering_index, [PodGroup(count, *lot) for lot, count in sorted(lots.items())])

    def enforce_limits(self) -> list[PlannedNode]:
        """All nodes, with the limits kept whatever is launched."""
        restrict_to_limits(self.planned_nodes, self.initial_limits)
        return self.planned_nodes


def _hosts(
    classes: Sequence[tuple[PodClass, PodRequirements]], counts: Sequence[int], topology: Topology
) -> list[dict[int, int]]:
    """What part of a host one pod takes up, by the class's place, for each of the rules that need most hosts."""
    ruled = [
        j
        for j, (cls, demand) in enumerate(classes)
        if demand.topology_spread_constraints or demand.pod_anti_affinity or cls.host_ports
    ]
    found = shared_host_caps(build_host_constraints([classes[j] for j in ruled], topology))
    needed = sorted(
        ((sum(counts[ruled[k]] for k in several) / cap, cap, several) for cap, several in found), reverse=True
    )
    return [{ruled[k]: HOST_UNITS // cap for k in several} for _, cap, several in needed[:_RULES]]


def _member(waiting: PendingClass, count: int) -> PodCount:
    demand = waiting.pod_requirements
    assert demand is not None
    return PodCount(waiting.pod_class, demand, count)


class OfferingIndexCache:
    """Markets by their pools and resources: attempts at one plan share them."""

    def __init__(self, daemons: Sequence[DaemonSetPod]) -> None:
        self.daemonset_pods = daemons
        self._known: dict[object, OfferingIndex] = {}

    def get(self, templates: Sequence[NodeClaimTemplate], names: Sequence[str]) -> OfferingIndex:
        look = (tuple(map(id, templates)), tuple(names))
        if look not in self._known:
            # The market keeps its templates, so nobody else gets their ids.
            self._known[look] = OfferingIndex(templates, self.daemonset_pods, names)
        return self._known[look]


def build_weight_groups(
    templates: Sequence[NodeClaimTemplate],
    markets: OfferingIndexCache,
    names: Sequence[str],
    used: Mapping[str, Mapping[str, int]],
    asked: Sequence[Requirements],
    reserved: dict[str, int],
) -> list[WeightGroup]:
    """One tier per weight, heaviest first. ``reserved``: instances left by capacity reservation."""
    by_weight = groupby(templates, key=lambda template: template.nodepool.weight)
    sold = (markets.get(list(alike), names) for _, alike in by_weight)
    return [WeightGroup(market, markets.daemonset_pods, used, asked, reserved) for market in sold]


def _left(template: NodeClaimTemplate, used: Mapping[str, int]) -> dict[str, int]:
    limits = template.nodepool.limits
    return {name: limit - used.get(name, 0) for name, limit in resources.subtract(limits, {}).items()}


def _components(masks: Sequence[int]) -> list[list[int]]:
    """Classes by the choices they share, directly or through others; those without any choice are left out."""
    found: list[tuple[int, list[int]]] = []
    for j, mask in enumerate(masks):
        if not mask:
            continue
        apart, together = [], [j]
        for other, members in found:
            if other & mask:
                mask |= other
                together += members
            else:
                apart.append((other, members))
        found = [*apart, (mask, together)]
    return sorted(sorted(members) for _, members in found)
