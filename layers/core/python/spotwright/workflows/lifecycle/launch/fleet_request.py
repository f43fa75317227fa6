"""The CreateFleet request of a launch: its offerings, its launch templates, its text."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import msgspec

from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import create_fleet, fleet_plan
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.aws.launch.template import LaunchTemplateRequest
from spotwright.aws.nodeclass import hashes
from spotwright.aws.refusal import Refusal
from spotwright.errors import Throttled
from spotwright.lifecycle import nodeclaim_creation, nodeclass_readiness
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.scheduling.plan import NewNode
from spotwright.workflows.account import offering_health_store, rate_limits
from spotwright.workflows.lifecycle.launch.instance_types import instance_types_for
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms


class LaunchOptions(msgspec.Struct, frozen=True):
    """The inputs of a launch: its class, if it exists; unavailable offerings; the instance types of the class."""

    node_class: EC2NodeClass | None
    offering_health: UnavailableOfferings
    instance_types: tuple[InstanceType, ...]


def gather_options(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> LaunchOptions:
    node = msgspec.json.decode(row.node, type=NewNode)
    with ThreadPoolExecutor(2) as meanwhile:
        classes = meanwhile.submit(ports.cluster.nodeclasses)
        health = meanwhile.submit(offering_health_store.current_health, ports.state, now_ms=epoch_ms(now))
        types = instance_types_for(ports, node)
    nodeclass = next((nodeclass for nodeclass in classes.result() if nodeclass.name == node.nodeclass), None)
    return LaunchOptions(nodeclass, health.result(), types)


def nodeclass_hash(ports: LifecyclePorts, options: LaunchOptions) -> str:
    return hashes.nodeclass_hash(options.node_class, ports.facts.certificate_authority) if options.node_class else ""


def build_request(
    ports: LifecyclePorts, row: LaunchRow, waiting: Sequence[NodeClaim], options: LaunchOptions, now: datetime
) -> tuple[str, FleetPlan] | int | Refusal:
    """The request as text; or the seconds until its templates may be created; or why there is no request."""
    node = _decided_node(row, options)
    readiness = nodeclass_readiness.nodeclass_readiness(options.node_class, node.nodeclass)
    if options.node_class is None or readiness.reason:
        return Refusal(readiness.reason, readiness.message)
    if not options.instance_types:
        # A class is Ready before the catalog has its types: that they are not known does not mean there are none.
        message = f"the catalog has no instance types of EC2NodeClass {node.nodeclass} yet"
        return Refusal("InstanceTypesUnknown", message)
    gates = ports.settings.feature_gates
    fleet = fleet_plan.plan_fleet(
        node, options.node_class, options.instance_types, ports.facts, options.offering_health, feature_gates=gates
    )
    if isinstance(fleet, Refusal):
        return fleet
    # With relaxed minValues the fleet has fewer instance types than the context of the class was created for.
    has_relaxed_min_values = any(
        nodeclaim.metadata.annotations.get(labels.MIN_VALUES_RELAXED) == "true" for nodeclaim in waiting
    )
    context = "" if has_relaxed_min_values else fleet.context
    fleet = msgspec.structs.replace(fleet, prioritized=node.price_overlay_applied, context=context)
    versions = _template_versions(ports, row, fleet.templates, now)
    if isinstance(versions, int):
        return versions
    token = create_fleet.client_token(row.id, row.attempt)
    body = create_fleet.create_fleet_request(fleet, versions, launch_id=row.id, count=len(waiting), client_token=token)
    return create_fleet.encode_request(body), fleet


def _decided_node(row: LaunchRow, options: LaunchOptions) -> NewNode:
    """The node of the row, with room for the requests of each of its claims; one of a NodeClaim that was adopted before
    its types were known may be any of them.
    """
    node = msgspec.json.decode(row.node, type=NewNode)
    node = msgspec.structs.replace(node, requests=resources.maximum((node.requests, *row.requests.values())))
    if node.instance_types:
        return node
    names = (instance_type.name for instance_type in options.instance_types)
    return msgspec.structs.replace(node, instance_types=nodeclaim_creation.allowed_types(node.requirements, names))


def _template_versions(
    ports: LifecyclePorts, row: LaunchRow, templates: Iterable[LaunchTemplateRequest], now: datetime
) -> dict[str, tuple[str, str]] | int:
    """Template name → (id, version), missing ones created; or the seconds until they may be created."""
    requests = tuple(templates)
    with ThreadPoolExecutor(len(requests) or 1) as threads:
        versions = threads.map(lambda request: ports.ec2.launch_template(request.name, request.data), requests)
        versions_by_name = dict(zip((template_request.name for template_request in requests), versions, strict=True))
    missing = [template_request for template_request in requests if versions_by_name[template_request.name] is None]
    if missing:
        wait = rate_limits.acquire(
            ports.state, rate_limits.CREATE_LAUNCH_TEMPLATE, caller=row.id, now=now, calls=len(missing)
        )
        if wait:
            return wait
    # Side by side: each is awaited until EC2 shows it.
    created = in_parallel(lambda template_request: _create_template(ports, template_request, now), missing)
    existing = {name: version for name, version in versions_by_name.items() if version is not None}
    return existing | dict(zip((template_request.name for template_request in missing), created, strict=True))


def _create_template(ports: LifecyclePorts, template_request: LaunchTemplateRequest, now: datetime) -> tuple[str, str]:
    try:
        return ports.ec2.ensure_launch_template(template_request.name, template_request.data, template_request.tags)
    except Throttled:
        rate_limits.slow_down(ports.state, rate_limits.CREATE_LAUNCH_TEMPLATE, now=now)
        raise


def record_subnets(
    ports: LifecyclePorts, row: LaunchRow, fleet: FleetPlan, options: LaunchOptions, *, nodes: int, now: datetime
) -> None:
    """Count what the launch will take of subnets with few addresses; launches beside it look for others then."""
    subnets = {override.subnet_id for override in fleet.overrides}
    if subnets.isdisjoint(options.offering_health.free_addresses):
        return
    names = {override.instance_type for override in fleet.overrides}
    pods = [kind.capacity.get(resources.PODS, 1) for kind in options.instance_types if kind.name in names]
    offering_health_store.record_fleet_request(
        ports.state, row.id, subnets, nodes=nodes, node_addresses=min(pods, default=1), now_ms=epoch_ms(now)
    )


def is_refused_regardless(ports: LifecyclePorts, row: LaunchRow, options: LaunchOptions) -> bool:
    """Whether a refused launch would be refused even if every offering were available."""
    if options.node_class is None or options.node_class.metadata.deletion_timestamp is not None:
        return False
    node, gates = _decided_node(row, options), ports.settings.feature_gates
    return isinstance(
        fleet_plan.plan_fleet(
            node, options.node_class, options.instance_types, ports.facts, UnavailableOfferings(), feature_gates=gates
        ),
        Refusal,
    )
