"""What a node is told about itself when it boots, whatever its operating system: labels, taints, kubelet settings."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.kubernetes.taints import Taint, TaintEffect

# The kubelet may not set labels of these domains (NodeRestriction); they are synced from the NodeClaim instead.
_KUBERNETES_DOMAINS: Final = ("kubernetes.io", "k8s.io")


class BootstrapOptions(msgspec.Struct, frozen=True):
    """What differs between instances of an EC2NodeClass. ``max_pods`` is always a number."""

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    max_pods: int


def kubelet_configuration(
    kubelet: Mapping[str, object], cluster: ClusterFacts, options: BootstrapOptions
) -> dict[str, object]:
    """``spec.kubelet`` with maxPods and, where it names no DNS server, the cluster's; sorted."""
    config: dict[str, object] = dict(kubelet)
    if cluster.dns_ip and not config.get("clusterDNS"):
        config["clusterDNS"] = [cluster.dns_ip]
    config["maxPods"] = options.max_pods
    return dict(sorted(config.items()))


def registration_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that a node registers with: ``taints`` and ``karpenter.sh/unregistered``."""
    given = tuple(dict.fromkeys(taints))
    unregistered = Taint(labels.UNREGISTERED, TaintEffect.NO_EXECUTE)
    return given if unregistered in given else (*given, unregistered)


def kubelet_labels(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a kubelet may set itself, sorted by key."""
    return {key: node_labels[key] for key in sorted(node_labels) if not _is_kubernetes_label(key)}


def node_labels_flag(node_labels: Mapping[str, str]) -> str:
    """The labels that a kubelet may set itself as ``key=value`` pairs, sorted."""
    return ",".join(f"{key}={value}" for key, value in kubelet_labels(node_labels).items())


def _is_kubernetes_label(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(
        domain == kubernetes_domain or domain.endswith("." + kubernetes_domain)
        for kubernetes_domain in _KUBERNETES_DOMAINS
    )


def cluster_dns(config: Mapping[str, object]) -> tuple[str, ...]:
    """The DNS servers in a kubelet map, as text."""
    addresses = config.get("clusterDNS")
    return tuple(str(address) for address in addresses) if isinstance(addresses, list | tuple) else ()
