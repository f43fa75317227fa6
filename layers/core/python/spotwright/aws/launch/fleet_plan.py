"""The plan of a launch: the offerings that CreateFleet may choose from, and the launch templates that they start from.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.aws.bootstrap import user_data
from spotwright.aws.bootstrap.options import BootstrapOptions
from spotwright.aws.images import amis, families
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import capacity_reservations, placement
from spotwright.aws.launch.filters import LaunchOffering, NodeToLaunch, select_offerings
from spotwright.aws.launch.template import (
    LaunchTemplateRequest,
    TemplateOptions,
    launch_tags,
    launch_template_request,
)
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.ec2.instance_type import InstanceType, drop_reserved_offerings
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass
from spotwright.model.requirements import from_expressions
from spotwright.model.resources import EFA, PODS
from spotwright.model.snapshot import RESERVED_CAPACITY

# Instant fleets take 300 overrides in all: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/fleet-quotas.html
MAX_OVERRIDES: Final = 300
MAX_LAUNCH_TEMPLATES: Final = 50


class Override(msgspec.Struct, frozen=True):
    """An instance type in a zone that CreateFleet may choose, and the launch template it starts from.

    ``reservation_id``: the capacity reservation that the instance uses, "" = spot or on-demand.
    """

    template_name: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    price_picousd_per_hour: int
    reservation_id: str = ""


class FleetPlan(msgspec.Struct, frozen=True):
    """A launch before its launch templates have ids. ``overrides``: cheapest first.

    ``prioritized``: EC2 follows the order of the overrides, since a NodeOverlay states prices that EC2 does not know.
    ``reservation_kind``: kind of the capacity reservations that the launch uses, "" = spot or on-demand.
    ``placement_scope``: id of the placement group, with ``/<number>`` for a single partition of it, "" = none.
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
    """The launch for ``node``, or why it cannot be launched now.

    ``feature_gates``: feature gates that are on; without ReservedCapacity a launch names no capacity reservation.
    """
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        return family
    if not nodeclass.resolved_instance_profile:
        return Refusal("NodeClassNotReady", f"EC2NodeClass {nodeclass.name} has no instance profile yet")
    uses_reservations = RESERVED_CAPACITY in feature_gates
    selection = select_offerings(
        node, nodeclass, types if uses_reservations else drop_reserved_offerings(tuple(types)), unavailable
    )
    if isinstance(selection, Refusal):
        return selection
    capacity_type, offerings = selection
    return _assemble(node, nodeclass, cluster, family, capacity_type, offerings, uses_reservations)


def _assemble(
    node: NodeToLaunch,
    nodeclass: EC2NodeClass,
    cluster: ClusterFacts,
    family: families.AMIFamily,
    capacity_type: str,
    offerings: Sequence[LaunchOffering],
    uses_reservations: bool,
) -> FleetPlan | Refusal:
    images = amis.amis_with_requirements(nodeclass.amis)
    templates: dict[tuple[str, int, int, bytes, str], LaunchTemplateRequest] = {}
    overrides = []
    for offering in offerings[:MAX_OVERRIDES]:
        ami = amis.ami_for_type(images, offering.instance_type)
        if ami is None:
            continue
        efa = offering.instance_type.capacity.get(EFA, 0) if node.requests.get(EFA) else 0
        kubelet = offering.instance_type.kubelet_reserved
        kubelet_key, reservation_id = (
            msgspec.json.encode(kubelet, order="sorted"),
            offering.reservation.id if offering.reservation else "",
        )
        key = (ami.id, offering.instance_type.capacity.get(PODS, 0), efa, kubelet_key, reservation_id)
        if key not in templates:
            if len(templates) == MAX_LAUNCH_TEMPLATES:
                continue
            resolved = msgspec.structs.replace(nodeclass, kubelet=nodeclass.kubelet | kubelet)
            purchase = capacity_reservations.launch_template_fields(offering.reservation) if uses_reservations else {}
            template = _template(node, resolved, cluster, family, capacity_type, ami, key[1], efa, purchase)
            if isinstance(template, Refusal):
                return template
            templates[key] = template
        overrides.append(_override(offering, templates[key].name, ami))
    if not overrides:
        return Refusal("AMINotFound", f"EC2NodeClass {nodeclass.name} has no image for any of the instance types")
    tags = launch_tags(cluster=cluster.name, nodepool=node.nodepool, nodeclass=nodeclass)
    kind = next((offering.reservation.kind for offering in offerings if offering.reservation), "")
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
            cluster.partition,
        ),
    )


def registration_labels(node: NodeToLaunch, nodeclass: EC2NodeClass, family: str, capacity_type: str) -> dict[str, str]:
    """The labels that the kubelet registers the node with; registration adds the other labels of the NodeClaim."""
    node_labels = dict(node.labels) | {
        labels.NODEPOOL: node.nodepool,
        labels.EC2NODECLASS: nodeclass.name,
        labels.CAPACITY_TYPE: capacity_type,
    }
    return node_labels if family == families.CUSTOM else node_labels | {labels.DO_NOT_SYNC_TAINTS: "true"}


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
