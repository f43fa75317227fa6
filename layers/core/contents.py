"""What the layer holds: the locked dependencies, minus what no function uses.

Every entry names its reason; `tests/layer` proves that what is left still works. Paths are relative to the
layer's `python/` folder and may be glob patterns.
"""

import shutil
from pathlib import Path

from layers.core.models import reduce_models

#: The AWS calls that functions make, by API. The layer's botocore knows these and no others, so a new call is added
#: here (and granted in `infra/permissions.py`).
CALLS = {
    "arc-zonal-shift": ("GetManagedResource",),
    "cloudformation": ("DescribeStacks",),
    "dynamodb": ("BatchGetItem", "GetItem", "PutItem", "Query", "TransactWriteItems", "UpdateItem"),
    "ec2": (
        "CreateFleet",
        "CreateLaunchTemplate",
        "CreateLaunchTemplateVersion",
        "CreateTags",
        "DeleteLaunchTemplate",
        "DescribeCapacityReservations",
        "DescribeImages",
        "DescribeInstanceStatus",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeLaunchTemplateVersions",
        "DescribeLaunchTemplates",
        "DescribePlacementGroups",
        "DescribeSecurityGroups",
        "DescribeSpotPriceHistory",
        "DescribeSubnets",
        "RunInstances",
        "TerminateInstances",
    ),
    "eks": (
        "AssociateAccessPolicy",
        "CreateAccessEntry",
        "DeleteAccessEntry",
        "DescribeAccessEntry",
        "DescribeCluster",
        "ListAddons",
        "ListClusters",
        "ListAccessEntries",
        "TagResource",
    ),
    "iam": (
        "AddRoleToInstanceProfile",
        "CreateInstanceProfile",
        "DeleteInstanceProfile",
        "GetInstanceProfile",
        "GetRole",
        "ListAttachedRolePolicies",
        "ListInstanceProfiles",
        "ListRolePolicies",
        "RemoveRoleFromInstanceProfile",
    ),
    "pricing": ("GetProducts",),
    "s3": ("DeleteObjects", "GetObject", "ListObjectVersions", "ListObjectsV2", "PutObject"),
    "sqs": ("SendMessageBatch",),
    "ssm": ("GetParameters",),
    "sts": ("AssumeRole", "GetCallerIdentity"),
}

#: Of the Kubernetes client a function uses the transport alone (`Configuration`, `RESTClientObject`, the
#: exceptions). Left out: 1,000 generated classes, their twin for asyncio, kubeconfig files, exec streams, leader
#: election, and each `__init__.py`, which would import all of these: without it a folder is a namespace package.
KUBERNETES_TRANSPORT = (
    "client/configuration.py",
    "client/exceptions.py",
    "client/rest.py",
    "utils/_retry_base.py",
    "utils/keepalive.py",
    "utils/retry.py",
)

#: Distributions that nothing in the layer imports, with the part that wanted them.
PRUNED_DISTRIBUTIONS = {
    "aiohttp": "kubernetes.aio",
    "aiohttp-retry": "kubernetes.aio",
    "certifi": "kubernetes.stream",
    "durationpy": "kubernetes.utils.duration",
    "pydantic": "kubernetes.client.models",
    "requests": "kubernetes.config and kubernetes.stream",
    "requests-oauthlib": "kubernetes.config",
    "websocket-client": "kubernetes.stream",
}

#: Distributions that nothing imports although what they depend on is used: functions make botocore's clients.
OMITTED_DISTRIBUTIONS = ("boto3", "s3transfer")

#: Other files and folders that no function imports.
DROPPED = (
    # What an installer wants to know about itself; METADATA and the licences stay.
    "*.dist-info/RECORD",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/WHEEL",
    # Scripts of jmespath and the like.
    "bin",
)


def trim(python: Path) -> None:
    """Reduces an installed tree to what the functions use, in place.

    Raises FileNotFoundError when something listed here is not there: a dependency has moved it, and somebody
    should look whether the layer has silently grown.
    """
    _keep_only(python / "kubernetes", KUBERNETES_TRANSPORT)
    for pattern in DROPPED:
        _remove(python, pattern)
    reduce_models(python / "botocore/data", CALLS)


def _keep_only(package: Path, kept: tuple[str, ...]) -> None:
    missing = [name for name in kept if not (package / name).exists()]
    if missing:
        raise FileNotFoundError(f"layer: {package.name} has no {', '.join(missing)} (layers/core/contents.py)")
    for path in package.rglob("*"):
        if path.is_file() and path.relative_to(package).as_posix() not in kept:
            path.unlink()


def _remove(python: Path, pattern: str) -> None:
    matches = sorted(python.glob(pattern))
    if not matches:
        raise FileNotFoundError(f"layer: nothing matches {pattern!r} (layers/core/contents.py)")
    for match in matches:
        if match.is_dir():
            shutil.rmtree(match)
        else:
            match.unlink()
