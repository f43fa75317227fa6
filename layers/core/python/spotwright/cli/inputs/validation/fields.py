"""Which values single fields of Kubernetes' own kinds may have, where the schema does not say so.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation`` and its neighbors, for what decides how many pods there are and
where they may run, and for what is often misspelt.
"""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.cli.inputs.validation import names
from spotwright.cli.inputs.validation.problems import Kind, Path, Problem, Problems, nearest
from spotwright.cli.inputs.validation.schema import not_allowed
from spotwright.model import quantity, resources
from spotwright.model.quoting import quote

CORE: Final = "io.k8s.api.core.v1."
APPS: Final = "io.k8s.api.apps.v1."
BATCH: Final = "io.k8s.api.batch.v1."
_RBAC: Final = "io.k8s.api.rbac.v1."
_AUTOSCALING: Final = "io.k8s.api.autoscaling.v2."
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_STANDARD_RESOURCES: Final = (resources.CPU, resources.MEMORY, "ephemeral-storage")


def one_of(*allowed: str) -> names.Check:
    """One of these values; "" is the default."""

    def check(value: object, path: Path) -> Problems:
        if value != "" and value not in allowed:
            yield not_allowed(path, value, allowed)

    return check


def exactly(*allowed: str) -> names.Check:
    """One of these values, of a field without a default."""

    def check(value: object, path: Path) -> Problems:
        if value not in allowed:
            yield not_allowed(path, value, allowed)

    return check


def at_least(least: int) -> names.Check:
    def check(value: object, path: Path) -> Problems:
        if isinstance(value, int | float) and value < least:
            yield Problem(Kind.VALUE, path, f"{quote(value)} is less than {least}")

    return check


def between(least: int, most: int) -> names.Check:
    def check(value: object, path: Path) -> Problems:
        if isinstance(value, int | float) and not least <= value <= most:
            yield Problem(Kind.VALUE, path, f"{quote(value)} is not between {least} and {most}")

    return check


def each(check: names.Check) -> names.Check:
    """The check of every item of a list."""

    def check_each(value: object, path: Path) -> Problems:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from check("" if item is None else item, (*path, index))

    return check_each


def label_map(value: object, path: Path) -> Problems:
    for key, item in _entries(value):
        yield from names.label_key(key, (*path, key))
        yield from names.label_value(item, (*path, key))


def annotation_map(value: object, path: Path) -> Problems:
    for key, _ in _entries(value):
        # Their keys may have capitals where a label's domain may not.
        yield from names.label_key(key.lower(), (*path, key))


def amounts(value: object, path: Path) -> Problems:
    """Resources of a container or pod: names that exist, amounts of at least 0, whole ones where pieces are counted."""
    for name, amount in _entries(value):
        here = (*path, name)
        yield from _resource_name(name, here)
        try:
            exact = quantity.parse(amount)
        except quantity.QuantityError:
            continue
        if exact < 0:
            yield Problem(Kind.VALUE, here, f"{quote(amount)} is negative; at least 0 is allowed")
        elif "/" in name and exact.denominator != 1:
            yield Problem(Kind.VALUE, here, f"{quote(amount)} is not a whole number of {name}")


def _resource_name(name: str, path: Path) -> Problems:
    if "/" in name:
        yield from names.label_key(name, path)
    elif name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        similar = nearest(name, _STANDARD_RESOURCES)
        hint = f", did you mean {similar}?" if similar else ""
        known = ", ".join(_STANDARD_RESOURCES)
        yield Problem(
            Kind.VALUE, path, f"no such resource: {known}, hugepages-* or a name with a domain is allowed{hint}"
        )


def int_or_percent(value: object, path: Path) -> Problems:
    text = value if isinstance(value, str) else ""
    digits = text.removesuffix("%")
    if isinstance(value, str) and not (text.endswith("%") and digits.isdecimal() and digits.isascii()):
        yield Problem(Kind.VALUE, path, f"{quote(value)} is neither a whole number nor a percentage such as 25%")
    elif isinstance(value, int | float) and value < 0:
        yield Problem(Kind.VALUE, path, f"{quote(value)} is less than 0")


def share(value: object, path: Path) -> Problems:
    """As ``int_or_percent``, at most 100%."""
    found = list(int_or_percent(value, path))
    if not found and isinstance(value, str) and int(value.removesuffix("%")) > 100:
        found = [Problem(Kind.VALUE, path, f"{quote(value)} is more than 100%")]
    yield from found


def port(value: object, path: Path) -> Problems:
    """A port's number or its name."""
    yield from between(1, 65535)(value, path)
    if isinstance(value, str):
        yield from names.port_name(value or "-", path)


def target_port(value: object, path: Path) -> Problems:
    if value not in (0, ""):
        yield from port(value, path)


