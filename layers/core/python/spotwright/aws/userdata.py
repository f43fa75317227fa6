"""What an instance is told when it boots: how to join the cluster, its labels and taints, the user's own part.

AL2023: a MIME archive; the user's entries come first and the generated NodeConfig last, so that it wins where both
speak (nodeadm merges them in order). Custom: the user's text untouched.
Source: https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/ and the EC2 limit on user data.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from spotwright.aws import mime
from spotwright.aws.families import AL2023, CUSTOM, unsupported
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.fleet import ClusterFacts
from spotwright.model.nodeclass import EC2NodeClass
from spotwright.model.taints import Effect, Taint

# Bytes before base64: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
MAXIMUM_BYTES: Final = 16384
# The kubelet may not set labels of these domains (NodeRestriction); they are synced from the NodeClaim instead.
_KUBERNETES_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_NODE_CONFIG_TEXT: Final = re.compile(r'^\s*(?:apiVersion:\s*["\']?node\.eks\.aws/|\{)', re.M)


class Boot(msgspec.Struct, frozen=True):
    """What differs between instances of one class. ``max_pods`` is always concrete."""

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    max_pods: int


def render(family: str, node_class: EC2NodeClass, cluster: ClusterFacts, boot: Boot) -> str | Refusal:
    """The user data as text, or why there can be none."""
    if family == CUSTOM:
        return _limited(node_class.user_data)
    if family != AL2023:
        return unsupported(family)
    if not cluster.service_cidr:
        return Refusal("ClusterCIDRResolutionFailed", f"cluster {cluster.name} states no service CIDR")
    try:
        entries = _own_entries(node_class.user_data)
    except mime.MimeError as error:
        return Refusal("InvalidUserData", f"spec.userData: {error}")
    generated = mime.part(mime.NODE_CONFIG, node_config(node_class, cluster, boot))
    return _limited(mime.archive((*entries, generated)))


def _limited(text: str) -> str | Refusal:
    size = len(text.encode())
    if size > MAXIMUM_BYTES:
        return Refusal(
            "UserDataSizeLimitExceeded",
            f"user data has {size} bytes with what is generated, at most {MAXIMUM_BYTES} are possible:"
            " shorten spec.userData",
        )
    return text


def _own_entries(text: str) -> tuple[mime.Part, ...]:
    """The user's user data as entries: an archive's own; a NodeConfig as such; anything else a shell script."""
    if not text.strip():
        return ()
    if mime.is_archive(text):
        return mime.parse(text)
    if not text.lstrip().startswith("#!") and _NODE_CONFIG_TEXT.search(text):
        return (mime.part(mime.NODE_CONFIG, text.rstrip("\n")),)
    return (mime.part(mime.SHELL_SCRIPT, text.rstrip("\n")),)


def node_config(node_class: EC2NodeClass, cluster: ClusterFacts, boot: Boot) -> str:
    """The NodeConfig document. It is JSON, which is YAML too: one spelling, no quoting rules."""
    instance: dict[str, Any] = {}
    if node_class.instance_store_policy == "RAID0":
        instance = {"localStorage": {"strategy": "RAID0"}}
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "apiServerEndpoint": cluster.endpoint,
                "certificateAuthority": cluster.certificate_authority,
                "cidr": cluster.service_cidr,
                "name": cluster.name,
            },
            "instance": instance,
            "kubelet": {
                "config": kubelet_config(node_class.kubelet, cluster, boot),
                "flags": [f'--node-labels="{node_labels(boot.labels)}"'],
            },
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def kubelet_config(kubelet: Mapping[str, object], cluster: ClusterFacts, boot: Boot) -> dict[str, object]:
    """The class's kubelet map as it stands, with maxPods, taints and, where it names none, the cluster's DNS."""
    config: dict[str, object] = dict(kubelet)
    if cluster.dns_ip:
        config.setdefault("clusterDNS", [cluster.dns_ip])
    config["maxPods"] = boot.max_pods
    config["registerWithTaints"] = [
        {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
        for taint in register_taints(boot.taints)
    ]
    return dict(sorted(config.items()))


def register_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints a node registers with: those given and ``karpenter.sh/unregistered`` until it is synced."""
    given = tuple(dict.fromkeys(taints))
    unregistered = Taint(labels.UNREGISTERED, Effect.NO_EXECUTE)
    return given if unregistered in given else (*given, unregistered)


def node_labels(given: Mapping[str, str]) -> str:
    """``key=value`` pairs for the kubelet, sorted, without those it may not set itself."""
    return ",".join(f"{key}={given[key]}" for key in sorted(given) if not _is_kubernetes(key))


def _is_kubernetes(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(domain == one or domain.endswith("." + one) for one in _KUBERNETES_DOMAINS)
