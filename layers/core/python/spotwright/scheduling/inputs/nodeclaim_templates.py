"""What a NodePool would make: its requirements, labels and taints, and which DaemonSets its nodes would run.

Source: Karpenter v1.14 ``scheduling/nodeclaimtemplate.go`` and ``scheduler.go`` (daemon overhead).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod

# A DaemonSet may ask for these labels; a node has them in the end.
_LABELS_OF_STARTED_NODES: Final = (
    Requirement(labels.REGISTERED, False, frozenset(("true",))),
    Requirement(labels.INITIALIZED, False, frozenset(("true",))),
)


class NodeClaimTemplate:
    """A NodePool that may make nodes now. ``known_label_keys``: label keys that need no declaration by the pool.

    ``min_values``: label → how many different values a node's instance types must keep between them (minValues).
    """

    __slots__ = (
        "_allowed_places",
        "_compatible",
        "_domains",
        "instance_types",
        "known_label_keys",
        "labels",
        "min_values",
        "nodepool",
        "requirements",
        "taints",
    )

    def __init__(
        self,
        nodepool: NodePool,
        requirements: Requirements,
        instance_types: tuple[InstanceType, ...],
        min_values: Mapping[str, int],
    ) -> None:
        self.nodepool = nodepool
        self.requirements = requirements
        self.labels = template_labels(nodepool)
        self.taints = nodepool.taints
        self.min_values = min_values
        self.instance_types = instance_types
        self.known_label_keys = labels.WELL_KNOWN.union(
            *{tuple(instance_type.requirements.by_key) for instance_type in instance_types}
        )
        self._compatible: tuple[InstanceType, ...] | None = None
        self._domains: dict[str, frozenset[str]] = {}
        self._allowed_places: dict[tuple[str, str], bool] = {}

    def with_instance_types(self, instance_types: tuple[InstanceType, ...]) -> "NodeClaimTemplate":
        """The same NodePool with other types."""
        if instance_types == self.instance_types:
            return self
        return NodeClaimTemplate(self.nodepool, self.requirements, instance_types, self.min_values)

    def with_requirements(self, requirements: Iterable[Requirement]) -> "NodeClaimTemplate":
        """The same NodePool with further requirements."""
        narrowed = self.requirements.intersection(requirements)
        return NodeClaimTemplate(self.nodepool, narrowed, self.instance_types, self.min_values)

    def with_min_values(self, min_values: Mapping[str, int]) -> "NodeClaimTemplate":
        """The same NodePool with these minValues to keep."""
        return NodeClaimTemplate(self.nodepool, self.requirements, self.instance_types, min_values)

    def compatible_instance_types(self) -> Sequence[InstanceType]:
        """Types that meet the NodePool's requirements, as far as the type itself decides."""
        if self._compatible is None:
            cache: dict[Requirement, bool] = {}
            self._compatible = tuple(
                [
                    instance_type
                    for instance_type in self.instance_types
                    if self._is_compatible(instance_type.requirements.by_key, cache)
                ]
            )
        return self._compatible

    def _is_compatible(self, stated: Mapping[str, Requirement], cache: dict[Requirement, bool]) -> bool:
        for key, requirement in self.requirements.by_key.items():
            label = stated.get(key)
            if label is not None:
                if label not in cache:
                    cache[label] = can_meet(label, requirement)
                if not cache[label]:
                    return False
        return True

    def allows(self, offering: Offering) -> bool:
        """True when the NodePool's requirements allow this zone, capacity type and reservation."""
        place = (offering.zone, offering.capacity_type)
        allowed = self._allowed_places.get(place)
        if allowed is None:
            zone, capacity_type = self.requirements.get(labels.ZONE), self.requirements.get(labels.CAPACITY_TYPE)
            allowed = zone.has(offering.zone) and capacity_type.has(offering.capacity_type)
            self._allowed_places[place] = allowed
        if not allowed or not offering.requirements.by_key:
            return allowed
        return all(
            can_meet(requirement, self.requirements.get(requirement.key)) for requirement in offering.requirements
        )

    def domains(self, key: str) -> frozenset[str]:
        """Values of a label that the NodePool's nodes can have, whether or not they can be bought now."""
        if key not in self._domains:
            allowed = self.requirements.get(key)
            domains = set() if allowed.complement else set(allowed.values)
            for instance_type in self.instance_types:
                domains.update(value for value in _stated_values(instance_type, key) if allowed.has(value))
            self._domains[key] = frozenset(domains)
        return self._domains[key]

    def daemon_overheads(
        self, instance_types: Sequence[InstanceType], daemonset_pods: Iterable[DaemonSetPod]
    ) -> list[dict[str, int]]:
        """What DaemonSet pods request on each of the types; types with the same DaemonSets share one map."""
        running: list[tuple[DaemonSetPod, ...]] = [()] * len(instance_types)
        for daemonset_pod in daemonset_pods:
            if daemonset_pod.tolerates(self.taints):
                for place in self._types_running(daemonset_pod, instance_types):
                    running[place] += (daemonset_pod,)
        totals = {
            on_type: resources.add(*(daemonset_pod.requests for daemonset_pod in on_type)) for on_type in set(running)
        }
        return [totals[on_type] for on_type in running]

    def runs_daemonset(self, daemonset_pod: DaemonSetPod, instance_type: InstanceType) -> bool:
        """Whether a DaemonSet would run on a type."""
        return daemonset_pod.tolerates(self.taints) and bool(self._types_running(daemonset_pod, (instance_type,)))

    def _types_running(self, daemonset_pod: DaemonSetPod, instance_types: Sequence[InstanceType]) -> Sequence[int]:
        """Places of the types whose labels let a DaemonSet run."""
        requirements = self.requirements.intersection(_LABELS_OF_STARTED_NODES)
        terms = [term for term in daemonset_pod.node_terms if requirements.is_compatible(term, self.known_label_keys)]
        if any(not term for term in terms):
            return range(len(instance_types))
        return [
            place
            for place, instance_type in enumerate(instance_types)
            if any(instance_type.requirements.intersects(term) for term in terms)
        ]


def _stated_values(instance_type: InstanceType, key: str) -> Iterable[str]:
    stated = instance_type.requirements.by_key.get(key)
    if stated is not None:
        return () if stated.complement else stated.values
    if key == labels.ZONE:
        return (offering.zone for offering in instance_type.offerings)
    return (offering.capacity_type for offering in instance_type.offerings) if key == labels.CAPACITY_TYPE else ()


def can_meet(label: Requirement, requirement: Requirement) -> bool:
    """Whether a label of which this is known can meet a requirement; an absent label meets negative requirements."""
    return label.intersects(requirement) or (label.allows_absence and requirement.allows_absence)


def template_labels(nodepool: NodePool) -> dict[str, str]:
    """The labels that every node of a NodePool carries."""
    nodeclass = {labels.EC2NODECLASS: nodepool.node_class_ref.name} if nodepool.node_class_ref.name else {}
    return nodepool.labels | {labels.NODEPOOL: nodepool.name} | nodeclass
