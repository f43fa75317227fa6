"""One EC2NodeClass: its selectors are resolved and its status is written; what was created for it goes with it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.aws.images import amis
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.nodeclass import hashes, instance_profiles, readiness, status_patch
from spotwright.aws.nodeclass.validation import has_expressions
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.disruption.nodeclaim_drift import hash_migration
from spotwright.errors import ApiError, Denied, NotFound
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import AMI, CapacityReservation, EC2NodeClass, PlacementGroup
from spotwright.model.kubernetes.meta import Condition, is_condition_true
from spotwright.telemetry import events
from spotwright.workflows.catalog import dry_runs, instance_types
from spotwright.workflows.ports.bundles import CatalogPorts
from spotwright.workflows.ports.catalog import InstanceProfilePort

KIND: Final = "ec2nodeclasses"
_NAMED_CLAIMS: Final = 5


class NodeClassResult(msgspec.Struct, frozen=True):
    """A class after its turn. ``readiness_changed``: its readiness changed; ``may_drift``: nodes of it may drift now
    that did not.

    ``retry``: look once more soon. ``subnets``: what EC2 described now.
    """

    node_class: EC2NodeClass
    ready: bool
    readiness_changed: bool = False
    may_drift: bool = False
    failure: str = ""
    retry: bool = False
    subnets: tuple[readiness.DiscoveredSubnet, ...] = ()


def reconcile_nodeclass(
    ports: CatalogPorts, node_class: EC2NodeClass, claims: Sequence[NodeClaim], *, now: datetime
) -> NodeClassResult:
    """Bring a class' status up to date, or its deletion one step further. Raises what AWS and Kubernetes raise."""
    if node_class.metadata.deletion_timestamp is not None:
        return _finalize(ports, node_class, [claim for claim in claims if _may_be_of(claim, node_class)], now)
    own_claims = [claim for claim in claims if _is_of(claim, node_class)]
    read, node_class = node_class, _write_hash(ports, node_class, own_claims)
    discovered_resources = _resolve_selectors(ports, node_class, now)
    checks = readiness.ValidationInputs(
        ports.overheads, _region_types(ports, node_class), reserved_capacity=ports.reserved_capacity
    )
    resolution = readiness.resolve(node_class, discovered_resources, ports.facts, now=now, inputs=checks)
    tried = dry_runs.DryRunResult()
    if is_condition_true(resolution.nodeclass.conditions, readiness.VALIDATION_SUCCEEDED):
        tried = dry_runs.dry_run_launch(ports, node_class, resolution.nodeclass, now=now)
        checks = msgspec.structs.replace(checks, dry_run=tried.refusal)
        resolution = readiness.resolve(node_class, discovered_resources, ports.facts, now=now, inputs=checks)
    _write(ports, node_class, resolution.nodeclass, now)
    if tried.annotation:
        ports.cluster.patch_metadata(
            KIND,
            node_class.metadata.without_resource_version(),
            {"annotations": {labels.LAUNCH_TRIED: tried.annotation}},
        )
    was_ready = is_condition_true(node_class.conditions, readiness.READY)
    unanswered = _unanswered(discovered_resources, checks)
    return NodeClassResult(
        resolution.nodeclass,
        resolution.ready,
        readiness_changed=resolution.ready != was_ready,
        may_drift=_drift_inputs(resolution.nodeclass) != _drift_inputs(read),
        failure="; ".join(unanswered),
        retry=bool(unanswered),
        subnets=() if isinstance(discovered_resources.subnets, Unanswered) else discovered_resources.subnets,
    )


def _is_of(claim: NodeClaim, node_class: EC2NodeClass) -> bool:
    return claim.is_managed and claim.node_class_ref.name == node_class.name


def _may_be_of(claim: NodeClaim, node_class: EC2NodeClass) -> bool:
    """One that cannot be read is of the class that its label names, and without the label maybe of any."""
    if claim.read_error:
        return claim.metadata.labels.get(labels.EC2NODECLASS, node_class.name) == node_class.name
    return _is_of(claim, node_class)


def _drift_inputs(node_class: EC2NodeClass) -> tuple[object, ...]:
    """What the drift of the class' nodes depends on."""
    groups = sorted(security_group.id for security_group in node_class.security_groups)
    subnets = sorted(subnet.id for subnet in node_class.subnets)
    reservations = [reservation.id for reservation in node_class.capacity_reservations]
    stamped = node_class.metadata.annotations.get(labels.EC2NODECLASS_HASH)
    return stamped, node_class.amis, groups, subnets, reservations, node_class.placement_group


