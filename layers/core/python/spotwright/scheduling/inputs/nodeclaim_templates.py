"""What a NodePool would make: its requirements, labels and taints, and which DaemonSets its nodes would run.

Source: Karpenter v1.14 ``scheduling/nodeclaimtemplate.go`` and ``scheduler.go`` (daemon overhead).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.pod import RESOURCE_CLAIMS, DaemonSet, Pod
from spotwright.model.kubernetes.taints import Taint, TaintEffect, Toleration
from spotwright.model.requirements import Requirement, RequirementError, Requirements, conjunction, from_labels
from spotwright.model.snapshot import STATIC_CAPACITY, Snapshot
from spotwright.scheduling.inputs.pod_classes import node_selector_terms

# What the DaemonSet controller adds to every pod it makes (Kubernetes "Taints and tolerations").
_DAEMON_TOLERATIONS: Final = (
    Toleration("node.kubernetes.io/not-ready", "Exists", effect=TaintEffect.NO_EXECUTE),
    Toleration("node.kubernetes.io/unreachable", "Exists", effect=TaintEffect.NO_EXECUTE),
    Toleration("node.kubernetes.io/disk-pressure", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration("node.kubernetes.io/memory-pressure", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration("node.kubernetes.io/pid-pressure", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration("node.kubernetes.io/unschedulable", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration(operator="Exists", effect=TaintEffect.PREFER_NO_SCHEDULE),
)
# The group and kind of node classes that are ours.
_OURS: Final = ("karpenter.k8s.aws", "EC2NodeClass")
# A DaemonSet may wait for these; a node has them in the end.
_STARTED: Final = (
    Requirement(labels.REGISTERED, False, frozenset(("true",))),
    Requirement(labels.INITIALIZED, False, frozenset(("true",))),
)


class DaemonSetPod:
    """A DaemonSet as load on a node."""

    __slots__ = ("host_ports", "key", "node_terms", "requests", "tolerations")

    def __init__(self, daemonset: DaemonSet, live: Pod | None) -> None:
        template = daemonset.template
        self.key = daemonset.metadata.key
        # A live pod shows what admission changed; its node affinity names its own host, so terms are the template's.
        shown = live or template
        self.requests = shown.requests
        self.host_ports = shown.host_ports
        self.tolerations = (*shown.tolerations, *_DAEMON_TOLERATIONS)
        self.node_terms = _terms(template)

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        return all(any(toleration.tolerates(taint) for toleration in self.tolerations) for taint in taints)


def _terms(pod: Pod) -> tuple[Requirements, ...]:
    """nodeSelector with each alternative of the node affinity; those nothing can meet are left out."""
    found = []
    for term in node_selector_terms(pod):
        try:
            wanted = conjunction((*from_labels(pod.node_selector), *(expression.requirement() for expression in term)))
        except RequirementError:
            continue
        if wanted is not None:
            found.append(wanted)
    return tuple(found)


def build_daemonset_pods(snapshot: Snapshot) -> tuple[DaemonSetPod, ...]:
    """Every readable DaemonSet, by key; one with device claims runs on no node of ours."""
    live = {daemonset_key(pod): pod for pod in snapshot.pods if pod.metadata.owner_references and not pod.is_terminal}
    readable = (
        daemonset
        for daemonset in snapshot.daemonsets
        if not daemonset.template.read_error and RESOURCE_CLAIMS not in daemonset.template.unsupported_fields
    )
    return tuple(
        sorted(
            (DaemonSetPod(daemonset, live.get(daemonset.metadata.key)) for daemonset in readable),
            key=lambda daemonset_pod: daemonset_pod.key,
        )
    )


def daemonset_key(pod: Pod) -> str:
    """``namespace/name`` of the DaemonSet that owns a pod; "" if none does."""
    name = next((owner.name for owner in pod.metadata.owner_references if owner.kind == "DaemonSet"), "")
    return f"{pod.metadata.namespace}/{name}" if name else ""


class NodeClaimTemplate:
    """A NodePool that may make nodes now. ``known_label_keys``: label keys that need no declaration by the pool.

    ``min_values``: label → how many different values a node's instance types must keep between them (minValues).
    """

    __slots__ = (
        "_domains",
        "_places",
        "instance_types",
        "known_label_keys",
        "labels",
        "min_values",
        "nodepool",
        "requirements",
        "taints",
    )

    def __init__(
        self, pool: NodePool, requirements: Requirements, types: tuple[InstanceType, ...], *, strict_min_values: bool
    ) -> None:
        self.nodepool = pool
        self.requirements = requirements
        self.labels = template_labels(pool)
        self.taints = pool.taints
        self.min_values = {
            requirement.key: requirement.min_values
            for requirement in requirements
            if requirement.min_values and strict_min_values
        }
        self.instance_types = types
        self.known_label_keys = labels.WELL_KNOWN.union(
            *{tuple(instance_type.requirements.by_key) for instance_type in types}
        )
        self._domains: dict[str, frozenset[str]] = {}
        self._places: dict[tuple[str, str], bool] = {}

    def with_instance_types(self, types: tuple[InstanceType, ...]) -> "NodeClaimTemplate":
        """The same pool with other types."""
        if types == self.instance_types:
            return self
        template = NodeClaimTemplate(self.nodepool, self.requirements, types, strict_min_values=True)
        template.min_values = self.min_values
        return template

    def with_requirements(self, demands: Iterable[Requirement]) -> "NodeClaimTemplate":
        """The same pool with further demands."""
        template = NodeClaimTemplate(
            self.nodepool, self.requirements.intersection(demands), self.instance_types, strict_min_values=True
        )
        template.min_values = self.min_values
        return template

    def compatible_instance_types(self) -> list[InstanceType]:
        """Types that meet the pool's requirements, as far as the type itself decides."""
        verdicts: dict[Requirement, bool] = {}
        return [
            instance_type
            for instance_type in self.instance_types
            if self._is_legal(instance_type.requirements.by_key, verdicts)
        ]

    def _is_legal(self, stated: Mapping[str, Requirement], verdicts: dict[Requirement, bool]) -> bool:
        for key, demand in self.requirements.by_key.items():
            label = stated.get(key)
            if label is not None:
                verdict = verdicts.get(label)
                if verdict is None:
                    verdict = verdicts[label] = can_meet(label, demand)
                if not verdict:
                    return False
        return True

    def allows(self, offering: Offering) -> bool:
        """True when the pool's requirements allow this zone, capacity type and reservation."""
        place = (offering.zone, offering.capacity_type)
        allowed = self._places.get(place)
        if allowed is None:
            zone, capacity_type = self.requirements.get(labels.ZONE), self.requirements.get(labels.CAPACITY_TYPE)
            allowed = self._places[place] = zone.has(offering.zone) and capacity_type.has(offering.capacity_type)
        if not allowed or not offering.requirements.by_key:
            return allowed
        return all(
            can_meet(requirement, self.requirements.get(requirement.key)) for requirement in offering.requirements
        )

    def domains(self, key: str) -> frozenset[str]:
        """Values of a label that the pool's nodes can have, whether or not they can be bought now."""
        if key not in self._domains:
            allowed = self.requirements.get(key)
            found = set() if allowed.complement else set(allowed.values)
            for type_ in self.instance_types:
                found.update(value for value in _stated(type_, key) if allowed.has(value))
            self._domains[key] = frozenset(found)
        return self._domains[key]

    def daemon_overheads(self, types: Sequence[InstanceType], every: Iterable[DaemonSetPod]) -> list[dict[str, int]]:
        """Requests of the DaemonSet pods for each of the types; types with the same daemons share one map."""
        running: list[tuple[DaemonSetPod, ...]] = [()] * len(types)
        for daemon in every:
            if daemon.tolerates(self.taints):
                for place in self._hosts_of(daemon, types):
                    running[place] += (daemon,)
        totals = {
            daemonset_pods: resources.add(*(daemonset_pod.requests for daemonset_pod in daemonset_pods))
            for daemonset_pods in set(running)
        }
        return [totals[daemonset_pods] for daemonset_pods in running]

    def runs_daemonset(self, daemon: DaemonSetPod, type_: InstanceType) -> bool:
        """Whether a DaemonSet would run on a type."""
        return daemon.tolerates(self.taints) and bool(self._hosts_of(daemon, (type_,)))

    def _hosts_of(self, daemon: DaemonSetPod, types: Sequence[InstanceType]) -> Sequence[int]:
        """Places of the types whose labels let a DaemonSet run."""
        requirements = self.requirements.intersection(_STARTED)
        terms = [term for term in daemon.node_terms if requirements.is_compatible(term, self.known_label_keys)]
        if any(not term for term in terms):
            return range(len(types))
        return [
            place
            for place, instance_type in enumerate(types)
            if any(instance_type.requirements.intersects(term) for term in terms)
        ]


