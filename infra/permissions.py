"""What may be done to one cluster's AWS resources: read freely, write only what carries the cluster's tags.

The pins follow the policies Karpenter publishes for its controller
(https://karpenter.sh/docs/reference/cloudformation/), split in two roles and narrowed: instance profiles by
path, templates by tag. OWN below is the tag `kubernetes.io/cluster/<cluster>` = owned.
"""

from typing import Any

from aws_cdk import Stack

from infra.config import Cluster
from infra.grants import Grant

_DESCRIBES = (
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
)

_DESCRIBE_ALL = "EC2's Describe calls take no resource; they are bound to the region instead."
_NEW = "What a launch creates has no id before it is created; its tags pin it to this cluster."
_CHOSEN = "Images, subnets and groups are the user's choice in the EC2NodeClass; launching changes none of them."
_TAGGED = "Ids are EC2's; the tags pin the call to what this cluster launched."


def read_grants(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """See the cluster, what runs for it, and what could."""
    in_region = {"StringEquals": {"aws:RequestedRegion": stack.region}}
    return (
        Grant("SeeCluster", ("eks:DescribeCluster",), (cluster_arn(stack, cluster.name),)),
        Grant("SeeCompute", _DESCRIBES, ("*",), in_region, wildcard=_DESCRIBE_ALL),
        Grant(
            "SeeImages",
            ("ssm:GetParameters",),
            (f"arn:{stack.partition}:ssm:{stack.region}::parameter/aws/service/*",),
            wildcard="AWS's public parameters; each image family and version has its own.",
        ),
        Grant("SeePrices", ("pricing:GetProducts",), ("*",), wildcard="The price list has no resources."),
        Grant(
            "SeeNodeIdentity",
            ("iam:GetInstanceProfile",),
            (_iam_arn(stack, "instance-profile/*"),),
            wildcard="A class may name any instance profile of the account.",
        ),
        Grant(
            "ListProfiles",
            ("iam:ListInstanceProfiles",),
            ("*",),
            wildcard="Lists by path prefix, which IAM does not check as a resource.",
        ),
    )


def act_grants(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """Launch, tag and terminate the cluster's nodes; keep their templates and instance profiles."""
    return (*_launch(stack, cluster), *_tag(stack, cluster), *_end(stack, cluster), *_identity(stack, cluster))


def _launch(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    launch = ("ec2:RunInstances", "ec2:CreateFleet")
    kinds = ("security-group", "subnet", "capacity-reservation", "placement-group")
    chosen = [_ec2_arn(stack, f"{kind}/*") for kind in kinds]
    public = [f"arn:{stack.partition}:ec2:{stack.region}::{kind}/*" for kind in ("image", "snapshot")]
    template = _ec2_arn(stack, "launch-template/*")
    born = {"StringEquals": _requested(cluster), "StringLike": {"aws:RequestTag/karpenter.sh/nodepool": "*"}}
    instances = (_ec2_arn(stack, "instance/*"),)
    with_it = tuple(_ec2_arn(stack, f"{kind}/*") for kind in _BORN_WITH_INSTANCES)
    requested = {"StringEquals": _requested(cluster)}
    return (
        Grant("LaunchInto", launch, (*public, *chosen), wildcard=_CHOSEN),
        Grant("LaunchFrom", launch, (template,), {"StringEquals": _owned(cluster)}, wildcard=_TAGGED),
        Grant("LaunchInstances", launch, instances, born, wildcard=_NEW),
        Grant("LaunchWith", launch, with_it, requested, wildcard=_NEW),
        Grant("CreateTemplates", ("ec2:CreateLaunchTemplate",), (template,), requested, wildcard=_NEW),
        Grant(
            "VersionTemplates",
            ("ec2:CreateLaunchTemplateVersion",),
            (template,),
            {"StringEquals": _owned(cluster)},
            wildcard=_TAGGED,
        ),
    )


_BORN_WITH_INSTANCES = ("fleet", "volume", "network-interface", "spot-instances-request")


def _tag(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """Tags at birth, and later on an instance the three keys that name its claim and node."""
    kinds = ("instance", "launch-template", *_BORN_WITH_INSTANCES)
    creating = ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]
    at_birth = {"StringEquals": {**_requested(cluster), "ec2:CreateAction": creating}}
    later = {
        "StringEquals": _owned(cluster),
        "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
        "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": cluster.name},
        "ForAllValues:StringEquals": {"aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]},
    }
    born = tuple(_ec2_arn(stack, f"{kind}/*") for kind in kinds)
    return (
        Grant("TagAtBirth", ("ec2:CreateTags",), born, at_birth, wildcard=_NEW),
        Grant("TagLater", ("ec2:CreateTags",), (_ec2_arn(stack, "instance/*"),), later, wildcard=_TAGGED),
    )


def _end(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """An instance without a nodepool tag may be another's node of the same cluster: never ours to terminate."""
    launched = {
        "StringEquals": _owned(cluster),
        "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
    }
    return (
        Grant(
            "Terminate",
            ("ec2:TerminateInstances",),
            (_ec2_arn(stack, "instance/*"),),
            launched,
            wildcard=_TAGGED,
        ),
        Grant(
            "DropTemplates",
            ("ec2:DeleteLaunchTemplate",),
            (_ec2_arn(stack, "launch-template/*"),),
            {"StringEquals": _owned(cluster)},
            wildcard=_TAGGED,
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
            wildcard=why,
        ),
        Grant("ChangeProfiles", change, profiles, owned, wildcard=why),
        Grant("PassNodeRoles", ("iam:PassRole",), node_role_arns(stack, cluster), to_ec2),
    )


def cluster_arn(stack: Stack, name: str) -> str:
    return f"arn:{stack.partition}:eks:{stack.region}:{stack.account}:cluster/{name}"


def node_role_arns(stack: Stack, cluster: Cluster) -> tuple[str, ...]:
    return tuple(_iam_arn(stack, f"role/{name}") for name in cluster.node_roles)


def _requested(cluster: Cluster) -> dict[str, Any]:
    return _each("aws:RequestTag", {**_own(cluster), "eks:eks-cluster-name": cluster.name})


def _owned(cluster: Cluster) -> dict[str, Any]:
    return _each("aws:ResourceTag", _own(cluster))


def _own(cluster: Cluster) -> dict[str, str]:
    return {f"kubernetes.io/cluster/{cluster.name}": "owned"}


def _each(key: str, tags: dict[str, str]) -> dict[str, str]:
    return {f"{key}/{tag}": value for tag, value in tags.items()}


def _ec2_arn(stack: Stack, resource: str) -> str:
    return f"arn:{stack.partition}:ec2:{stack.region}:{stack.account}:{resource}"


def _iam_arn(stack: Stack, resource: str) -> str:
    return f"arn:{stack.partition}:iam::{stack.account}:{resource}"
