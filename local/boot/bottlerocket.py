"""Reads Bottlerocket's user data: TOML settings, each of a known name and type, or the host does not boot.

Facts from https://bottlerocket.dev/en/os/latest/api/settings/kubernetes/.
"""

import tomllib
from typing import Any

from local.boot.user_data import BootError, NodeConfig, decode_certificate_authority, decode_user_data

TEXTS = frozenset(
    (
        "api-server",
        "cluster-certificate",
        "cluster-name",
        "cluster-dns-ip",
        "cloud-provider",
        "cluster-domain",
        "container-log-max-size",
        "cpu-manager-policy",
        "image-gc-high-threshold-percent",
        "image-gc-low-threshold-percent",
        "memory-manager-policy",
        "topology-manager-policy",
        "topology-manager-scope",
        "shutdown-grace-period",
        "shutdown-grace-period-for-critical-pods",
    )
)
NUMBERS = frozenset(
    (
        "max-pods",
        "pod-pids-limit",
        "registry-qps",
        "registry-burst",
        "event-qps",
        "event-burst",
        "kube-api-qps",
        "kube-api-burst",
        "container-log-max-files",
        "eviction-max-pod-grace-period",
        "ids-per-pod",
    )
)
FLAGS = frozenset(("server-tls-bootstrap", "cpu-cfs-quota-enforced", "seccomp-default"))
TABLES = frozenset(
    (
        "node-labels",
        "node-taints",
        "kube-reserved",
        "system-reserved",
        "eviction-hard",
        "eviction-soft",
        "eviction-soft-grace-period",
        "static-pods",
        "credential-providers",
    )
)
KINDS: tuple[tuple[frozenset[str], type], ...] = ((TEXTS, str), (NUMBERS, int), (FLAGS, bool), (TABLES, dict))
REQUIRED = ("api-server", "cluster-certificate", "cluster-name")
MOUNT = ["apiclient", "ephemeral-storage", "init"]


def parse_bottlerocket(encoded: str) -> NodeConfig:
    """The node that these settings make. Raises BootError."""
    try:
        document = tomllib.loads(decode_user_data(encoded).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BootError("SettingsUnreadable", f"settings are not TOML: {error}") from error
    settings = document.get("settings", {})
    kubernetes = settings.get("kubernetes", {})
    for name, value in kubernetes.items():
        _check(name, value)
    missing = [name for name in REQUIRED if not kubernetes.get(name)]
    if missing:
        raise BootError("SettingsMissing", f"settings.kubernetes.{missing[0]} is missing")
    dns = kubernetes.get("cluster-dns-ip")
    return NodeConfig(
        cluster_name=kubernetes["cluster-name"],
        endpoint=kubernetes["api-server"],
        certificate_authority=decode_certificate_authority(kubernetes["cluster-certificate"]),
        cidr="",
        kubelet=_kubelet(kubernetes) | ({"clusterDNS": [dns]} if dns else {}),
        flags=tuple(f"--node-labels={key}={value}" for key, value in kubernetes.get("node-labels", {}).items()),
        storage_strategy="RAID0" if _mounts_disks(settings) else "",
    )


def _check(name: str, value: Any) -> None:
    for names, kind in KINDS:
        if name in names:
            if type(value) is not kind:
                raise BootError("SettingsInvalid", f"settings.kubernetes.{name} is {value!r}, not {kind.__name__}")
            return
    raise BootError("SettingsUnknown", f"there is no setting settings.kubernetes.{name}")


def _kubelet(kubernetes: dict[str, Any]) -> dict[str, Any]:
    """Settings as the kubelet configuration they become."""
    taints = []
    for key, values in kubernetes.get("node-taints", {}).items():
        if not isinstance(values, list):
            raise BootError("SettingsInvalid", f"settings.kubernetes.node-taints.{key} is not a list")
        for text in values:
            value, _, effect = str(text).rpartition(":")
            taints.append({"key": key, "value": value, "effect": effect})
    names = {
        "maxPods": "max-pods",
        "kubeReserved": "kube-reserved",
        "systemReserved": "system-reserved",
        "evictionHard": "eviction-hard",
    }
    return {"registerWithTaints": taints} | {key: kubernetes[name] for key, name in names.items() if name in kubernetes}


def _mounts_disks(settings: dict[str, Any]) -> bool:
    """Is there a bootstrap command that makes local disks the node's storage?"""
    commands = settings.get("bootstrap-commands", {})
    if not isinstance(commands, dict):
        raise BootError("SettingsInvalid", "settings.bootstrap-commands is not a table")
    for name, entry in commands.items():
        if not isinstance(entry.get("commands"), list) or entry.get("mode") not in ("always", "once", "off"):
            raise BootError("SettingsInvalid", f"settings.bootstrap-commands.{name} needs commands and a mode")
    scripts = [entry["commands"] for entry in commands.values() if entry["mode"] != "off"]
    return any(MOUNT in script and any(line[:3] == [*MOUNT[:2], "bind"] for line in script) for script in scripts)
