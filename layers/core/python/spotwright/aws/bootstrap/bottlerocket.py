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
from spotwright.model.quoting import quote

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
_AMOUNT_SETTINGS: Final = {
    "system-reserved": "systemReserved",
    "kube-reserved": "kubeReserved",
    "eviction-hard": "evictionHard",
    "eviction-soft": "evictionSoft",
    "eviction-soft-grace-period": "evictionSoftGracePeriod",
}
_MOUNT_COMMAND: Final = "000-mount-instance-storage"
# From this release on Bottlerocket itself chooses the folders that local disks hold.
_KNOWS_FOLDERS: Final = (1, 46)
_FOLDERS: Final = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")


class TomlError(ValueError):
    """User data that is not a TOML settings file; the message says where."""


def bottlerocket_user_data(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    """The settings of ``spec.userData`` with those that Spotwright manages; raises TomlError."""
    document = _parse_toml(nodeclass.user_data)
    settings = _table(document, "settings", "settings")
    own = _table(settings, "kubernetes", "settings.kubernetes")
    kubernetes = {key: value for key, value in own.items() if key in KUBERNETES_SETTINGS}
    labels = _table(own, "node-labels", "settings.kubernetes.node-labels") | kubelet_labels(options.labels)
    kubernetes |= _cluster_settings(nodeclass, cluster, options) | ({"node-labels": labels} if labels else {})
    merged = {**settings, "kubernetes": kubernetes}
    if nodeclass.instance_store_policy == "RAID0":
        commands = _table(settings, "bootstrap-commands", "settings.bootstrap-commands")
        merged["bootstrap-commands"] = {**commands, _MOUNT_COMMAND: _mount_command(nodeclass)}
    # Only Bottlerocket needs this library.
    import tomli_w

    text: str = tomli_w.dumps({**document, "settings": merged})
    return text


def _parse_toml(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"not TOML, which Bottlerocket reads: {error}") from None


def _table(parent: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    table = parent.get(key, {})
    if not isinstance(table, dict):
        raise TomlError(f"{path}: must be a table, found {quote(table)}")
    return table


def _cluster_settings(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> dict[str, Any]:
    """The settings that follow from the cluster and ``spec.kubelet``, under Bottlerocket's names and in its types."""
    config = kubelet_configuration(nodeclass.kubelet, cluster, options)
    settings: dict[str, Any] = {
        "api-server": cluster.endpoint,
        "cluster-certificate": cluster.certificate_authority,
        "cluster-name": cluster.name,
        "max-pods": options.max_pods,
        "node-taints": _taint_settings(registration_taints(options.taints)),
    }
    dns = cluster_dns(config)
    if dns:
        settings["cluster-dns-ip"] = dns[0]
    for name, key in _AMOUNT_SETTINGS.items():
        amounts = config.get(key)
        if isinstance(amounts, Mapping):
            settings[name] = {resource: str(amounts[resource]) for resource in sorted(amounts)}
    if config.get("evictionMaxPodGracePeriod") is not None:
        settings["eviction-max-pod-grace-period"] = config["evictionMaxPodGracePeriod"]
    for name, key in (("high", "imageGCHighThresholdPercent"), ("low", "imageGCLowThresholdPercent")):
        if config.get(key) is not None:
            settings[f"image-gc-{name}-threshold-percent"] = str(config[key])
    if config.get("cpuCFSQuota") is not None:
        settings["cpu-cfs-quota-enforced"] = config["cpuCFSQuota"]
    return settings


def _taint_settings(taints: Iterable[Taint]) -> dict[str, list[str]]:
    values_by_key: dict[str, list[str]] = {}
    for taint in taints:
        values_by_key.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return values_by_key


def _mount_command(nodeclass: EC2NodeClass) -> dict[str, Any]:
    """The command that joins local disks to an array before the kubelet starts; the node does not start if it fails."""
    folders = [] if _knows_folders(nodeclass) else ["--dirs", *_FOLDERS]
    return {
        "commands": [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind", *folders]],
        "essential": True,
        "mode": "always",
    }


def _knows_folders(nodeclass: EC2NodeClass) -> bool:
    """Whether the alias names a release from then on, or the latest; without an alias the command lists the folders."""
    releases = [term.alias.partition("@")[2] for term in nodeclass.ami_selector_terms if term.alias]
    numbers = [tuple(int(part) for part in re.findall(r"\d+", release)[:2]) for release in releases]
    return any(release == "latest" for release in releases) or any(
        number >= _KNOWS_FOLDERS for number in numbers if number
    )