def not_negative(value: object, path: Path) -> Problems:
    """A quantity."""
    if isinstance(value, str | int | float) and quantity.parse(value) < 0:
        yield Problem(Kind.VALUE, path, f"{quote(value)} is negative; at least 0 is allowed")


def capacity(value: object, path: Path) -> Problems:
    """Of a PersistentVolume: storage, more than nothing."""
    for name, amount in _entries(value):
        if name != "storage":
            yield not_allowed((*path, name), name, ("storage",))
        elif amount is None or quantity.parse(amount) <= 0:
            yield Problem(Kind.VALUE, (*path, name), f"{quote(amount)} is not more than 0")


def provisioner(value: object, path: Path) -> Problems:
    if isinstance(value, str):
        yield from names.label_key(value.lower(), path)


def _entries(value: object) -> "tuple[tuple[str, Any], ...]":
    return tuple(value.items()) if isinstance(value, Mapping) else ()


_PORT: Final = between(0, 65535)
_NOT_NEGATIVE: Final = at_least(0)
_POLICY: Final = exactly("Honor", "Ignore")
_ACCESS_MODES: Final = each(exactly("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"))
_RECLAIM: Final = one_of("Retain", "Delete", "Recycle")
_PROBE: Final[dict[str, names.Check]] = dict.fromkeys(
    ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"), _NOT_NEGATIVE
)
_AUTOSCALED: Final[dict[str, names.Check]] = {"minReplicas": _NOT_NEGATIVE, "maxReplicas": at_least(1)}
_SELECTOR_OPERATORS: Final = one_of("In", "NotIn", "Exists", "DoesNotExist")
_MATCH_KEYS: Final[dict[str, names.Check]] = {
    "matchLabelKeys": each(names.label_key),
    "mismatchLabelKeys": each(names.label_key),
}

