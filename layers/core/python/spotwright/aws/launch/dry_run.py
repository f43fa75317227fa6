"""Whether EC2 would launch nodes of an EC2NodeClass: the calls with DryRun that ask it, and what their errors mean.

Source: Karpenter's validation of EC2NodeClasses (condition ValidationSucceeded) and the EC2 API reference, DryRun.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from spotwright.aws.bootstrap import user_data
from spotwright.aws.bootstrap.options import BootstrapOptions
from spotwright.aws.images import amis, families
from spotwright.aws.images.families import AMIFamily
from spotwright.aws.launch import create_fleet
from spotwright.aws.launch.fleet_plan import FleetPlan, Override
from spotwright.aws.launch.template import TemplateOptions, launch_tags, launch_template_request, tag_specifications
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.errors import ApiError
from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirements, from_expressions

# How long an answer holds while the class does not change.
RESULT_TTL: Final = timedelta(minutes=30)
# A right that was given counts within seconds: https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html
DENIAL_TTL: Final = timedelta(minutes=2)
# Types that nearly every region sells, for classes whose instance types are not known yet.
_DEFAULT_TYPES: Final = {"amd64": "m5.large", "arm64": "m6g.large"}
_PODS: Final = 110
PROFILE_MISSING: Final = "InstanceProfileNotFound"
DENIALS: Final = frozenset(
    {"CreateLaunchTemplateAuthCheckFailed", "CreateFleetAuthCheckFailed", "RunInstancesAuthCheckFailed"}
)
LASTING_REASONS: Final = DENIALS | {"UserDataSizeLimitExceeded"}


class DryRunTarget(msgspec.Struct, frozen=True):
    """The instance type and the image that the dry run names, and the zones that sell the type, empty = not known."""

    instance_type: str
    ami: AMI
    dedicated: bool = False
    zones: frozenset[str] = frozenset()


def dry_run_target(nodeclass: EC2NodeClass, pools: Iterable[NodePool], types: Iterable[InstanceType]) -> DryRunTarget:
    """The cheapest type that a NodePool of the class allows; types with a standard image come before accelerated types.

    ``types``: the instance types of the class, () when they are not known yet. The class has at least one image.
    """
    pool_requirements = [
        from_expressions(pool.requirements)
        for pool in pools
        if pool.is_managed and pool.node_class_ref.name == nodeclass.name
    ]
    dedicated = any(
        labels.TENANCY in requirements and requirements.get(labels.TENANCY).has("dedicated")
        for requirements in pool_requirements
    )
    ordered = sorted(nodeclass.amis, key=lambda ami: (not _is_standard(ami), _arch(ami) != "amd64"))
    images, windows = (
        amis.amis_with_requirements(ordered),
        families.ami_family_name(nodeclass) in families.WINDOWS_BUILDS,
    )
    allowed_types = (
        []
        if windows
        else [
            instance_type
            for instance_type in types
            if any(instance_type.requirements.intersects(requirements) for requirements in pool_requirements)
        ]
    )
    candidates = [
        (instance_type, ami) for instance_type in allowed_types if (ami := amis.ami_for_type(images, instance_type))
    ]
    if not candidates:
        return DryRunTarget(_default_type(ordered[0]), ordered[0], dedicated)
    best, ami = min(
        candidates, key=lambda candidate: (not _is_standard(candidate[1]), _price(candidate[0]), candidate[0].name)
    )
    zones = frozenset(o.zone for o in best.offerings if o.capacity_type == labels.ON_DEMAND)
    return DryRunTarget(best.name, ami, dedicated, zones)


def _is_standard(ami: AMI) -> bool:
    return all(expression.operator != Operator.EXISTS for expression in ami.requirements)


def _default_type(ami: AMI) -> str:
    return _DEFAULT_TYPES.get(_arch(ami), _DEFAULT_TYPES["amd64"])


def _arch(ami: AMI) -> str:
    return from_expressions(ami.requirements).get(labels.ARCH).sole_value or "amd64"


def _price(instance_type: InstanceType) -> int:
    prices = (
        offering.price_picousd_per_hour
        for offering in instance_type.offerings
        if offering.capacity_type == labels.ON_DEMAND
    )
    return min((price for price in prices if price), default=2**63)


def lasts(refusal: Refusal | Unanswered | None) -> timedelta | None:
    """How long what came of a dry run holds; None: it is tried again the next time."""
    if refusal is None:
        return RESULT_TTL
    if isinstance(refusal, Unanswered) or refusal.reason not in LASTING_REASONS:
        return None
    return DENIAL_TTL if refusal.reason in DENIALS else RESULT_TTL


def plan_dry_run(
    nodeclass: EC2NodeClass, target: DryRunTarget, cluster: ClusterFacts, family: AMIFamily
) -> FleetPlan | Refusal:
    """The launch to ask about: a single launch template, and a subnet of each zone; its nodepool tag is empty."""
    text = user_data.render(
        family.name, nodeclass, cluster, BootstrapOptions({labels.EC2NODECLASS: nodeclass.name}, (), _PODS)
    )
    if isinstance(text, Refusal):
        return text
    tenancy = NodeSelectorRequirement(labels.TENANCY, Operator.IN, ("dedicated",))
    template_request = launch_template_request(
        cluster=cluster.name,
        nodepool="",
        nodeclass=nodeclass,
        family=family,
        ami=target.ami,
        user_data=text,
        capacity_type=labels.ON_DEMAND,
        options=TemplateOptions(
            from_expressions((tenancy,)) if target.dedicated else Requirements(),
            ipv6=":" in cluster.service_cidr,
            partition=cluster.partition,
        ),
    )
    first = {subnet.zone: subnet for subnet in reversed(nodeclass.subnets)}
    # EC2 refuses a type where it is not sold, which says nothing of the class.
    zones = target.zones & first.keys() or first.keys()
    overrides = tuple(
        Override(template_request.name, target.instance_type, zone, first[zone].id, target.ami.id, 0)
        for zone in sorted(zones)
    )
    tags = launch_tags(cluster=cluster.name, nodepool="", nodeclass=nodeclass)
    return FleetPlan(labels.ON_DEMAND, (template_request,), overrides, tags, nodeclass.context)


def create_fleet_dry_run(plan: FleetPlan, version: tuple[str, str]) -> dict[str, Any]:
    versions = {plan.templates[0].name: version}
    body = create_fleet.create_fleet_request(plan, versions, launch_id=_DRY_RUN, count=1, client_token=_DRY_RUN)
    return {key: value for key, value in body.items() if key != "ClientToken"} | {"DryRun": True}


_DRY_RUN: Final = "dry-run"


def run_instances_dry_runs(plan: FleetPlan, version: tuple[str, str], subnets: Sequence[str]) -> list[dict[str, Any]]:
    """RunInstances of an instance in each subnet. The interfaces name the subnet, since the template has interfaces."""
    chosen, interfaces = plan.overrides[0], plan.templates[0].data["NetworkInterfaces"]
    return [
        {
            "DryRun": True,
            "InstanceType": chosen.instance_type,
            "LaunchTemplate": {"LaunchTemplateId": version[0], "Version": version[1]},
            "MaxCount": 1,
            "MinCount": 1,
            "NetworkInterfaces": [interface | {"SubnetId": subnet} for interface in interfaces],
            "TagSpecifications": tag_specifications(("instance", "volume"), plan.tags | {labels.LAUNCH_TAG: _DRY_RUN}),
        }
        for subnet in subnets
    ]


def explain_error(operation: str, error: ApiError, nodeclass: EC2NodeClass) -> Refusal | Unanswered:
    """What an error of a dry run means: EC2 would refuse the launch, or it did not answer the question."""
    message = str(error)
    if error.code == "UnauthorizedOperation":
        why = f"not authorized to call ec2:{operation}: {_readable_denial(message)}"
        return Refusal(f"{operation}AuthCheckFailed", why)
    if "User data is limited to" in message:
        return Refusal("UserDataSizeLimitExceeded", f"spec.userData: {message}")
    if "Invalid IAM Instance Profile" in message and nodeclass.instance_profile:
        return Refusal(PROFILE_MISSING, f"spec.instanceProfile: EC2 knows no {nodeclass.instance_profile}")
    return Unanswered(f"ec2:{operation} could not be tried: {message}")


def _readable_denial(message: str) -> str:
    """EC2's message, without the part that only ``aws sts decode-authorization-message`` can read."""
    readable = message.partition("Encoded authorization failure message")[0].strip()
    if "permissions boundary" in readable:
        return f"a permissions boundary does not allow it ({readable})"
    if "service control policy" in readable:
        return f"a service control policy of the organization denies it ({readable})"
    return readable


def inputs_digest(nodeclass: EC2NodeClass, cluster: ClusterFacts) -> str:
    """A digest of what EC2's answer depends on: when it changes, the dry run is repeated."""
    content = (
        {key: value for key, value in nodeclass.metadata.annotations.items() if key == labels.EC2NODECLASS_HASH},
        sorted(subnet.id for subnet in nodeclass.subnets),
        sorted(security_group.id for security_group in nodeclass.security_groups),
        sorted(ami.id for ami in nodeclass.amis),
        nodeclass.placement_group,
        nodeclass.resolved_instance_profile,
        nodeclass.ip_prefix_count,
        sorted(nodeclass.tags.items()),
        cluster,
    )
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]
