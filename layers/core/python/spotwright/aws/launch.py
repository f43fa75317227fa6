"""A launch: which offerings are asked for, by which templates, in which CreateFleet request.

Pure: equal input gives byte-equal requests, so that a stored request can be replayed under its client token.
Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html; the filters are Karpenter's
(``pkg/providers/instance/filter``), in our words. Versions are numbered, never ``$Latest``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from spotwright.aws import amis, families, placement, reserved, userdata
from spotwright.aws.boot import Boot
from spotwright.aws.health import Health
from spotwright.aws.launch_filters import Candidate, candidates
from spotwright.aws.launchtemplate import Machine, Template, launch_tags, tag_specifications, template
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
MAXIMUM_OVERRIDES: Final = 300
MAXIMUM_TEMPLATES: Final = 50
EFA: Final = "vpc.amazonaws.com/efa"


class Wanted(Protocol):
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
    """One pool that EC2 may take: a type in a zone. ``template``: name of the template it starts from.

    ``reservation``: id of the capacity reservation it is taken out of, "" = it is bought.
    """

    template: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    price_picousd_per_hour: int
    reservation: str = ""


class FleetPlan(msgspec.Struct, frozen=True):
    """A launch worked out, before its templates have ids. ``overrides``: cheapest first.

    ``prioritized``: EC2 is to follow our order, since prices are not its own (a NodeOverlay states them).
    ``reservations``: kind of the capacity reservations that it is launched into, "" = it is bought. ``group``: id of
    the placement group, with ``/<number>`` if it is for one partition of it, "" = none.
    """

    capacity_type: str
    templates: tuple[Template, ...]
    overrides: tuple[Override, ...]
    tags: dict[str, str]
    context: str = ""
    prioritized: bool = False
    reservations: str = ""
    group: str = ""


def plan(
    wanted: Wanted,
    node_class: EC2NodeClass,
    types: Iterable[InstanceType],
    cluster: ClusterFacts,
    health: Health,
    *,
    gates: Collection[str] = (RESERVED_CAPACITY,),
) -> FleetPlan | Refusal:
    """What to ask EC2 for so that ``wanted`` comes true, or why nothing can be asked for now.

    ``gates``: feature gates that are on; without ReservedCapacity nothing is said of capacity reservations.
    """
    family = families.of(node_class)
    if isinstance(family, Refusal):
        return family
    if not node_class.resolved_instance_profile:
        return Refusal("NodeClassNotReady", f"EC2NodeClass {node_class.name} has no instance profile yet")
    counted = RESERVED_CAPACITY in gates
    found = candidates(wanted, node_class, types if counted else drop_reserved_offerings(tuple(types)), health)
    if isinstance(found, Refusal):
        return found
    capacity_type, chosen = found
    return _assembled(wanted, node_class, cluster, family, capacity_type, chosen, counted)


def _assembled(
    wanted: Wanted,
    node_class: EC2NodeClass,
    cluster: ClusterFacts,
    family: families.Family,
    capacity_type: str,
    chosen: Sequence[Candidate],
    counted: bool,
) -> FleetPlan | Refusal:
    images = amis.demands(node_class.amis)
    templates: dict[tuple[str, int, int, bytes, str], Template] = {}
    overrides = []
    for one in chosen[:MAXIMUM_OVERRIDES]:
        ami = amis.for_type(images, one.instance_type)
        if ami is None:
            continue
        efa = one.instance_type.capacity.get(EFA, 0) if wanted.requests.get(EFA) else 0
        kubelet = one.instance_type.kubelet_reserved
        stated, into = msgspec.json.encode(kubelet, order="sorted"), one.reserved.id if one.reserved else ""
        key = (ami.id, one.instance_type.capacity.get(PODS, 0), efa, stated, into)
        if key not in templates:
            if len(templates) == MAXIMUM_TEMPLATES:
                continue
            resolved = msgspec.structs.replace(node_class, kubelet=node_class.kubelet | kubelet)
            purchase = reserved.template_fields(one.reserved) if counted else {}
            made = _template(wanted, resolved, cluster, family, capacity_type, ami, key[1], efa, purchase)
            if isinstance(made, Refusal):
                return made
            templates[key] = made
        overrides.append(_override(one, templates[key].name, ami))
    if not overrides:
        return Refusal("AMINotFound", f"EC2NodeClass {node_class.name} has no image for any of the instance types")
    tags = launch_tags(cluster=cluster.name, node_pool=wanted.nodepool, node_class=node_class)
    kind = next((one.reserved.kind for one in chosen if one.reserved), "")
    return FleetPlan(
        capacity_type,
        tuple(templates.values()),
        tuple(overrides),
        tags,
        node_class.context,
        reservations=kind,
        group=placement.scope(node_class, from_expressions(wanted.requirements)),
    )


def _template(
    wanted: Wanted,
    node_class: EC2NodeClass,
    cluster: ClusterFacts,
    family: families.Family,
    capacity_type: str,
    ami: AMI,
    max_pods: int,
    efa: int,
    purchase: Mapping[str, Any],
) -> Template | Refusal:
    boot = Boot(
        labels=boot_labels(wanted, node_class, family.name, capacity_type),
        taints=(*wanted.taints, *wanted.startup_taints),
        max_pods=max_pods,
    )
    text = userdata.render(family.name, node_class, cluster, boot)
    if isinstance(text, Refusal):
        return text
    return template(
        cluster=cluster.name,
        node_pool=wanted.nodepool,
        node_class=node_class,
        family=family,
        ami=ami,
        user_data=text,
        capacity_type=capacity_type,
        machine=Machine(
            from_expressions(wanted.requirements),
            dict(wanted.requests),
            efa,
            ":" in cluster.service_cidr,
            dict(purchase),
        ),
    )


def boot_labels(wanted: Wanted, node_class: EC2NodeClass, family: str, capacity_type: str) -> dict[str, str]:
    """The labels a node registers with; the rest follow from its NodeClaim."""
    given = dict(wanted.labels) | {
        labels.NODEPOOL: wanted.nodepool,
        labels.EC2NODECLASS: node_class.name,
        labels.CAPACITY_TYPE: capacity_type,
    }
    return given if family == families.CUSTOM else given | {labels.DO_NOT_SYNC_TAINTS: "true"}


def _override(one: Candidate, template_name: str, ami: AMI) -> Override:
    return Override(
        template_name,
        one.instance_type.name,
        one.zone,
        one.subnet_id,
        ami.id,
        one.price_picousd_per_hour,
        one.reserved.id if one.reserved else "",
    )


def token(launch: str, attempt: int) -> str:
    """The client token of one attempt of a launch: at most 64 ASCII characters."""
    return f"{launch[:48]}-{attempt}"


def request(
    fleet: FleetPlan, versions: Mapping[str, tuple[str, str]], *, launch: str, count: int, client_token: str
) -> dict[str, Any]:
    """The CreateFleet request for ``count`` instances. ``versions``: template name → (id, version number as text)."""
    tags = fleet.tags | {labels.LAUNCH_TAG: launch}
    capacity, options = _purchase(fleet)
    body: dict[str, Any] = {
        "ClientToken": client_token,
        "LaunchTemplateConfigs": [_config(fleet, one.name, versions[one.name]) for one in fleet.templates],
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
    return reserved.request_fields(fleet.reservations, "prioritized" if fleet.prioritized else "lowest-price")


def reservations(fleet: FleetPlan) -> dict[str, str]:
    """``<instance type>/<zone>`` → the reservation it is taken out of, as far as it is out of one."""
    return {f"{one.instance_type}/{one.zone}": one.reservation for one in fleet.overrides if one.reservation}


def _config(fleet: FleetPlan, name: str, version: tuple[str, str]) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateId": version[0], "Version": version[1]},
        "Overrides": [
            {
                "AvailabilityZone": one.zone,
                "ImageId": one.image_id,
                "InstanceType": one.instance_type,
                "Priority": one.price_picousd_per_hour / PICOUSD,
                "SubnetId": one.subnet_id,
            }
            for one in fleet.overrides
            if one.template == name
        ],
    }


def serialise(body: Mapping[str, Any]) -> str:
    """A request as the launch row keeps it: equal requests, equal text."""
    return msgspec.json.encode(body, order="deterministic").decode()


class Launched(msgspec.Struct, frozen=True):
    """What a NodeClaim learns when its instance exists."""

    provider_id: str
    labels: dict[str, str]
    capacity: dict[str, int]
    allocatable: dict[str, int]


def launched(
    *,
    instance_id: str,
    zone: str,
    capacity_type: str,
    instance_type: InstanceType,
    wanted: Wanted,
    reservation: str = "",
    partition: int = 0,
) -> Launched:
    """Labels, provider id and resources of the claim whose instance is of ``instance_type`` in ``zone``.

    Labels are the type's certain ones, then the claim's own, then where and how it was bought; ``reservation``: the
    capacity reservation it runs in, "" = none; ``partition``: of its placement group, 0 = EC2 has not said.
    """
    asked = from_expressions(wanted.requirements)
    tenancy = placement.tenancy(asked)
    bought = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type, labels.TENANCY: tenancy}
    into = reserved.node_labels(instance_type.offerings, reservation)
    into |= placement.partition_label(instance_type.requirements, asked, partition)
    certain = reserved.unreserved(instance_type.requirements) | _offering_labels(instance_type, zone, capacity_type)
    return Launched(
        provider_id=f"aws:///{zone}/{instance_id}",
        labels=dict(sorted((certain | dict(wanted.labels) | bought | into).items())),
        capacity=instance_type.capacity,
        allocatable=instance_type.allocatable,
    )


def _offering_labels(instance_type: InstanceType, zone: str, capacity_type: str) -> dict[str, str]:
    offerings = (one for one in instance_type.offerings if (one.zone, one.capacity_type) == (zone, capacity_type))
    return reserved.unreserved(next((one.requirements for one in offerings), Requirements()))
