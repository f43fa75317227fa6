"""The fields of a KubeletConfiguration and their kinds, and which of them the families take.

Source: k8s.io/kubelet v0.35, config/v1beta1 (``KubeletConfiguration``), and what Karpenter passes on per AMI family.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from spotwright.model.quoting import quote

_FLAGS: Final = (
    "enableServer", "rotateCertificates", "serverTLSBootstrap", "enableDebuggingHandlers",
    "enableContentionProfiling", "cgroupsPerQOS", "singleProcessOOMKill", "runOnce", "cpuCFSQuota",
    "serializeImagePulls", "mergeDefaultEvictionSettings", "enableControllerAttachDetach",
    "protectKernelDefaults", "makeIPTablesUtilChains", "failSwapOn", "kernelMemcgNotification",
    "enableSystemLogHandler", "enableSystemLogQuery", "enableProfilingHandler", "enableDebugFlagsHandler",
    "seccompDefault", "registerNode", "localStorageCapacityIsolation", "failCgroupV1",
)  # fmt: skip
_TEXTS: Final = (
    "staticPodPath", "podLogsDir", "staticPodURL", "address", "tlsCertFile", "tlsPrivateKeyFile",
    "tlsMinVersion", "healthzBindAddress", "clusterDomain", "kubeletCgroups", "systemCgroups", "cgroupRoot",
    "cgroupDriver", "cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope",
    "hairpinMode", "podCIDR", "resolvConf", "contentType", "containerLogMaxSize", "reservedSystemCPUs",
    "showHiddenMetricsForVersion", "systemReservedCgroup", "kubeReservedCgroup", "volumePluginDir",
    "providerID", "containerRuntimeEndpoint", "imageServiceEndpoint", "imagePullCredentialsVerificationPolicy",
    "configMapAndSecretChangeDetectionStrategy",
)  # fmt: skip
_DURATIONS: Final = (
    "syncFrequency", "fileCheckFrequency", "httpCheckFrequency", "streamingConnectionIdleTimeout",
    "nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "imageMinimumGCAge", "imageMaximumGCAge",
    "volumeStatsAggPeriod", "cpuManagerReconcilePeriod", "runtimeRequestTimeout", "cpuCFSQuotaPeriod",
    "evictionPressureTransitionPeriod", "containerLogMonitorInterval", "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
)  # fmt: skip
_INTEGERS: Final = (
    "port", "readOnlyPort", "registryPullQPS", "registryBurst", "eventRecordQPS", "eventBurst", "healthzPort",
    "oomScoreAdj", "nodeLeaseDurationSeconds", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
    "maxPods", "podPidsLimit", "nodeStatusMaxImages", "maxOpenFiles", "kubeAPIQPS", "kubeAPIBurst",
    "maxParallelImagePulls", "evictionMaxPodGracePeriod", "podsPerCore", "iptablesMasqueradeBit",
    "iptablesDropBit", "containerLogMaxFiles", "containerLogMaxWorkers",
)  # fmt: skip
_LISTS: Final = (
    "tlsCipherSuites", "preloadedImagesVerificationAllowlist", "clusterDNS", "enforceNodeAllocatable",
    "allowedUnsafeSysctls",
)  # fmt: skip
_TEXT_MAPS: Final = (
    "cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "qosReserved", "evictionHard", "evictionSoft",
    "evictionSoftGracePeriod", "evictionMinimumReclaim", "systemReserved", "kubeReserved",
)  # fmt: skip
# Objects and lists of objects, whose own fields the kubelet checks.
_OPEN: Final = (
    "staticPodURLHeader", "authentication", "authorization", "memorySwap", "logging",
    "shutdownGracePeriodByPodPriority", "reservedMemory", "crashLoopBackOff", "tracing", "userNamespaces",
    "featureGates", "memoryThrottlingFactor", "kind", "apiVersion", "registerWithTaints",
)  # fmt: skip

_KINDS: Final[Mapping[str, str]] = {
    name: kind
    for kind, names in {
        "true or false": _FLAGS,
        "text": _TEXTS,
        "a duration such as 1m30s": _DURATIONS,
        "an integer": _INTEGERS,
        "a list of texts": _LISTS,
        "a map of texts": _TEXT_MAPS,
        "": _OPEN,
    }.items()
    for name in names
}
# What AMI families can express that turn the settings into flags or into settings of their own.
COMMON_FIELDS: Final = frozenset(
    {
        "clusterDNS", "maxPods", "podsPerCore", "systemReserved", "kubeReserved", "evictionHard", "evictionSoft",
        "evictionSoftGracePeriod", "evictionMaxPodGracePeriod", "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent", "cpuCFSQuota",
    }
)  # fmt: skip
_DURATION: Final = re.compile(
    r"0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)((([0-9]+(\.[0-9]*)?)(ns|us|µs|ms|s|m|h))*)"
)


def is_duration(value: object) -> bool:
    """A duration as Go spells it, not negative."""
    return isinstance(value, str) and _DURATION.fullmatch(value) is not None


def field_errors(kubelet: Mapping[str, object]) -> Iterator[str]:
    """Sentences about fields that a kubelet does not have, or that hold a value of another kind."""
    for name, value in sorted(kubelet.items()):
        kind = _KINDS.get(name)
        if kind is None:
            yield f"spec.kubelet.{name}: no such field in a KubeletConfiguration"
        elif value is not None and not _is_of_kind(kind, value):
            yield f"spec.kubelet.{name}: must be {kind}, found {quote(value)}"


def _is_of_kind(kind: str, value: object) -> bool:
    match kind:
        case "true or false":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "an integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "a list of texts":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "a map of texts":
            return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())
        case "":
            return True
    return is_duration(value)


def unsupported_fields(kubelet: Mapping[str, object], family: str, *, pods_per_core: bool) -> tuple[str, ...]:
    """Sentences about fields that ``family``, which does not take any kubelet setting, has no word for."""
    errors = [f"spec.kubelet.{name}: {family} has no such setting" for name in sorted(set(kubelet) - COMMON_FIELDS)]
    if not pods_per_core and kubelet.get("podsPerCore"):
        errors.append(f"spec.kubelet.podsPerCore: {family} has no such setting")
    servers = kubelet.get("clusterDNS")
    if isinstance(servers, list) and len(servers) > 1:
        errors.append(f"spec.kubelet.clusterDNS: {family} takes one address, found {len(servers)}")
    return tuple(errors)