def _resolve_selectors(ports: CatalogPorts, node_class: EC2NodeClass, now: datetime) -> readiness.DiscoveredResources:
    """What each selector selects; one that cannot be resolved does not keep the others."""
    chosen, nodeclass = ports.selectors, node_class
    return readiness.DiscoveredResources(
        subnets=_ask(lambda: chosen.subnets(nodeclass.subnet_selector_terms)),
        security_groups=_ask(lambda: chosen.security_groups(nodeclass.security_group_selector_terms)),
        amis=_ask(lambda: _amis(ports, nodeclass, now)),
        instance_profile=_ask(lambda: _profile(ports, nodeclass)),
        capacity_reservations=_ask(lambda: _reservations(ports, nodeclass)),
        placement_group=_ask(lambda: _placement_group(ports, nodeclass)),
    )


def _ask[T](ask: Callable[[], T]) -> T | Unanswered:
    try:
        return ask()
    except ApiError as error:
        return Unanswered(f"{type(error).__name__}: {error}")


def _region_types(ports: CatalogPorts, node_class: EC2NodeClass) -> tuple[InstanceTypeInfo, ...] | Unanswered:
    """The region's instance types, for a class with kubelet expressions; () for any other."""
    if not (ports.overheads.nodeclass_cel and has_expressions(node_class)):
        return ()
    region = instance_types.region_of(ports.blobs, instance_types.read_catalog(ports.blobs, ports.state.catalog_key()))
    return region.types if region else Unanswered("the instance types of the region are not known yet")


def _unanswered(
    discovered_resources: readiness.DiscoveredResources, checks: readiness.ValidationInputs
) -> tuple[str, ...]:
    answers = (
        *(getattr(discovered_resources, name) for name in discovered_resources.__struct_fields__),
        checks.instance_types,
        checks.dry_run,
    )
    return tuple(answer.message for answer in answers if isinstance(answer, Unanswered))


def _write_hash(ports: CatalogPorts, node_class: EC2NodeClass, claims: Sequence[NodeClaim]) -> EC2NodeClass:
    """The class with its finalizer and hash; claims with another hash version receive the new hash first."""
    metadata = node_class.metadata
    digest = hashes.nodeclass_hash(node_class, ports.facts.certificate_authority)
    annotations = {labels.EC2NODECLASS_HASH: digest, labels.EC2NODECLASS_HASH_VERSION: hashes.NODECLASS_VERSION}
    if metadata.annotations.get(labels.EC2NODECLASS_HASH_VERSION) != hashes.NODECLASS_VERSION:
        for claim in claims:
            if annotation_change := hash_migration(claim, annotations, labels.EC2NODECLASS_HASH_VERSION):
                ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": dict(annotation_change)})
    change: dict[str, Any] = {}
    if any(metadata.annotations.get(key) != value for key, value in annotations.items()):
        change["annotations"] = annotations
    if labels.EC2NODECLASS_FINALIZER not in metadata.finalizers:
        change["finalizers"] = [*metadata.finalizers, labels.EC2NODECLASS_FINALIZER]
    if not change:
        return node_class
    ports.cluster.patch_metadata(KIND, metadata, change)
    finalizers = tuple(change.get("finalizers", metadata.finalizers))
    # The resourceVersion that was read is outdated now.
    after = msgspec.structs.replace(
        metadata, annotations=metadata.annotations | annotations, finalizers=finalizers, resource_version=""
    )
    return msgspec.structs.replace(node_class, metadata=after)


def _amis(ports: CatalogPorts, node_class: EC2NodeClass, now: datetime) -> tuple[AMI, ...] | Refusal:
    query = amis.image_query(node_class.ami_selector_terms, ports.facts.version)
    if isinstance(query, Refusal):
        return query
    try:
        values = (
            ports.selectors.parameters([parameter.path for parameter in query.parameters]) if query.parameters else {}
        )
    except Denied as error:
        return Refusal("AMINotFound", f"spec.amiSelectorTerms: an SSM parameter may not be read: {error}")
    ids = sorted({*query.ids, *(value for value in values.values() if value.startswith("ami-"))})
    if not ids and not query.terms:
        return ()
    return amis.resolve_amis(query, values, ports.selectors.images(ids, query.terms), now=now)


def _reservations(ports: CatalogPorts, node_class: EC2NodeClass) -> tuple[CapacityReservation, ...]:
    if not ports.reserved_capacity:
        return ()
    return ports.selectors.capacity_reservations(node_class.capacity_reservation_selector_terms)


def _placement_group(ports: CatalogPorts, node_class: EC2NodeClass) -> PlacementGroup | Refusal | None:
    selector = node_class.placement_group_selector
    if selector is None:
        return None
    named = f"id {selector.id}" if selector.id else f"name {selector.name}"
    refusal = Refusal("PlacementGroupNotFound", f"spec.placementGroupSelector: no usable placement group with {named}")
    return ports.selectors.placement_group(selector) or refusal


