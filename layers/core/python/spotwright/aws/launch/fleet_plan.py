"""A launch: which offerings are asked for, by which templates, in which CreateFleet request.

Pure: equal input gives byte-equal requests, so that a stored request can be replayed under its client token.
Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html; the filters are Karpenter's
(``pkg/providers/instance/filter``), in our words. Versions are numbered, never ``$Latest``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from spotwright.aws.bootstrap import user_data
from spotwright.aws.bootstrap.options import BootstrapOptions
from spotwright.aws.images import amis, families
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import capacity_reservations, placement
from spotwright.aws.launch.filters import LaunchOffering, select_offerings
from spotwright.aws.launch.template import (
    LaunchTemplateRequest,
    TemplateOptions,
    launch_tags,
    launch_template_request,
    tag_specifications,
)
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType, drop_reserved_offerings
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Requirements, from_expressions
from spotwright.model.resources import PODS
from spotwright.model.snapshot import RESERVED_CAPACITY

# Instant fleets take 300 overrides in all: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/fleet-quotas.html
MAX_OVERRIDES: Final = 300
MAX_LAUNCH_TEMPLATES: Final = 50
EFA: Final = "vpc.amazonaws.com/efa"


class NodeToLaunch(Protocol):
    """What a launch is for: the scheduler's new node, structurally (``scheduling.plan.NewNode`` is one)."""

    @property
    def nodepool(self) -> str: ...
    @property
    def instance_types(self) -> tuple[str, ...]: ...
    @property
    def requirements(self) -> tuple[NodeSelectorRequirement, ...]: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def taints(self) -> tuple[Taint, ...]: ...
    @property
    def startup_taints(self) -> tuple[Taint, ...]: ...
    @property
    def requests(self) -> dict[str, int]: ...
    @property
    def zones(self) -> tuple[str, ...]: ...


class Override(msgspec.Struct, frozen=True):
    """One pool that EC2 may take: a type in a zone. ``template_name``: name of the template it starts from.

    ``reservation_id``: id of the capacity reservation it is taken out of, "" = it is bought.
    """

    template_name: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    price_picousd_per_hour: int
    reservation_id: str = ""


class FleetPlan(msgspec.Struct, frozen=True):
    """A launch worked out, before its templates have ids. ``overrides``: cheapest first.

    ``prioritized``: EC2 is to follow our order, since prices are not its own (a NodeOverlay states them).
    ``reservation_kind``: kind of the capacity reservations that it is launched into, "" = it is bought.
    ``placement_scope``: id of the placement group, with ``/<number>`` if it is for one partition of it, "" = none.
    """

    capacity_type: str
    templates: tuple[LaunchTemplateRequest, ...]
    overrides: tuple[Override, ...]
    tags: dict[str, str]
    context: str = ""
    prioritized: bool = False
    reservation_kind: str = ""
    placement_scope: str = ""


def plan_fleet(
    node: NodeToLaunch,
    nodeclass: EC2NodeClass,
    types: Iterable[InstanceType],
    cluster: ClusterFacts,
    unavailable: UnavailableOfferings,
    *,
    feature_gates: Collection[str] = (RESERVED_CAPACITY,),
) -> FleetPlan | Refusal:
    """What to ask EC2 for so that ``node`` comes true, or why nothing can be asked for now.

    ``feature_gates``: feature gates that are on; without ReservedCapacity nothing is said of capacity reservations.
    """
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        return family
    if not nodeclass.resolved_instance_profile:
        return Refusal("NodeClassNotReady", f"EC2NodeClass {nodeclass.name} has no instance profile yet")
    counted = RESERVED_CAPACITY in feature_gates
    found = select_offerings(node, nodeclass, types if counted else drop_reserved_offerings(tuple(types)), unavailable)
    if isinstance(found, Refusal):
        return found
    capacity_type, chosen = found
    return _assembled(node, nodeclass, cluster, family, capacity_type, chosen, counted)


