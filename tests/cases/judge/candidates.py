"""Which waiting pods no provisioner may place, because they ask for something that cannot be asked."""

import re
from collections.abc import Iterable

from tests.cases.judge.cluster import Cluster
from tests.cases.judge.pod import Pod
from tests.cases.judge.quantity import Raw
from tests.cases.judge.requirement import CAPACITY_TYPE, HOSTNAME, NODEPOOL

OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"}
PROVIDER_DOMAIN = "karpenter.k8s.aws"
WELL_KNOWN = {NODEPOOL, CAPACITY_TYPE} | {
    f"karpenter.k8s.aws/{name}"
    for name in (
        "capacity-reservation-id",
        "capacity-reservation-type",
        "capacity-reservation-interruptible",
        "instance-hypervisor",
        "instance-encryption-in-transit-supported",
        "instance-category",
        "instance-capability-flex",
        "instance-family",
        "instance-generation",
        "instance-size",
        "instance-local-nvme",
        "instance-cpu",
        "instance-cpu-manufacturer",
        "instance-cpu-sustained-clock-speed-mhz",
        "instance-memory",
        "instance-ebs-bandwidth",
        "instance-network-bandwidth",
        "instance-gpu-name",
        "instance-gpu-manufacturer",
        "instance-gpu-count",
        "instance-gpu-memory",
        "instance-accelerator-name",
        "instance-accelerator-manufacturer",
        "instance-accelerator-count",
        "instance-tenancy",
        "placement-group-id",
        "placement-group-partition",
        "ec2nodeclass",
    )
}
KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")


def faults(pod: Pod, cluster: Cluster) -> list[str]:
    """Why the pod is not a candidate although it waits; empty for a valid pod."""
    found = (
        [f"{NODEPOOL} DoesNotExist"]
        if any(r.key == NODEPOOL and r.operator == "DoesNotExist" for t in pod.terms for r in t)
        else []
    )
    catalog_keys = cluster.catalog_keys
    for raw in _requirements(pod.spec):
        found += _requirement_faults(raw, catalog_keys)
    for volume in pod.spec.get("volumes") or []:
        found += _volume_faults(volume, pod, cluster)
    if pod.spec.get("resourceClaims"):
        found.append("resourceClaims (DRA) are not provisioned for")
    return found


def _requirements(spec: Raw) -> Iterable[Raw]:
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield {"key": key, "operator": "In", "values": [str(value)]}
    required = (((spec.get("affinity") or {}).get("nodeAffinity")) or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or []:
        if term.get("matchFields"):
            yield {"key": "matchFields", "operator": "matchFields"}
        yield from term.get("matchExpressions") or []


def _requirement_faults(raw: Raw, catalog_keys: set[str]) -> list[str]:
    key, operator, values = raw["key"], raw["operator"], [str(v) for v in raw.get("values") or []]
    if operator not in OPERATORS:
        return [f"{key}: operator {operator} is not supported"]
    if not KEY.match(key):
        return [f"{key!r} is not a label key"]
    if key not in catalog_keys | WELL_KNOWN and (key == HOSTNAME or _restricted(key, catalog_keys)):
        return [f"{key} may not be selected on"]
    if operator == "In" and not values:
        return [f"{key} In needs a value"]
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and values[0].isdigit()):
        return [f"{key} {operator} needs one integer"]
    if any(not VALUE.match(v) for v in values):
        return [f"{key}: {values} is not a label value"]
    if key == CAPACITY_TYPE and operator == "In" and not {"spot", "on-demand", "reserved"} & set(values):
        return [f"{key}: {values} are all unknown"]
    return []


def _restricted(key: str, catalog_keys: set[str]) -> bool:
    """A provider's domain is closed only where the catalog is that provider's."""
    domain = key.partition("/")[0] if "/" in key else ""
    closed = {"karpenter.sh"} | {k.partition("/")[0] for k in catalog_keys if k.startswith(PROVIDER_DOMAIN + "/")}
    return any(domain == d or domain.endswith("." + d) for d in closed)


def _volume_faults(volume: Raw, pod: Pod, cluster: Cluster) -> list[str]:
    name = claim_name(volume, pod)
    if not name:
        return []
    claim = cluster.one("PersistentVolumeClaim", name, pod.namespace)
    if claim is None:
        return [f"PersistentVolumeClaim {name} is missing"]
    if claim["metadata"].get("deletionTimestamp"):
        return [f"PersistentVolumeClaim {name} is being deleted"]
    if (claim.get("status") or {}).get("phase") == "Lost":
        return [f"PersistentVolumeClaim {name} is Lost"]
    spec = claim.get("spec") or {}
    if spec.get("volumeName"):
        return _bound_faults(claim, spec["volumeName"], cluster)
    storage_class = cluster.one("StorageClass", spec.get("storageClassName") or "")
    if storage_class is None:
        return [f"PersistentVolumeClaim {name} is unbound and has no StorageClass"]
    if storage_class.get("volumeBindingMode", "Immediate") == "Immediate":
        return [f"PersistentVolumeClaim {name} is unbound with Immediate binding"]
    return []


def _bound_faults(claim: Raw, volume_name: str, cluster: Cluster) -> list[str]:
    volume = cluster.one("PersistentVolume", volume_name)
    if volume is None or volume["metadata"].get("deletionTimestamp"):
        return [f"PersistentVolume {volume_name} is missing or being deleted"]
    if "pv.kubernetes.io/bind-completed" not in (claim["metadata"].get("annotations") or {}):
        return [f"PersistentVolumeClaim {claim['metadata']['name']} is not bound yet"]
    return []


def claim_name(volume: Raw, pod: Pod) -> str:
    """Name of the PersistentVolumeClaim behind a pod's volume; '' for volumes without one."""
    if volume.get("persistentVolumeClaim"):
        return str(volume["persistentVolumeClaim"]["claimName"])
    return f"{pod.meta['name']}-{volume['name']}" if volume.get("ephemeral") else ""
