"""User data of Bottlerocket: TOML settings, the user's with ours laid over them.

Ours win; node labels merge; node taints are ours alone; settings of ``settings.kubernetes`` that Bottlerocket does
not have are dropped, since one of them would keep the node from booting.
Source: https://bottlerocket.dev/en/os/latest/api/settings/kubernetes/.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spotwright.aws.bootstrap.options import (
    BootstrapOptions,
    cluster_dns,
    kubelet_configuration,
    kubelet_labels,
    registration_taints,
)
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.taints import Taint

KUBERNETES_SETTINGS: Final = frozenset(
    {
        "api-server", "cloud-provider", "cluster-certificate", "cluster-name", "cluster-dns-ip",
        "credential-providers", "node-labels", "node-taints", "max-pods", "static-pods", "eviction-hard",
        "eviction-soft", "eviction-soft-grace-period", "eviction-max-pod-grace-period", "kube-reserved",
        "system-reserved", "allowed-unsafe-sysctls", "server-tls-bootstrap", "registry-qps", "registry-burst",
        "event-qps", "event-burst", "kube-api-qps", "kube-api-burst", "container-log-max-size",
        "container-log-max-files", "cpu-manager-policy", "cpu-manager-policy-options",
        "cpu-manager-reconcile-period", "memory-manager-policy", "topology-manager-scope",
        "topology-manager-policy", "topology-manager-policy-options", "image-gc-high-threshold-percent",
        "image-gc-low-threshold-percent", "ids-per-pod", "cpu-cfs-quota-enforced", "shutdown-grace-period",
        "shutdown-grace-period-for-critical-pods", "cluster-domain", "seccomp-default", "pod-pids-limit",
        "device-ownership-from-security-context", "single-process-oom-kill", "container-log-max-workers",
        "container-log-monitor-interval", "hostname-override-source", "log-level",
    }
)  # fmt: skip
_MAPS: Final = {
    "system-reserved": "systemReserved",
    "kube-reserved": "kubeReserved",
    "eviction-hard": "evictionHard",
    "eviction-soft": "evictionSoft",
    "eviction-soft-grace-period": "evictionSoftGracePeriod",
}
_MOUNT: Final = "000-mount-instance-storage"
# The first release that knows by itself which folders belong on local disks.
_KNOWS_FOLDERS: Final = (1, 46)
_FOLDERS: Final = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")


class TomlError(ValueError):
    """User data that is no settings file; the message says where."""


def bottlerocket_user_data(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    """Raises TomlError for user data of the user's that is not TOML or not of the shape of settings."""
    document = _parsed(nodeclass.user_data)
    settings = _table(document, "settings", "settings")
    own = _table(settings, "kubernetes", "settings.kubernetes")
    kubernetes = {key: value for key, value in own.items() if key in KUBERNETES_SETTINGS}
    labels = _table(own, "node-labels", "settings.kubernetes.node-labels") | kubelet_labels(options.labels)
    kubernetes |= _managed(nodeclass, cluster, options) | ({"node-labels": labels} if labels else {})
    merged = {**settings, "kubernetes": kubernetes}
    if nodeclass.instance_store_policy == "RAID0":
        commands = _table(settings, "bootstrap-commands", "settings.bootstrap-commands")
        merged["bootstrap-commands"] = {**commands, _MOUNT: _mount(nodeclass)}
    # What only Bottlerocket needs is loaded when there is one.
    import tomli_w

    text: str = tomli_w.dumps({**document, "settings": merged})
    return text


def _parsed(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"not TOML, which Bottlerocket reads: {error}") from None


def _table(parent: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    found = parent.get(key, {})
    if not isinstance(found, dict):
        raise TomlError(f"{path}: must be a table, found {found!r}")
    return found


def _managed(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> dict[str, Any]:
    """The settings that follow from cluster and class, under Bottlerocket's names and in its types."""
    config = kubelet_configuration(nodeclass.kubelet, cluster, options)
    made: dict[str, Any] = {
        "api-server": cluster.endpoint,
        "cluster-certificate": cluster.certificate_authority,
        "cluster-name": cluster.name,
        "max-pods": options.max_pods,
        "node-taints": _taints(registration_taints(options.taints)),
    }
    dns = cluster_dns(config)
    if dns:
        made["cluster-dns-ip"] = dns[0]
    for name, key in _MAPS.items():
        given = config.get(key)
        if isinstance(given, Mapping):
            made[name] = {resource: str(given[resource]) for resource in sorted(given)}
    if config.get("evictionMaxPodGracePeriod") is not None:
        made["eviction-max-pod-grace-period"] = config["evictionMaxPodGracePeriod"]
    for name, key in (("high", "imageGCHighThresholdPercent"), ("low", "imageGCLowThresholdPercent")):
        if config.get(key) is not None:
            made[f"image-gc-{name}-threshold-percent"] = str(config[key])
    if config.get("cpuCFSQuota") is not None:
        made["cpu-cfs-quota-enforced"] = config["cpuCFSQuota"]
    return made


def _taints(taints: Iterable[Taint]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for taint in taints:
        found.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return found


def _mount(nodeclass: EC2NodeClass) -> dict[str, Any]:
    """Local disks as one array, mounted before the kubelet starts; without it the node must not come up."""
    folders = [] if _knows_folders(nodeclass) else ["--dirs", *_FOLDERS]
    return {
        "commands": [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind", *folders]],
        "essential": True,
        "mode": "always",
    }


def _knows_folders(nodeclass: EC2NodeClass) -> bool:
    """By the alias: its release, or the latest one; images named otherwise are told."""
    releases = [term.alias.partition("@")[2] for term in nodeclass.ami_selector_terms if term.alias]
    numbers = [tuple(int(part) for part in re.findall(r"\d+", release)[:2]) for release in releases]
    return any(release == "latest" for release in releases) or any(
        number >= _KNOWS_FOLDERS for number in numbers if number
    )