def _assembled(
    node: NodeToLaunch,
    nodeclass: EC2NodeClass,
    cluster: ClusterFacts,
    family: families.AMIFamily,
    capacity_type: str,
    chosen: Sequence[LaunchOffering],
    counted: bool,
) -> FleetPlan | Refusal:
    images = amis.amis_with_requirements(nodeclass.amis)
    templates: dict[tuple[str, int, int, bytes, str], LaunchTemplateRequest] = {}
    overrides = []
    for offering in chosen[:MAX_OVERRIDES]:
        ami = amis.ami_for_type(images, offering.instance_type)
        if ami is None:
            continue
        efa = offering.instance_type.capacity.get(EFA, 0) if node.requests.get(EFA) else 0
        kubelet = offering.instance_type.kubelet_reserved
        stated, into = (
            msgspec.json.encode(kubelet, order="sorted"),
            offering.reservation.id if offering.reservation else "",
        )
        key = (ami.id, offering.instance_type.capacity.get(PODS, 0), efa, stated, into)
        if key not in templates:
            if len(templates) == MAX_LAUNCH_TEMPLATES:
                continue
            resolved = msgspec.structs.replace(nodeclass, kubelet=nodeclass.kubelet | kubelet)
            purchase = capacity_reservations.launch_template_fields(offering.reservation) if counted else {}
            made = _template(node, resolved, cluster, family, capacity_type, ami, key[1], efa, purchase)
            if isinstance(made, Refusal):
                return made
            templates[key] = made
        overrides.append(_override(offering, templates[key].name, ami))
    if not overrides:
        return Refusal("AMINotFound", f"EC2NodeClass {nodeclass.name} has no image for any of the instance types")
    tags = launch_tags(cluster=cluster.name, nodepool=node.nodepool, nodeclass=nodeclass)
    kind = next((one.reservation.kind for one in chosen if one.reservation), "")
    return FleetPlan(
        capacity_type,
        tuple(templates.values()),
        tuple(overrides),
        tags,
        nodeclass.context,
        reservation_kind=kind,
        placement_scope=placement.placement_scope(nodeclass, from_expressions(node.requirements)),
    )


def _template(
    node: NodeToLaunch,
    nodeclass: EC2NodeClass,
    cluster: ClusterFacts,
    family: families.AMIFamily,
    capacity_type: str,
    ami: AMI,
    max_pods: int,
    efa: int,
    purchase: Mapping[str, Any],
) -> LaunchTemplateRequest | Refusal:
    boot = BootstrapOptions(
        labels=registration_labels(node, nodeclass, family.name, capacity_type),
        taints=(*node.taints, *node.startup_taints),
        max_pods=max_pods,
    )
    text = user_data.render(family.name, nodeclass, cluster, boot)
    if isinstance(text, Refusal):
        return text
    return launch_template_request(
        cluster=cluster.name,
        nodepool=node.nodepool,
        nodeclass=nodeclass,
        family=family,
        ami=ami,
        user_data=text,
        capacity_type=capacity_type,
        options=TemplateOptions(
            from_expressions(node.requirements),
            dict(node.requests),
            efa,
            ":" in cluster.service_cidr,
            dict(purchase),
        ),
    )


def registration_labels(node: NodeToLaunch, nodeclass: EC2NodeClass, family: str, capacity_type: str) -> dict[str, str]:
    """The labels a node registers with; the rest follow from its NodeClaim."""
    given = dict(node.labels) | {
        labels.NODEPOOL: node.nodepool,
        labels.EC2NODECLASS: nodeclass.name,
        labels.CAPACITY_TYPE: capacity_type,
    }
    return given if family == families.CUSTOM else given | {labels.DO_NOT_SYNC_TAINTS: "true"}


def _override(offering: LaunchOffering, template_name: str, ami: AMI) -> Override:
    return Override(
        template_name,
        offering.instance_type.name,
        offering.zone,
        offering.subnet_id,
        ami.id,
        offering.price_picousd_per_hour,
        offering.reservation.id if offering.reservation else "",
    )


def client_token(launch_id: str, attempt: int) -> str:
    """The client token of one attempt of a launch: at most 64 ASCII characters."""
    return f"{launch_id[:48]}-{attempt}"


