"""What CloudFormation asks of the install function: look at a cluster, put its objects in place, empty the bucket.

Five kinds of custom resource, told apart by `ResourceType`:
- `Custom::SpotwrightClusters`, one, updated before any other function: Clusters (names), Cell, RoleArn. Its Update
  fails once while a cluster that leaves has NodeClaims that nobody would look after; Create and Delete do nothing.
- `Custom::SpotwrightPreflight`, one per cluster, before anything is made in it: Cluster, NodeRoles and WindowsNodeRoles
  (names), VpcId, SkipChecks. Its Delete does nothing.
- `Custom::SpotwrightInstall`, one per cluster, physical id `spotwright-install-<cluster>`: Cluster,
  ForwarderImage, ForwarderArchitecture (where the image is for nodes of this one), ForwarderEnvironment,
  ManifestsDigest, RoleArn (the function's own role, for the access entry it gives itself while it runs), NodeRoles (Arn
  and Type of the access entry that each must have) or, while the stack holds these entries, NodeEntries: "retained";
  SkipChecks.
- `Custom::SpotwrightNodesLeft`, one per cluster, deleted before everything else: Cluster, Cell, RoleArn. Its Delete
  fails once while the cluster has NodeClaims that nobody would look after; Create and Update do nothing.
- `Custom::SpotwrightBucketContents`, physical id `spotwright-bucket-contents`: Bucket. Its Delete removes every
  object; Create and Update do nothing.
"""

from collections.abc import Mapping

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.cluster_access import ClusterAccess
from infra.config import Cluster, Config
from infra.functions import Function
from infra.grants import Grant, grant
from infra.permissions import cluster_arn, node_role_arns
from spotwright import manifests
from spotwright.adapters.aws.eks.access_entries import INSTALLERS_TAG

#: Three tries of the function, which Lambda starts up to two minutes apart.
_PATIENCE = Duration.minutes(20)
_ASKS_IAM = "node-roles"
_ADMIN_POLICY = "cluster-access-policy/AmazonEKSClusterAdminPolicy"


def name_clusters(scope: Construct, install: Function, config: Config) -> CustomResource:
    """What the cell serves: an update by which a cluster leaves is refused once while that would leave its nodes."""
    resource = CustomResource(
        scope,
        "ServedClusters",
        service_token=install.arn,
        resource_type="Custom::SpotwrightClusters",
        service_timeout=_PATIENCE,
        properties={
            "Clusters": [cluster.name for cluster in config.clusters],
            "Cell": config.cell,
            "RoleArn": install.role.role_arn,
        },
    )
    resource.node.add_dependency(install.role)
    return resource


def look_at_cluster(scope: Construct, install: Function, cluster: Cluster, rights: iam.ManagedPolicy) -> CustomResource:
    """Fails the deployment with a sentence where the cluster is not ready, before anything is made in it."""
    resource = CustomResource(
        scope,
        f"Preflight-{cluster.name}",
        service_token=install.arn,
        resource_type="Custom::SpotwrightPreflight",
        service_timeout=_PATIENCE,
        properties={
            "Cluster": cluster.name,
            "NodeRoles": list(cluster.node_roles),
            "WindowsNodeRoles": list(cluster.windows_node_roles),
            "VpcId": cluster.network.vpc_id if cluster.network else "",
            "SkipChecks": _skipped_checks(cluster),
        },
    )
    resource.node.add_dependency(install.role, rights)
    return resource


def _skipped_checks(cluster: Cluster) -> list[str]:
    """Without a way to the internet there is none to IAM, and each question to it takes until it is given up."""
    is_isolated = cluster.settings.get("ISOLATED_VPC", "").lower() == "true"
    return [*cluster.skip_checks, *({_ASKS_IAM} - {*cluster.skip_checks} if is_isolated else ())]


def install_cluster(
    scope: Construct, install: Function, access: ClusterAccess, image: str, forwarder_environment: Mapping[str, str]
) -> CustomResource:
    """Applies CRDs, RBAC and the forwarder to a cluster when their content, image or environment changes."""
    architecture = access.cluster.forwarder_architecture
    resource = CustomResource(
        scope,
        f"Install-{access.cluster.name}",
        service_token=install.arn,
        resource_type="Custom::SpotwrightInstall",
        service_timeout=_PATIENCE,
        properties={
            "Cluster": access.cluster.name,
            "ForwarderImage": image,
            **({"ForwarderArchitecture": architecture} if architecture else {}),
            "ForwarderEnvironment": dict(forwarder_environment),
            "ManifestsDigest": manifests.digest(),
            "RoleArn": install.role.role_arn,
            "SkipChecks": list(access.cluster.skip_checks),
            **access.node_entries,
        },
    )
    resource.node.add_dependency(install.role, *access.identities)
    return resource


def say_what_is_left(scope: Construct, install: Function, cluster: Cluster, cell: str) -> CustomResource:
    """Deleted first, while everything still works: says which nodes the deletion would leave to nobody."""
    return CustomResource(
        scope,
        f"NodesLeft-{cluster.name}",
        service_token=install.arn,
        resource_type="Custom::SpotwrightNodesLeft",
        service_timeout=_PATIENCE,
        properties={"Cluster": cluster.name, "Cell": cell, "RoleArn": install.role.role_arn},
    )


