"""What CloudFormation asks of the install function: put a cluster's objects in place, empty the bucket.

Two kinds of custom resource, told apart by `ResourceType`:
- `Custom::SpotwrightInstall`, one per cluster, physical id `spotwright-install-<cluster>`: Cluster,
  ForwarderImage, ForwarderEnvironment, ManifestsDigest, RoleArn (the function's own role, for the access entry it
  gives itself while it runs).
- `Custom::SpotwrightBucketContents`, physical id `spotwright-bucket-contents`: Bucket. Its Delete removes every
  object; Create and Update do nothing.
"""

from collections.abc import Mapping

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.cluster_access import ClusterAccess
from infra.config import Config
from infra.functions import Function
from infra.grants import Grant
from infra.permissions import cluster_arn
from spotwright import manifests

#: Three tries of the function, which Lambda starts up to two minutes apart.
_PATIENCE = Duration.minutes(20)
_ADMIN_POLICY = "cluster-access-policy/AmazonEKSClusterAdminPolicy"


def install_cluster(
    scope: Construct, install: Function, access: ClusterAccess, forwarder_environment: Mapping[str, str]
) -> CustomResource:
    """Applies CRDs, RBAC and the forwarder to a cluster when their content, image or environment changes."""
    resource = CustomResource(
        scope,
        f"Install-{access.cluster.name}",
        service_token=install.arn,
        resource_type="Custom::SpotwrightInstall",
        service_timeout=_PATIENCE,
        properties={
            "Cluster": access.cluster.name,
            "ForwarderImage": access.cluster.forwarder_image,
            "ForwarderEnvironment": dict(forwarder_environment),
            "ManifestsDigest": manifests.digest(),
            "RoleArn": install.role.role_arn,
        },
    )
    resource.node.add_dependency(install.role, *access.identities)
    return resource


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


def install_grants(stack: Stack, install: Function, config: Config) -> tuple[Grant, ...]:
    """Per cluster an access entry for the function itself and for nobody else, with one policy; its removal.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelastickubernetesservice.html
    """
    role = install.role
    known = tuple(cluster_arn(stack, cluster.name) for cluster in config.clusters)
    # The reference does not say whether an entry's ARN holds the path of its role.
    names = sorted({role.role_name, config.role_path.lstrip("/") + role.role_name})
    own = tuple(
        _entries(stack, f"{cluster.name}/role/{stack.account}/{n}/*") for cluster in config.clusters for n in names
    )
    self_only = {"ArnEquals": {"eks:principalArn": role.role_arn}}
    admin_only = {"ArnEquals": {"eks:policyArn": f"arn:{stack.partition}:eks::aws:{_ADMIN_POLICY}"}}
    why = "The entry of this function's own role; EKS ends its ARN with a random id."
    return (
        Grant("SeeClusters", ("eks:DescribeCluster",), known),
        Grant("EnterClusters", ("eks:CreateAccessEntry",), known, self_only),
        Grant("AdministerClusters", ("eks:AssociateAccessPolicy",), own, admin_only, wildcard_reason=why),
        # An entry made with tags asks for the right to tag it.
        Grant("LeaveClusters", ("eks:DeleteAccessEntry", "eks:TagResource"), own, wildcard_reason=why),
    )


def _entries(stack: Stack, entry: str) -> str:
    return f"arn:{stack.partition}:eks:{stack.region}:{stack.account}:access-entry/{entry}"