def create_fleet_request(
    fleet: FleetPlan, versions: Mapping[str, tuple[str, str]], *, launch_id: str, count: int, client_token: str
) -> dict[str, Any]:
    """The CreateFleet request for ``count`` instances. ``versions``: template name → (id, version number as text)."""
    tags = fleet.tags | {labels.LAUNCH_TAG: launch_id}
    capacity, options = _purchase(fleet)
    body: dict[str, Any] = {
        "ClientToken": client_token,
        "LaunchTemplateConfigs": [
            _config(fleet, template_request.name, versions[template_request.name])
            for template_request in fleet.templates
        ],
        "TagSpecifications": tag_specifications(("fleet", "instance", "volume"), tags),
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": capacity, "TotalTargetCapacity": count},
        "Type": "instant",
    }
    return body | options | ({"Context": fleet.context} if fleet.context else {})


def _purchase(fleet: FleetPlan) -> tuple[str, dict[str, Any]]:
    """(DefaultTargetCapacityType, how EC2 chooses among the overrides)."""
    if fleet.capacity_type == labels.SPOT:
        strategy = "capacity-optimized-prioritized" if fleet.prioritized else "price-capacity-optimized"
        return labels.SPOT, {"SpotOptions": {"AllocationStrategy": strategy}}
    return capacity_reservations.create_fleet_fields(
        fleet.reservation_kind, "prioritized" if fleet.prioritized else "lowest-price"
    )


def reservations_by_pool(fleet: FleetPlan) -> dict[str, str]:
    """``<instance type>/<zone>`` → the reservation it is taken out of, as far as it is out of one."""
    return {
        f"{override.instance_type}/{override.zone}": override.reservation_id
        for override in fleet.overrides
        if override.reservation_id
    }


def _config(fleet: FleetPlan, name: str, version: tuple[str, str]) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateId": version[0], "Version": version[1]},
        "Overrides": [
            {
                "AvailabilityZone": override.zone,
                "ImageId": override.image_id,
                "InstanceType": override.instance_type,
                "Priority": override.price_picousd_per_hour / PICOUSD,
                "SubnetId": override.subnet_id,
            }
            for override in fleet.overrides
            if override.template_name == name
        ],
    }


def encode_request(body: Mapping[str, Any]) -> str:
    """A request as the launch row keeps it: equal requests, equal text."""
    return msgspec.json.encode(body, order="deterministic").decode()


class LaunchedStatus(msgspec.Struct, frozen=True):
    """What a NodeClaim learns when its instance exists."""

    provider_id: str
    labels: dict[str, str]
    capacity: dict[str, int]
    allocatable: dict[str, int]


def launched_status(
    *,
    instance_id: str,
    zone: str,
    capacity_type: str,
    instance_type: InstanceType,
    node: NodeToLaunch,
    reservation_id: str = "",
    partition_number: int = 0,
) -> LaunchedStatus:
    """Labels, provider id and resources of the claim whose instance is of ``instance_type`` in ``zone``.

    Labels are the type's certain ones, then the claim's own, then where and how it was bought; ``reservation_id``: the
    capacity reservation it runs in, "" = none; ``partition_number``: of its placement group, 0 = EC2 has not said.
    """
    asked = from_expressions(node.requirements)
    tenancy = placement.tenancy(asked)
    bought = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type, labels.TENANCY: tenancy}
    into = capacity_reservations.reservation_labels(instance_type.offerings, reservation_id)
    into |= placement.partition_label(instance_type.requirements, asked, partition_number)
    certain = capacity_reservations.labels_without_reservation(instance_type.requirements) | _offering_labels(
        instance_type, zone, capacity_type
    )
    return LaunchedStatus(
        provider_id=f"aws:///{zone}/{instance_id}",
        labels=dict(sorted((certain | dict(node.labels) | bought | into).items())),
        capacity=instance_type.capacity,
        allocatable=instance_type.allocatable,
    )


def _offering_labels(instance_type: InstanceType, zone: str, capacity_type: str) -> dict[str, str]:
    offerings = (
        offering
        for offering in instance_type.offerings
        if (offering.zone, offering.capacity_type) == (zone, capacity_type)
    )
    return capacity_reservations.labels_without_reservation(
        next((offering.requirements for offering in offerings), Requirements())
    )