def empty_on_delete(scope: Construct, install: Function, bucket: s3.IBucket) -> CustomResource:
    """Empties the bucket when the stack goes, since CloudFormation deletes empty ones only."""
    resource = CustomResource(
        scope,
        "BucketContents",
        service_token=install.arn,
        resource_type="Custom::SpotwrightBucketContents",
        service_timeout=_PATIENCE,
        properties={"Bucket": bucket.bucket_name},
    )
    resource.node.add_dependency(install.role, bucket)
    return resource


def install_grants(stack: Stack) -> tuple[Grant, ...]:
    """What `install` may do whichever clusters there are: name them all, and see whether an update is rolled back."""
    return (
        Grant(
            "NameClusters",
            ("eks:ListClusters",),
            ("*",),
            wildcard_reason="Lists the names of the region's clusters; the call takes no resource.",
        ),
        Grant("SeeOwnStack", ("cloudformation:DescribeStacks",), (stack.stack_id,)),
    )


def cluster_rights(scope: Construct, install: Function, config: Config, cluster: Cluster) -> iam.ManagedPolicy:
    """What `install` may do for one cluster: an access entry for itself, with one policy, and entries for its nodes.

    A policy of its own, needed by the cluster's custom resources: CloudFormation deletes what has left a template at
    the end of an update, these before the policy, so that `install` may still take out of the cluster what it put
    there. A role has ten such policies at most, as a cell has clusters.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelastickubernetesservice.html
    """
    policy = iam.ManagedPolicy(
        scope,
        f"InstallRights-{cluster.name}",
        path=config.role_path,
        description=f"Spotwright {config.cell}: what the install function may do for cluster {cluster.name}",
        roles=[install.role],
    )
    stack = Stack.of(scope)
    grant(policy, *_own_entry_grants(stack, install, config, cluster), *_node_entry_grants(stack, cluster))
    return policy


def _own_entry_grants(stack: Stack, install: Function, config: Config, cluster: Cluster) -> tuple[Grant, ...]:
    role, known = install.role, (cluster_arn(stack, cluster.name),)
    # The reference does not say whether an entry's ARN holds the path of its role.
    names = sorted({role.role_name, config.role_path.lstrip("/") + role.role_name})
    own = tuple(_entries(stack, f"{cluster.name}/role/{stack.account}/{name}/*") for name in names)
    self_only = {"ArnEquals": {"eks:principalArn": role.role_arn}}
    admin_only = {"ArnEquals": {"eks:policyArn": f"arn:{stack.partition}:eks::aws:{_ADMIN_POLICY}"}}
    why = "The entry of this function's own role; EKS ends its ARN with a random id."
    return (
        Grant("SeeCluster", ("eks:DescribeCluster", "eks:ListAddons"), known),
        Grant(
            "SeeNodeRoles",
            ("iam:GetRole", "iam:ListAttachedRolePolicies", "iam:ListRolePolicies"),
            tuple(sorted(set(node_role_arns(stack, cluster)))),
        ),
        Grant("EnterCluster", ("eks:CreateAccessEntry",), known, self_only),
        Grant("AdministerCluster", ("eks:AssociateAccessPolicy",), own, admin_only, wildcard_reason=why),
        # An entry made with tags asks for the right to tag it.
        Grant("LeaveCluster", ("eks:DeleteAccessEntry", "eks:TagResource"), own, wildcard_reason=why),
    )


def _node_entry_grants(stack: Stack, cluster: Cluster) -> tuple[Grant, ...]:
    """Entries of the node roles alone are made, of a node's type alone; only such as are tagged here are deleted."""
    known = (cluster_arn(stack, cluster.name),)
    entries = (_entries(stack, f"{cluster.name}/role/{stack.account}/*"),)
    named = tuple(
        _entries(stack, f"{cluster.name}/role/{stack.account}/{name}/*")
        # With and without the role's path, see above.
        for name in sorted({name for role in cluster.node_roles for name in (role, role.rpartition("/")[2])})
    )
    # The type of an entry alone gives a node's rights: one of type STANDARD could be given any group.
    nodes_only = {
        "ArnEquals": {"eks:principalArn": list(node_role_arns(stack, cluster))},
        "StringEquals": {"eks:accessEntryType": ["EC2_LINUX", "EC2_WINDOWS"]},
    }
    only_installers = {"ForAllValues:StringEquals": {"aws:TagKeys": [INSTALLERS_TAG]}}
    ours = {"StringLike": {f"aws:ResourceTag/{INSTALLERS_TAG}": "*"}}
    why = "EKS ends an entry's ARN with a random id."
    each = "An entry of a role that cdk.json names no more is found by its tag alone."
    return (
        Grant("AdmitNodes", ("eks:CreateAccessEntry",), known, nodes_only),
        Grant("ListEntries", ("eks:ListAccessEntries",), known),
        Grant("SeeEntries", ("eks:DescribeAccessEntry",), entries, wildcard_reason=each),
        Grant("TagNodeEntries", ("eks:TagResource",), named, only_installers, wildcard_reason=why),
        Grant("TagOwnEntries", ("eks:TagResource",), entries, {**only_installers, **ours}, wildcard_reason=each),
        Grant("DropNodeEntries", ("eks:DeleteAccessEntry",), entries, ours, wildcard_reason=each),
    )


def _entries(stack: Stack, entry: str) -> str:
    return f"arn:{stack.partition}:eks:{stack.region}:{stack.account}:access-entry/{entry}"
