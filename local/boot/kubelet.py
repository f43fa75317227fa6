"""What a kubelet makes of its configuration and flags: node labels, taints, reservations; or it does not start."""

import re
import shlex
from dataclasses import dataclass
from typing import Any

from local.boot.quantity import parse_bytes, parse_millicores
from local.boot.user_data import BootError, NodeConfig

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
PREFIX = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
FLAG = re.compile(r"--[a-z][a-z0-9-]*(=.*)?", re.DOTALL)
# Labels of kubernetes.io and k8s.io that a kubelet may give itself; others stop it from starting.
# https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
OWN_LABELS = frozenset(
    (
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    )
)
OWN_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")

type Taint = dict[str, str]


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The part of a kubelet's settings that shows in its Node. None: not set, the default holds.

    Reservations are keyed by resource name (cpu in millicores, others in bytes), eviction thresholds by
    signal and kept as text because a percentage needs the capacity.
    """

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    max_pods: int | None
    pods_per_core: int
    kube_reserved: dict[str, int]
    system_reserved: dict[str, int]
    eviction_hard: dict[str, str]


def read_settings(config: NodeConfig) -> KubeletSettings:
    """Raises BootError when the kubelet would not start with this."""
    flags = _flags(config)
    taints = [*_taints(config.kubelet.get("registerWithTaints")), *_taints_of_flag(flags)]
    _check_unique(taints)
    kubelet = config.kubelet | _of_flags(flags)
    return KubeletSettings(
        labels=_labels(flags.get("node-labels", [])),
        taints=tuple(taints),
        max_pods=_count(kubelet, "maxPods"),
        pods_per_core=_count(kubelet, "podsPerCore") or 0,
        kube_reserved=_reserved(kubelet, "kubeReserved"),
        system_reserved=_reserved(kubelet, "systemReserved"),
        eviction_hard={key: str(value) for key, value in _mapping(kubelet, "evictionHard").items()},
    )


def _flags(config: NodeConfig) -> dict[str, list[str]]:
    """Flag name (without dashes) to its values. Quotes are read as systemd reads them."""
    found: dict[str, list[str]] = {}
    for text in config.flags:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise BootError("KubeletFlags", f"cannot split kubelet flag {text!r}: {error}") from error
        for word in words:
            if not FLAG.fullmatch(word):
                raise BootError("KubeletFlags", f"{word!r} is not a flag")
            name, _, value = word[2:].partition("=")
            found.setdefault(name, []).append(value)
    return found


def _of_flags(flags: dict[str, list[str]]) -> dict[str, Any]:
    """Settings given as flags, which win over the configuration file."""
    numbers = {"maxPods": "max-pods", "podsPerCore": "pods-per-core"}
    maps = {"kubeReserved": ("kube-reserved", "="), "systemReserved": ("system-reserved", "=")}
    maps["evictionHard"] = ("eviction-hard", "<")
    found: dict[str, Any] = {key: _number(flags[name][-1]) for key, name in numbers.items() if name in flags}
    for key, (name, sign) in maps.items():
        if name in flags:
            found[key] = dict(_pair(name, text, sign) for text in flags[name][-1].split(",") if text)
    return found


def _number(text: str) -> Any:
    return int(text) if text.isdigit() else text


def _pair(flag: str, text: str, sign: str) -> tuple[str, str]:
    key, found, value = text.partition(sign)
    if not found:
        raise BootError("KubeletFlags", f"--{flag}: {text!r} is not name{sign}amount")
    return key, value


def _labels(values: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in [pair for value in values for pair in value.split(",") if pair]:
        key, equals, value = pair.partition("=")
        if not equals or not _is_qualified(key) or not _is_value(value):
            raise BootError("NodeLabels", f"--node-labels: {pair!r} is not a label")
        if _is_foreign(key):
            raise BootError("NodeLabels", f"--node-labels: a kubelet may not give itself {key}")
        labels[key] = value
    return labels


def _is_foreign(key: str) -> bool:
    """Is this a label of Kubernetes' own domains which a kubelet may not set?"""
    domain = key.partition("/")[0] if "/" in key else ""
    if not domain.endswith(("kubernetes.io", "k8s.io")):
        return False
    own = domain not in ("kubernetes.io", "k8s.io") and not domain.endswith((".kubernetes.io", ".k8s.io"))
    return not own and key not in OWN_LABELS and not _within(domain, OWN_PREFIXES)


def _within(domain: str, domains: tuple[str, ...]) -> bool:
    return any(domain == other_domain or domain.endswith("." + other_domain) for other_domain in domains)


def _taints(value: Any) -> list[Taint]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BootError("Taints", "registerWithTaints is not a list")
    return [_taint(entry) for entry in value]


def _taint(entry: Any) -> Taint:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key, ""), str) for key in ("key", "value")):
        raise BootError("Taints", f"{entry!r} is not a taint")
    taint = {"key": entry.get("key", ""), "effect": entry.get("effect", "")}
    value = entry.get("value") or ""
    if not _is_qualified(taint["key"]) or not _is_value(value) or taint["effect"] not in EFFECTS:
        raise BootError("Taints", f"{entry!r} is not a valid taint")
    return taint | ({"value": value} if value else {})


def _taints_of_flag(flags: dict[str, list[str]]) -> list[Taint]:
    """--register-with-taints: key=value:effect or key:effect, separated by commas."""
    texts = [text for value in flags.get("register-with-taints", []) for text in value.split(",") if text]
    found = []
    for text in texts:
        name, _, effect = text.rpartition(":")
        key, _, value = name.partition("=")
        found.append(_taint({"key": key, "value": value, "effect": effect}))
    return found


def _check_unique(taints: list[Taint]) -> None:
    keys = [(taint["key"], taint["effect"]) for taint in taints]
    if len(set(keys)) != len(keys):
        raise BootError("Taints", "two taints with the same key and effect")


def _count(kubelet: dict[str, Any], field: str) -> int | None:
    value = kubelet.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BootError("KubeletConfiguration", f"{field} is {value!r}, not a count")
    return value


def _mapping(kubelet: dict[str, Any], field: str) -> dict[str, Any]:
    value = kubelet.get(field) or {}
    if not isinstance(value, dict):
        raise BootError("KubeletConfiguration", f"{field} is not an object")
    return value


def _reserved(kubelet: dict[str, Any], field: str) -> dict[str, int]:
    reserved = {}
    for name, text in _mapping(kubelet, field).items():
        try:
            reserved[name] = parse_millicores(str(text)) if name == "cpu" else parse_bytes(str(text))
        except ValueError as error:
            raise BootError("KubeletConfiguration", f"{field}.{name}: {error}") from error
    return reserved


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(NAME.fullmatch(name)) and (not slash or bool(PREFIX.fullmatch(prefix)))


def _is_value(value: str) -> bool:
    return value == "" or bool(NAME.fullmatch(value))