# Definition → field → what its value must be.
FIELDS: Final[dict[str, dict[str, names.Check]]] = {
    f"{META}ObjectMeta": {
        "labels": label_map,
        "annotations": annotation_map,
        "namespace": names.dns_label,
        "finalizers": each(names.label_key),
    },
    f"{META}LabelSelector": {"matchLabels": label_map},
    f"{META}LabelSelectorRequirement": {
        "key": names.label_key,
        "operator": _SELECTOR_OPERATORS,
        "values": each(names.label_value),
    },
    f"{CORE}PodSpec": {
        "restartPolicy": one_of("Always", "OnFailure", "Never"),
        "dnsPolicy": one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        "preemptionPolicy": one_of("PreemptLowerPriority", "Never"),
        "nodeSelector": label_map,
        "priorityClassName": names.dns_subdomain,
        "runtimeClassName": names.dns_subdomain,
        "serviceAccountName": names.dns_subdomain,
        "nodeName": names.dns_subdomain,
        "activeDeadlineSeconds": between(1, 2**31 - 1),
        "overhead": amounts,
        "hostname": names.dns_label,
        "subdomain": names.dns_label,
    },
    f"{CORE}PodOS": {"name": exactly("linux", "windows")},
    f"{CORE}PodSchedulingGate": {"name": names.label_key},
    f"{CORE}Container": {
        "name": names.dns_label,
        "imagePullPolicy": one_of("Always", "IfNotPresent", "Never"),
        "terminationMessagePolicy": one_of("File", "FallbackToLogsOnError"),
        "restartPolicy": exactly("Always", "OnFailure", "Never"),
    },
    f"{CORE}ContainerPort": {
        "name": names.port_name,
        "containerPort": _PORT,
        "hostPort": _PORT,
        "protocol": one_of("TCP", "UDP", "SCTP"),
    },
    f"{CORE}EnvVar": {"name": names.environment_name},
    f"{CORE}Probe": _PROBE,
    f"{CORE}ResourceRequirements": {"requests": amounts, "limits": amounts},
    f"{CORE}Toleration": {
        "key": names.label_key,
        "operator": one_of("Equal", "Exists"),
        "effect": one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
    },
    f"{CORE}Taint": {
        "key": names.label_key,
        "value": names.label_value,
        "effect": one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
    },
    f"{CORE}NodeSelectorRequirement": {
        "key": names.label_key,
        "operator": one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    },
    f"{CORE}PreferredSchedulingTerm": {"weight": between(1, 100)},
    f"{CORE}WeightedPodAffinityTerm": {"weight": between(1, 100)},
    f"{CORE}PodAffinityTerm": _MATCH_KEYS | {"topologyKey": names.label_key, "namespaces": each(names.dns_label)},
    f"{CORE}TopologySpreadConstraint": _MATCH_KEYS
    | {
        "maxSkew": at_least(1),
        "minDomains": at_least(1),
        "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway"),
        "nodeAffinityPolicy": _POLICY,
        "nodeTaintsPolicy": _POLICY,
    },
    f"{CORE}Volume": {"name": names.dns_label},
    f"{CORE}EmptyDirVolumeSource": {"sizeLimit": not_negative},
    f"{CORE}HostPathVolumeSource": {
        "type": one_of("BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
    },
    f"{CORE}HTTPGetAction": {"port": port},
    f"{CORE}TCPSocketAction": {"port": port},
    f"{CORE}ConfigMapEnvSource": {"name": names.dns_subdomain},
    f"{CORE}SecretEnvSource": {"name": names.dns_subdomain},
    f"{CORE}PersistentVolumeClaimSpec": {
        "accessModes": _ACCESS_MODES,
        "storageClassName": names.dns_subdomain,
        "volumeMode": exactly("Filesystem", "Block"),
    },
    f"{CORE}PersistentVolumeSpec": {
        "accessModes": _ACCESS_MODES,
        "storageClassName": names.dns_subdomain,
        "volumeMode": exactly("Filesystem", "Block"),
        "persistentVolumeReclaimPolicy": _RECLAIM,
        "capacity": capacity,
    },
    f"{CORE}CSIPersistentVolumeSource": {"driver": names.dns_subdomain},
    f"{CORE}TopologySelectorLabelRequirement": {"key": names.label_key},
    "io.k8s.api.storage.v1.StorageClass": {
        "provisioner": provisioner,
        "reclaimPolicy": _RECLAIM,
        "volumeBindingMode": exactly("Immediate", "WaitForFirstConsumer"),
    },
    f"{CORE}ReplicationControllerSpec": {"replicas": _NOT_NEGATIVE, "minReadySeconds": _NOT_NEGATIVE},
    f"{APPS}DeploymentSpec": {
        "replicas": _NOT_NEGATIVE,
        "minReadySeconds": _NOT_NEGATIVE,
        "revisionHistoryLimit": _NOT_NEGATIVE,
        "progressDeadlineSeconds": _NOT_NEGATIVE,
    },
    f"{APPS}DeploymentStrategy": {"type": one_of("Recreate", "RollingUpdate")},
    f"{APPS}RollingUpdateDeployment": {"maxSurge": int_or_percent, "maxUnavailable": share},
    f"{APPS}ReplicaSetSpec": {"replicas": _NOT_NEGATIVE, "minReadySeconds": _NOT_NEGATIVE},
    f"{APPS}StatefulSetSpec": {
        "replicas": _NOT_NEGATIVE,
        "minReadySeconds": _NOT_NEGATIVE,
        "podManagementPolicy": one_of("OrderedReady", "Parallel"),
        "serviceName": names.dns_label,
    },
    f"{APPS}RollingUpdateStatefulSetStrategy": {"partition": _NOT_NEGATIVE, "maxUnavailable": share},
    f"{APPS}StatefulSetUpdateStrategy": {"type": one_of("RollingUpdate", "OnDelete")},
    f"{APPS}DaemonSetUpdateStrategy": {"type": one_of("RollingUpdate", "OnDelete")},
    f"{BATCH}JobSpec": {
        "parallelism": _NOT_NEGATIVE,
        "completions": _NOT_NEGATIVE,
        "backoffLimit": _NOT_NEGATIVE,
        "activeDeadlineSeconds": _NOT_NEGATIVE,
        "ttlSecondsAfterFinished": _NOT_NEGATIVE,
        "completionMode": exactly("NonIndexed", "Indexed"),
    },
    f"{BATCH}CronJobSpec": {
        "concurrencyPolicy": one_of("Allow", "Forbid", "Replace"),
        "startingDeadlineSeconds": _NOT_NEGATIVE,
        "successfulJobsHistoryLimit": _NOT_NEGATIVE,
        "failedJobsHistoryLimit": _NOT_NEGATIVE,
    },
    "io.k8s.api.policy.v1.PodDisruptionBudgetSpec": {
        "minAvailable": share,
        "maxUnavailable": share,
        "unhealthyPodEvictionPolicy": exactly("IfHealthyBudget", "AlwaysAllow"),
    },
    "io.k8s.api.scheduling.v1.PriorityClass": {"preemptionPolicy": exactly("PreemptLowerPriority", "Never")},
    f"{CORE}ServiceSpec": {
        "type": one_of("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
        "sessionAffinity": one_of("ClientIP", "None"),
        "externalTrafficPolicy": one_of("Cluster", "Local"),
        "selector": label_map,
    },
    f"{CORE}ServicePort": {
        "port": between(1, 65535),
        "targetPort": target_port,
        "nodePort": _PORT,
        "protocol": one_of("TCP", "UDP", "SCTP"),
        "name": names.dns_label,
    },
    f"{_RBAC}RoleRef": {
        "apiGroup": one_of("rbac.authorization.k8s.io"),
        "kind": exactly("Role", "ClusterRole"),
        "name": names.path_segment,
    },
    f"{_RBAC}Subject": {"kind": exactly("ServiceAccount", "User", "Group")},
    "io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec": _AUTOSCALED,
    f"{_AUTOSCALING}HorizontalPodAutoscalerSpec": _AUTOSCALED,
    f"{_AUTOSCALING}CrossVersionObjectReference": {"kind": names.path_segment, "name": names.path_segment},
    f"{_AUTOSCALING}MetricSpec": {"type": exactly("ContainerResource", "External", "Object", "Pods", "Resource")},
    f"{_AUTOSCALING}MetricTarget": {
        "type": exactly("Utilization", "Value", "AverageValue"),
        "averageUtilization": at_least(1),
    },
}
FIELDS[f"{CORE}EphemeralContainer"] = FIELDS[f"{CORE}Container"]

# Definition → fields that must be there and not be empty, although the schema does not ask for them.
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    f"{CORE}Pod": ("spec",),
    f"{CORE}PodSpec": ("containers",),
    f"{CORE}Container": ("name", "image"),
    f"{CORE}ContainerPort": ("containerPort",),
    f"{CORE}EnvVar": ("name",),
    f"{CORE}Volume": ("name",),
    f"{CORE}VolumeMount": ("name", "mountPath"),
    f"{CORE}PersistentVolumeClaimVolumeSource": ("claimName",),
    f"{CORE}NodeSelector": ("nodeSelectorTerms",),
    f"{CORE}NodeSelectorRequirement": ("key", "operator"),
    f"{META}LabelSelectorRequirement": ("key", "operator"),
    f"{CORE}PodAffinityTerm": ("topologyKey",),
    f"{CORE}TopologySpreadConstraint": ("topologyKey", "whenUnsatisfiable", "maxSkew"),
    f"{CORE}PersistentVolumeClaim": ("spec",),
    f"{CORE}PersistentVolumeClaimSpec": ("accessModes",),
    f"{CORE}PersistentVolume": ("spec",),
    f"{CORE}PersistentVolumeSpec": ("accessModes", "capacity"),
    "io.k8s.api.storage.v1.StorageClass": ("provisioner",),
    f"{APPS}Deployment": ("spec",),
    f"{APPS}ReplicaSet": ("spec",),
    f"{APPS}StatefulSet": ("spec",),
    f"{APPS}DaemonSet": ("spec",),
    f"{APPS}DeploymentSpec": ("selector",),
    f"{APPS}ReplicaSetSpec": ("selector",),
    f"{APPS}StatefulSetSpec": ("selector",),
    f"{APPS}DaemonSetSpec": ("selector",),
    f"{BATCH}Job": ("spec",),
    f"{BATCH}CronJob": ("spec",),
    f"{BATCH}CronJobSpec": ("schedule",),
    f"{CORE}ReplicationController": ("spec",),
    f"{CORE}PodTemplate": ("template",),
    f"{CORE}PodTemplateSpec": ("spec",),
    f"{BATCH}JobTemplateSpec": ("spec",),
    f"{CORE}Service": ("spec",),
    f"{CORE}PodOS": ("name",),
    f"{CORE}EphemeralVolumeSource": ("volumeClaimTemplate",),
    f"{CORE}ConfigMapVolumeSource": ("name",),
    f"{CORE}SecretVolumeSource": ("secretName",),
    f"{CORE}HostPathVolumeSource": ("path",),
    f"{CORE}KeyToPath": ("key", "path"),
    f"{CORE}ObjectFieldSelector": ("fieldPath",),
    f"{CORE}ConfigMapEnvSource": ("name",),
    f"{CORE}SecretEnvSource": ("name",),
    f"{CORE}ExecAction": ("command",),
    f"{CORE}CSIPersistentVolumeSource": ("driver", "volumeHandle"),
    f"{CORE}VolumeNodeAffinity": ("required",),
    f"{CORE}TopologySelectorLabelRequirement": ("key", "values"),
    f"{CORE}TopologySelectorTerm": ("matchLabelExpressions",),
    f"{_RBAC}RoleRef": ("name",),
    f"{_RBAC}Subject": ("name",),
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler": ("spec",),
    f"{_AUTOSCALING}CrossVersionObjectReference": ("kind", "name"),
    f"{CORE}ReplicationControllerSpec": ("template",),
}

# Definition → fields that the schema asks for and the API server does not.
NOT_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    f"{CORE}PreferredSchedulingTerm": ("preference",),
    "io.k8s.api.scheduling.v1.PriorityClass": ("value",),
    f"{_RBAC}RoleRef": ("apiGroup",),
}
