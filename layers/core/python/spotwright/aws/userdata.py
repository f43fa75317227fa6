"""What an instance is told when it boots: how to join the cluster, its labels and taints, the user's own part.

Each AMI family has its own format and its own rule of merging what the user wrote; Custom leaves the user's text
untouched, byte by byte. Source of the limit: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html.
"""

from typing import Final

from spotwright.aws import families, userdata_bottlerocket, userdata_nodeadm, userdata_scripts
from spotwright.aws.boot import Boot
from spotwright.aws.mime import MimeError
from spotwright.aws.refusal import Refusal
from spotwright.aws.userdata_bottlerocket import TomlError
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import EC2NodeClass

# Bytes before base64.
MAXIMUM_BYTES: Final = 16384


def render(family: str, node_class: EC2NodeClass, cluster: ClusterFacts, boot: Boot) -> str | Refusal:
    """The user data as text, or why there can be none."""
    if family == families.AL2023 and not cluster.service_cidr:
        return Refusal("ClusterCIDRResolutionFailed", f"cluster {cluster.name} states no service CIDR")
    try:
        return _limited(_text(family, node_class, cluster, boot))
    except (MimeError, TomlError) as error:
        return Refusal("InvalidUserData", f"spec.userData: {error}")


def _text(family: str, node_class: EC2NodeClass, cluster: ClusterFacts, boot: Boot) -> str:
    match family:
        case families.AL2:
            return userdata_scripts.al2(node_class, cluster, boot)
        case families.AL2023:
            return userdata_nodeadm.al2023(node_class, cluster, boot)
        case families.BOTTLEROCKET:
            return userdata_bottlerocket.bottlerocket(node_class, cluster, boot)
        case _ if family in families.WINDOWS:
            return userdata_scripts.windows(node_class, cluster, boot)
    return node_class.user_data


def _limited(text: str) -> str | Refusal:
    size = len(text.encode())
    if size > MAXIMUM_BYTES:
        return Refusal(
            "UserDataSizeLimitExceeded",
            f"user data has {size} bytes with what is generated, at most {MAXIMUM_BYTES} are possible:"
            " shorten spec.userData",
        )
    return text
