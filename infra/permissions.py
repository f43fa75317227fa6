"""What may be done to one cluster's AWS resources: read freely, write only what carries the cluster's tags.

The pins follow the policies Karpenter publishes for its controller
(https://karpenter.sh/docs/reference/cloudformation/), split in two roles and narrowed: instance profiles by
path, templates by tag. OWN below is the tag `kubernetes.io/cluster/<cluster>` = owned.
"""

from typing import Any

from aws_cdk import Stack

from infra.config import Cluster
from infra.grants import Grant

_DESCRIBE_ALL = "EC2's Describe calls take no resource; they are bound to the region instead."
_NEW = "What a launch creates has no id before it is created; its tags pin it to this cluster."
_CHOSEN = "Images, subnets and groups are the user's choice in the EC2NodeClass; launching changes none of them."
_TAGGED = "Ids are EC2's; the tags pin the call to what this cluster launched."


def read_grants(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """See the cluster, and what runs for it."""
    return (
        Grant(
            "SeeCluster",
            ("eks:DescribeCluster",),
            (cluster_arn(stack, cluster.name),),
            needed_by="know the cluster",
        ),
        see_instances(stack),
        _see(stack, "SeeInstanceStatus", ("InstanceStatus",), needed_by="see the health of instances"),
    )


def see_instances(stack: Stack) -> Grant:
    """See the instances of the region: those that run, and whose they are."""
    return _see(stack, "SeeInstances", ("Instances",), needed_by="see instances")


def act_grants(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """Launch, tag and terminate the cluster's nodes; keep their templates and instance profiles, know what is sold."""
    return (
        *_learn(stack, cluster),
        *_launch(stack, cluster),
        *_tag(stack, cluster),
        *_end(stack, cluster),
        *_identity(stack, cluster),
    )


def _see(stack: Stack, sid: str, kinds: tuple[str, ...], *, needed_by: str) -> Grant:
    in_region = {"StringEquals": {"aws:RequestedRegion": stack.region}}
    actions = tuple(f"ec2:Describe{kind}" for kind in kinds)
    return Grant(sid, actions, ("*",), in_region, wildcard_reason=_DESCRIBE_ALL, needed_by=needed_by)


def _learn(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """What could be launched: images, networks, types and their prices, templates and profiles that exist."""
    choices = ("CapacityReservations", "Images", "PlacementGroups", "SecurityGroups", "Subnets")
    offers = ("InstanceTypeOfferings", "InstanceTypes", "SpotPriceHistory")
    return (
        _see(stack, "SeeChoices", choices, needed_by="resolve a class"),
        _see(stack, "SeeOffers", offers, needed_by="refresh the catalog"),
        _see(stack, "SeeTemplates", ("LaunchTemplates",), needed_by="collect templates"),
        _see(stack, "SeeTemplateVersions", ("LaunchTemplateVersions",), needed_by="launch"),
        Grant(
            "SeeImages",
            ("ssm:GetParameters",),
            (f"arn:{stack.partition}:ssm:{stack.region}::parameter/aws/service/*",),
            wildcard_reason="AWS's public parameters; each image family and version has its own.",
            needed_by="resolve a class",
        ),
        Grant(
            "SeePrices",
            ("pricing:GetProducts",),
            ("*",),
            wildcard_reason="The price list has no resources.",
            needed_by="refresh the catalog",
        ),
        Grant(
            "SeeZonalShifts",
            ("arc-zonal-shift:GetManagedResource",),
            ("*",),
            {"StringEquals": {"arc-zonal-shift:ResourceIdentifier": cluster_arn(stack, cluster.name)}},
            wildcard_reason="The call takes no resource; the condition names the cluster.",
            needed_by="follow zonal shifts",
        ),
        Grant(
            "SeeNodeIdentity",
            ("iam:GetInstanceProfile",),
            (_iam_arn(stack, "instance-profile/*"),),
            wildcard_reason="A class may name any instance profile of the account.",
            needed_by="keep a profile",
        ),
        Grant(
            "ListProfiles",
            ("iam:ListInstanceProfiles",),
            ("*",),
            wildcard_reason="Lists by path prefix, which IAM does not check as a resource.",
            needed_by="collect profiles",
        ),
    )


def _launch(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    launch = ("ec2:RunInstances", "ec2:CreateFleet")
    kinds = ("security-group", "subnet", "capacity-reservation", "placement-group")
    chosen = [_ec2_arn(stack, f"{kind}/*") for kind in kinds]
    public = [f"arn:{stack.partition}:ec2:{stack.region}::{kind}/*" for kind in ("image", "snapshot")]
    template = _ec2_arn(stack, "launch-template/*")
    born = {"StringEquals": _requested(cluster), "StringLike": {"aws:RequestTag/karpenter.sh/nodepool": "*"}}
    instances = (_ec2_arn(stack, "instance/*"),)
    with_it = tuple(_ec2_arn(stack, f"{kind}/*") for kind in _BORN_WITH_INSTANCES)
    requested, owned = {"StringEquals": _requested(cluster)}, _launched(cluster)
    return (
        Grant("LaunchInto", launch, (*public, *chosen), wildcard_reason=_CHOSEN, needed_by="launch"),
        Grant("LaunchFrom", launch, (template,), owned, wildcard_reason=_TAGGED, needed_by="launch"),
        Grant("LaunchInstances", launch, instances, born, wildcard_reason=_NEW, needed_by="launch"),
        Grant("LaunchWith", launch, with_it, requested, wildcard_reason=_NEW, needed_by="launch"),
        Grant(
            "CreateTemplates",
            ("ec2:CreateLaunchTemplate",),
            (template,),
            born,
            wildcard_reason=_NEW,
            needed_by="launch",
        ),
        Grant(
            "VersionTemplates",
            ("ec2:CreateLaunchTemplateVersion",),
            (template,),
            owned,
            wildcard_reason=_TAGGED,
            needed_by="change a template",
        ),
    )


_BORN_WITH_INSTANCES = ("fleet", "volume", "network-interface", "spot-instances-request")


def _tag(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """Tags at birth, and later on an instance the three keys that name its claim and node."""
    kinds = ("instance", "launch-template", *_BORN_WITH_INSTANCES)
    creating = ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]
    at_birth = {"StringEquals": {**_requested(cluster), "ec2:CreateAction": creating}}
    later = {
        **_launched(cluster),
        "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": cluster.name},
        "ForAllValues:StringEquals": {"aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]},
    }
    born = tuple(_ec2_arn(stack, f"{kind}/*") for kind in kinds)
    return (
        Grant("TagAtBirth", ("ec2:CreateTags",), born, at_birth, wildcard_reason=_NEW, needed_by="launch"),
        Grant(
            "TagLater",
            ("ec2:CreateTags",),
            (_ec2_arn(stack, "instance/*"),),
            later,
            wildcard_reason=_TAGGED,
            needed_by="name an instance",
        ),
    )


def _end(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """What has no nodepool tag may be another's node or template of the same cluster: never ours to take away."""
    return (
        Grant(
            "Terminate",
            ("ec2:TerminateInstances",),
            (_ec2_arn(stack, "instance/*"),),
            _launched(cluster),
            wildcard_reason=_TAGGED,
            needed_by="terminate",
        ),
        Grant(
            "DropTemplates",
            ("ec2:DeleteLaunchTemplate",),
            (_ec2_arn(stack, "launch-template/*"),),
            _launched(cluster),
            wildcard_reason=_TAGGED,
            needed_by="collect templates",
        ),
    )


def _identity(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """Profiles under the cluster's own path; IAM is global, so the region is pinned by tag as well."""
    path = f"instance-profile/karpenter/{stack.region}/{cluster.name}/*"
    profiles = (_iam_arn(stack, path),)
    region = {"topology.kubernetes.io/region": stack.region}
    create = {"StringEquals": {**_requested(cluster), **_each("aws:RequestTag", region)}}
    owned = {"StringEquals": {**_owned(cluster), **_each("aws:ResourceTag", region)}}
    change = ("iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile")
    to_ec2 = {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}}
    why = "Profiles are named by hash, under a path that belongs to this cluster alone."
    return (
        Grant(
            "CreateProfiles",
            # Creating with tags asks for both.
            ("iam:CreateInstanceProfile", "iam:TagInstanceProfile"),
            profiles,
            create,
            wildcard_reason=why,
            needed_by="keep a profile",
        ),
        Grant("ChangeProfiles", change, profiles, owned, wildcard_reason=why, needed_by="collect profiles"),
        Grant("PassNodeRoles", ("iam:PassRole",), node_role_arns(stack, cluster), to_ec2, needed_by="launch"),
    )


def cluster_arn(stack: Stack, name: str) -> str:
    return f"arn:{stack.partition}:eks:{stack.region}:{stack.account}:cluster/{name}"


def node_role_arns(stack: Stack, cluster: Cluster) -> tuple[str, ...]:
    return tuple(_iam_arn(stack, f"role/{name}") for name in cluster.node_roles)


def _requested(cluster: Cluster) -> dict[str, Any]:
    return _each("aws:RequestTag", {**_own(cluster), "eks:eks-cluster-name": cluster.name})


def _owned(cluster: Cluster) -> dict[str, Any]:
    return _each("aws:ResourceTag", _own(cluster))


def _launched(cluster: Cluster) -> dict[str, Any]:
    """Owned by the cluster, and by a NodePool of it: managed node groups and others use the cluster's tag as well."""
    return {"StringEquals": _owned(cluster), "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"}}


def _own(cluster: Cluster) -> dict[str, str]:
    return {f"kubernetes.io/cluster/{cluster.name}": "owned"}


def _each(key: str, tags: dict[str, str]) -> dict[str, str]:
    return {f"{key}/{tag}": value for tag, value in tags.items()}


def _ec2_arn(stack: Stack, resource: str) -> str:
    return f"arn:{stack.partition}:ec2:{stack.region}:{stack.account}:{resource}"


def _iam_arn(stack: Stack, resource: str) -> str:
    return f"arn:{stack.partition}:iam::{stack.account}:{resource}"
