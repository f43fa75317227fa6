"""What an instance is told when it boots: how to join the cluster, its labels and taints, the user's own part.

Each AMI family has its own format and its own rule of merging what the user wrote; Custom leaves the user's text
untouched, byte by byte. Source of the limit: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html.
"""

from typing import Final

from spotwright.aws.bootstrap import bottlerocket, eks_bootstrap, nodeadm
from spotwright.aws.bootstrap.bottlerocket import TomlError
from spotwright.aws.bootstrap.mime import MimeError
from spotwright.aws.bootstrap.options import BootstrapOptions
from spotwright.aws.images import families
from spotwright.aws.refusal import Refusal
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import EC2NodeClass

# Bytes before base64.
MAX_USER_DATA_BYTES: Final = 16384


def render(family: str, nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str | Refusal:
    """The user data as text, or why it cannot be rendered."""
    if family == families.AL2023 and not cluster.service_cidr:
        return Refusal("ClusterCIDRResolutionFailed", f"cluster {cluster.name} states no service CIDR")
    try:
        return _check_size(_render_for_family(family, nodeclass, cluster, options))
    except (MimeError, TomlError) as error:
        return Refusal("InvalidUserData", f"spec.userData: {error}")


def _render_for_family(family: str, nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    match family:
        case families.AL2:
            return eks_bootstrap.al2_user_data(nodeclass, cluster, options)
        case families.AL2023:
            return nodeadm.al2023_user_data(nodeclass, cluster, options)
        case families.BOTTLEROCKET:
            return bottlerocket.bottlerocket_user_data(nodeclass, cluster, options)
        case _ if family in families.WINDOWS_BUILDS:
            return eks_bootstrap.windows_user_data(nodeclass, cluster, options)
    return nodeclass.user_data


def _check_size(text: str) -> str | Refusal:
    size = len(text.encode())
    if size > MAX_USER_DATA_BYTES:
        return Refusal(
            "UserDataSizeLimitExceeded",
            f"user data has {size} bytes with what is generated, at most {MAX_USER_DATA_BYTES} are possible:"
            " shorten spec.userData",
        )
    return text