def _profile(ports: CatalogPorts, node_class: EC2NodeClass) -> str | Refusal:
    """The name of the instance profile: that of the spec, or the one for its role, which is created if it is missing.

    With ISOLATED_VPC the profile of the spec is not checked, and that of a role must have been created before.
    """
    if node_class.instance_profile:
        return _named_profile(ports.instance_profiles, ports.node_roles, node_class.instance_profile)
    profile = instance_profiles.desired_profile(
        node_class, region=ports.region, cluster=ports.cluster.name, node_roles=ports.node_roles
    )
    if isinstance(profile, Refusal):
        return profile
    if ports.instance_profiles is None:
        message = "spec.role: with ISOLATED_VPC no instance profile can be created; set spec.instanceProfile instead"
        is_resolved = node_class.resolved_instance_profile == profile.name
        return profile.name if is_resolved else Refusal("IsolatedVPC", message)
    try:
        ports.instance_profiles.ensure(name=profile.name, path=profile.path, role=profile.role, tags=profile.tags)
    except NotFound:
        return Refusal("RoleNotFound", f"spec.role: IAM role {profile.role} does not exist")
    return profile.name


def _named_profile(iam: InstanceProfilePort | None, node_roles: Sequence[str], name: str) -> str | Refusal:
    if iam is None:
        return name
    role = iam.role_of(name)
    if role is None:
        return Refusal("InstanceProfileNotFound", f"spec.instanceProfile: instance profile {name} does not exist")
    refusal = instance_profiles.role_refusal(role, node_roles, f"spec.instanceProfile: the role of {name}")
    return refusal or name


def _write(ports: CatalogPorts, before: EC2NodeClass, after: EC2NodeClass, now: datetime) -> None:
    """Status and conditions where they differ, and an event for each condition that turned False."""
    metadata = before.metadata.without_resource_version()
    if before.resolved_instance_profile and after.resolved_instance_profile not in (
        "",
        before.resolved_instance_profile,
    ):
        # Instances that are just launched have the earlier profile, which is kept for a while from now.
        ports.cluster.patch_metadata(KIND, metadata, {"annotations": {labels.INSTANCE_PROFILE_SINCE: now.isoformat()}})
    status = status_patch.status_patch(after)
    if status != status_patch.status_patch(before):
        ports.cluster.patch_status(KIND, metadata, status)
    conditions = {condition.type: condition for condition in before.conditions}
    changed = [
        condition for condition in after.conditions if not _same_condition(conditions.get(condition.type), condition)
    ]
    if changed:
        ports.cluster.set_conditions(KIND, metadata, changed)
    for condition in changed:
        if condition.status == "False" and condition.type != readiness.READY:
            event = events.CONDITION_FALSE(reason=condition.reason, message=condition.message)
            ports.cluster.record_event(KIND, metadata, event, now=now)


def _same_condition(before: Condition | None, after: Condition) -> bool:
    return before is not None and msgspec.structs.replace(before, last_transition_time=None) == msgspec.structs.replace(
        after, last_transition_time=None
    )


def _finalize(
    ports: CatalogPorts, node_class: EC2NodeClass, claims: Sequence[NodeClaim], now: datetime
) -> NodeClassResult:
    """Wait for the class' claims; then delete its instance profiles and launch templates, and remove the finalizer."""
    metadata = node_class.metadata
    if labels.EC2NODECLASS_FINALIZER not in metadata.finalizers:
        return NodeClassResult(node_class, False)
    if claims:
        names = sorted(claim.name for claim in claims)
        more = f" and {len(names) - _NAMED_CLAIMS} more" if len(names) > _NAMED_CLAIMS else ""
        waiting = events.WAITING_ON_NODECLAIM_TERMINATION(nodeclaims=", ".join(names[:_NAMED_CLAIMS]) + more)
        ports.cluster.record_event(KIND, metadata, waiting, now=now)
        return NodeClassResult(node_class, False, retry=True)
    path = instance_profiles.profile_path(region=ports.region, cluster=ports.cluster.name, uid=metadata.uid)
    iam = ports.instance_profiles
    if iam is not None:
        for name in iam.names_under(path):
            iam.delete(name)
    for template in ports.launch_templates.launch_templates(node_class.name):
        ports.launch_templates.delete_launch_template(template.id)
    finalizers = [finalizer for finalizer in metadata.finalizers if finalizer != labels.EC2NODECLASS_FINALIZER]
    ports.cluster.patch_metadata(KIND, metadata, {"finalizers": finalizers})
    return NodeClassResult(node_class, False)
