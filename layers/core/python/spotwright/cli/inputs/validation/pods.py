"""Rules between the fields of a pod's spec.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from spotwright.cli.inputs.validation import names
from spotwright.cli.inputs.validation.problems import Kind, Path, Problem, Problems, missing, nearest
from spotwright.cli.inputs.validation.schema import Rule
from spotwright.model import quantity
from spotwright.model.quoting import quote

_ENVIRONMENT_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_VOLUME_SOURCES: Final = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs", "photonPersistentDisk", "portworxVolume",
    "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip

type Json = Mapping[str, Any]

_CONTAINER_LISTS: Final = ("containers", "initContainers")
_HANDLERS: Final = ("exec", "grpc", "httpGet", "sleep", "tcpSocket")


def listed(value: Json, name: str) -> list[Any]:
    """The items of a list field; null is an empty object, as the API server reads it."""
    return [{} if item is None else item for item in value.get(name) or ()]


def toleration(value: Json, path: Path) -> Problems:
    operator = value.get("operator") or "Equal"
    if not value.get("key") and operator == "Equal":
        yield Problem(Kind.VALUE, (*path, "operator"), "must be Exists where key is empty, which means all keys")
    if operator == "Equal":
        yield from names.label_value(value.get("value"), (*path, "value"))
    if operator == "Exists" and value.get("value"):
        yield Problem(Kind.VALUE, (*path, "value"), f"{quote(value['value'])} must be empty where operator is Exists")
    if value.get("tolerationSeconds") is not None and value.get("effect") != "NoExecute":
        yield Problem(Kind.VALUE, (*path, "effect"), "must be NoExecute where tolerationSeconds is set")


def selector_requirement(value: Json, path: Path) -> Problems:
    """Of node affinity and of label selectors."""
    operator, values = value.get("operator"), value.get("values") or ()
    here = (*path, "values")
    if operator in ("In", "NotIn") and not values:
        yield missing(here, f"operator {operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield Problem(Kind.VALUE, here, f"{quote(values)} must be empty where operator is {operator}")
    elif operator in ("Gt", "Lt") and len(values) != 1:
        yield Problem(Kind.VALUE, here, f"{quote(values)}: operator {operator} needs exactly one value")


def node_selector(value: Json, path: Path) -> Problems:
    """What a node must have; its values are label values, which those of preferences need not be."""
    for number, term in enumerate(listed(value, "nodeSelectorTerms")):
        for index, requirement in enumerate(listed(term, "matchExpressions")):
            for position, wanted in enumerate(requirement.get("values") or ()):
                here = (*path, "nodeSelectorTerms", number, "matchExpressions", index, "values", position)
                yield from names.label_value(wanted, here)


def node_selector_term(value: Json, path: Path) -> Problems:
    for index, field in enumerate(listed(value, "matchFields")):
        if field.get("key") != "metadata.name":
            here = (*path, "matchFields", index, "key")
            yield Problem(Kind.VALUE, here, f"{quote(field.get('key'))} is not metadata.name, the only field there is")


def resource_requirements(value: Json, path: Path) -> Problems:
    requests, limits = value.get("requests") or {}, value.get("limits") or {}
    for name, requested in requests.items():
        here, limit = (*path, "requests", name), limits.get(name)
        is_counted = "/" in name or name.startswith("hugepages-")
        if limit is None:
            if is_counted:
                text = f"{name} needs a limit of the same amount, without which the API server refuses the pod"
                yield Problem(Kind.CLEAR, here, text)
        elif is_counted and _amount(requested) != _amount(limit):
            yield Problem(Kind.VALUE, here, f"{quote(requested)} must be equal to the limit {limit}")
        elif _amount(requested) > _amount(limit):
            yield Problem(Kind.VALUE, here, f"{quote(requested)} is more than the limit {limit}")


def _amount(value: Any) -> Any:
    try:
        return quantity.parse(value)
    except quantity.QuantityError:
        return 0


def topology_spread_constraint(value: Json, path: Path) -> Problems:
    if value.get("minDomains") is not None and value.get("whenUnsatisfiable") == "ScheduleAnyway":
        yield Problem(Kind.VALUE, (*path, "minDomains"), "is allowed only where whenUnsatisfiable is DoNotSchedule")
    yield from label_keys(value, path)


def label_keys(value: Json, path: Path) -> Problems:
    """matchLabelKeys and mismatchLabelKeys, which add to a selector."""
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        if value.get(name) and value.get("labelSelector") is None:
            yield Problem(Kind.VALUE, (*path, name), "must not be set where labelSelector is not")


def volume(value: Json, path: Path) -> Problems:
    sources = [name for name, source in value.items() if name != "name" and source is not None]
    if len(sources) > 1:
        yield Problem(Kind.VALUE, path, f"has {' and '.join(sources)}: a volume has a single source")


def handler(value: Json, path: Path) -> Problems:
    """What a probe or a lifecycle hook does."""
    found = [name for name in _HANDLERS if value.get(name) is not None]
    if not found:
        yield missing(path, "one of exec, grpc, httpGet, tcpSocket is required")
    elif len(found) > 1:
        yield Problem(Kind.VALUE, path, f"has {' and '.join(found)}: only one of them is allowed")


def pod_spec(value: Json, path: Path) -> Problems:
    yield from _repeated_names(value, path)
    yield from _repeated_spread(value, path)
    if value.get("hostNetwork"):
        yield from _host_ports(value, path)


def _repeated_names(value: Json, path: Path) -> Problems:
    seen: set[str] = set()
    for kind in _CONTAINER_LISTS:
        for index, container in enumerate(listed(value, kind)):
            yield from _repeated(container.get("name"), seen, (*path, kind, index, "name"))
    volumes: set[str] = set()
    for index, item in enumerate(listed(value, "volumes")):
        yield from _repeated(item.get("name"), volumes, (*path, "volumes", index, "name"))


def _repeated(name: Any, seen: set[str], path: Path) -> Problems:
    if name and name in seen:
        yield Problem(Kind.VALUE, path, f"{quote(name)} is there already")
    seen.add(name)


def _repeated_spread(value: Json, path: Path) -> Problems:
    seen: set[tuple[Any, Any]] = set()
    for index, constraint in enumerate(listed(value, "topologySpreadConstraints")):
        key = constraint.get("topologyKey"), constraint.get("whenUnsatisfiable")
        if key in seen:
            here = (*path, "topologySpreadConstraints", index)
            yield Problem(Kind.VALUE, here, f"topologyKey {key[0]} with whenUnsatisfiable {key[1]} is there already")
        seen.add(key)


def _host_ports(value: Json, path: Path) -> Problems:
    for kind in _CONTAINER_LISTS:
        for number, container in enumerate(listed(value, kind)):
            for index, port in enumerate(listed(container, "ports")):
                host, own = port.get("hostPort"), port.get("containerPort")
                if host and host != own:
                    here = (*path, kind, number, "ports", index, "hostPort")
                    yield Problem(Kind.VALUE, here, f"{host} is not containerPort {own}, as hostNetwork asks for")


def mounts(spec: Json, path: Path, claims: Iterable[str] = ()) -> Problems:
    """Volumes that containers mount and that the pod does not have. ``claims``: volumes that its owner adds."""
    known = {str(item.get("name")) for item in listed(spec, "volumes")} | set(claims)
    for kind in _CONTAINER_LISTS:
        for number, container in enumerate(listed(spec, kind)):
            for field in ("volumeMounts", "volumeDevices"):
                for index, mount in enumerate(listed(container, field)):
                    name = mount.get("name")
                    if name and name not in known:
                        similar = nearest(name, known)
                        hint = f", did you mean {similar}?" if similar else ""
                        here = (*path, kind, number, field, index, "name")
                        yield Problem(Kind.VALUE, here, f"{quote(name)} is not a volume of the pod{hint}")


def environment_source(value: Json, path: Path) -> Problems:
    sources = [name for name in _ENVIRONMENT_SOURCES if value.get(name) is not None]
    if len(sources) != 1:
        found = f"has {' and '.join(sources)}" if sources else "has none"
        yield Problem(Kind.VALUE, path, f"{found}: exactly one of {', '.join(_ENVIRONMENT_SOURCES)} is needed")


def environment_from(value: Json, path: Path) -> Problems:
    if (value.get("configMapRef") is None) == (value.get("secretRef") is None):
        yield Problem(Kind.VALUE, path, "exactly one of configMapRef and secretRef is needed")


def persistent_volume_spec(value: Json, path: Path) -> Problems:
    sources = [name for name in _VOLUME_SOURCES if value.get(name) is not None]
    if len(sources) != 1:
        found = f"has {' and '.join(sources)}" if sources else "has none"
        yield Problem(Kind.VALUE, path, f"{found}: exactly one kind of volume is needed, such as csi")


def claim_spec(value: Json, path: Path) -> Problems:
    """Of a PersistentVolumeClaim, and of the claim of an ephemeral volume."""
    modes = value.get("accessModes") or ()
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        yield Problem(Kind.VALUE, (*path, "accessModes"), "ReadWriteOncePod may not be combined with other modes")
    here = (*path, "resources", "requests", "storage")
    size = ((value.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield missing(here)
    elif _amount(size) <= 0:
        yield Problem(Kind.VALUE, here, f"{quote(size)} is not more than 0")


CORE: Final = "io.k8s.api.core.v1."
RULES: Final[dict[str, Rule]] = {
    f"{CORE}Toleration": toleration,
    f"{CORE}NodeSelectorRequirement": selector_requirement,
    f"{CORE}NodeSelector": node_selector,
    f"{CORE}NodeSelectorTerm": node_selector_term,
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement": selector_requirement,
    f"{CORE}ResourceRequirements": resource_requirements,
    f"{CORE}TopologySpreadConstraint": topology_spread_constraint,
    f"{CORE}PodAffinityTerm": label_keys,
    f"{CORE}Volume": volume,
    f"{CORE}Probe": handler,
    f"{CORE}LifecycleHandler": handler,
    f"{CORE}EnvVarSource": environment_source,
    f"{CORE}EnvFromSource": environment_from,
    f"{CORE}PersistentVolumeSpec": persistent_volume_spec,
    f"{CORE}PodSpec": pod_spec,
    f"{CORE}PersistentVolumeClaimSpec": claim_spec,
}