def _stated(type_: InstanceType, key: str) -> Iterable[str]:
    stated = type_.requirements.by_key.get(key)
    if stated is not None:
        return () if stated.complement else stated.values
    if key == labels.ZONE:
        return (offering.zone for offering in type_.offerings)
    return (offering.capacity_type for offering in type_.offerings) if key == labels.CAPACITY_TYPE else ()


def can_meet(label: Requirement, demand: Requirement) -> bool:
    """Whether a label of which this is known can meet a demand; absence meets two negatives."""
    return label.intersects(demand) or (label.allows_absence and demand.allows_absence)


def template_labels(pool: NodePool) -> dict[str, str]:
    """The labels every node of a pool carries."""
    made = pool.labels | {labels.NODEPOOL: pool.name}
    return made | ({labels.EC2NODECLASS: pool.node_class_ref.name} if pool.node_class_ref.name else {})


def build_templates(snapshot: Snapshot, catalog: Catalog) -> tuple[list[NodeClaimTemplate], dict[str, str]]:
    """Pools that may make nodes for pods, heaviest first, then by name; and why each of the others may not."""
    templates, closed = [], {}
    for pool in sorted(snapshot.nodepools, key=lambda nodepool: (-nodepool.weight, nodepool.name)):
        made = build_template(pool, snapshot, catalog)
        if isinstance(made, str):
            closed[pool.name] = made
        elif pool.replicas is not None:
            closed[pool.name] = _static(pool, snapshot)
        else:
            templates.append(made)
    return templates, closed


def build_template(pool: NodePool, snapshot: Snapshot, catalog: Catalog) -> NodeClaimTemplate | str:
    """What a pool may make now, static or not; or why it may make nothing."""
    try:
        requirements = _requirements(pool)
    except RequirementError as error:
        return f"its requirements are invalid: {error}"
    types = catalog.instance_types(pool.node_class_ref.name, pool.name)
    if why := _closed(pool, snapshot.nodeclasses) or _nothing(requirements, types):
        return why
    assert requirements is not None
    return NodeClaimTemplate(
        pool, requirements, types, strict_min_values=snapshot.settings.min_values_policy != "BestEffort"
    )


def _static(pool: NodePool, snapshot: Snapshot) -> str:
    """Why a static pool makes no nodes for pods."""
    keeps = (
        "it keeps that many nodes whatever pods wait"
        if STATIC_CAPACITY in snapshot.settings.feature_gates
        else f"the feature gate {STATIC_CAPACITY}, which would let it keep that many nodes, is off"
    )
    return (
        f"it is static (spec.replicas: {pool.replicas}): {keeps}, and pods are never a reason for more; leave"
        " spec.replicas out for a pool that grows with its pods"
    )


def _requirements(pool: NodePool) -> Requirements | None:
    return conjunction(
        (*from_labels(template_labels(pool)), *(expression.requirement() for expression in pool.requirements))
    )


def _nothing(requirements: Requirements | None, types: tuple[InstanceType, ...]) -> str:
    if requirements is None:
        return "its requirements and labels contradict each other"
    return "" if types else "its EC2NodeClass has no instance types"


def _closed(pool: NodePool, classes: Iterable[EC2NodeClass]) -> str:
    if pool.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pool.read_error:
        return pool.read_error
    ref = pool.node_class_ref
    if (ref.group or _OURS[0], ref.kind or _OURS[1]) != _OURS:
        return f"its nodeClassRef is {ref.kind} of {ref.group}: only EC2NodeClass of {_OURS[0]} is provisioned here"
    ready = find_condition(pool.conditions, "Ready")
    if ready is not None and ready.status != "True":
        return f"it is not Ready{': ' + ready.message if ready.message else ''}"
    nodeclass = next((one for one in classes if one.name == pool.node_class_ref.name), None)
    if nodeclass is not None and nodeclass.metadata.deletion_timestamp is not None:
        return f"EC2NodeClass {nodeclass.name} is being deleted"
    ready = find_condition(nodeclass.conditions, "Ready") if nodeclass else None
    if ready is not None and ready.status != "True":
        return f"EC2NodeClass {pool.node_class_ref.name} is not Ready{': ' + ready.message if ready.message else ''}"
    return ""
