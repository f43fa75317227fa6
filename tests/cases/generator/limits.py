"""Cases in which NodePool limits bind, nearly bind, or only just do not; equal seeds make equal cases."""

from random import Random
from typing import Any

from tests.cases.generator.draft import AWS, Manifest

# cpu in millicores, memory in MiB, as they are written.
SIZES = (
    ("250m", 250, "256Mi", 256),
    ("500m", 500, "1Gi", 1024),
    ("1", 1000, "1Gi", 1024),
    ("1", 1000, "4Gi", 4096),
    ("2", 2000, "4Gi", 4096),
    ("2", 2000, "14Gi", 14336),
    ("4", 4000, "8Gi", 8192),
    ("900m", 900, "1800Mi", 1800),
    ("6", 6000, "24Gi", 24576),
)
CATALOG = "aws-us-east-1-tcmr"


def limits_case(seed: int) -> Manifest:
    """Pods of one to three sizes before one or two limited NodePools, some with minValues or a DaemonSet."""
    rng = Random(f"limits/{seed}")
    pods, cpu, memory = _pods(rng)
    share = rng.choice([0.6, 0.9, 1.05, 1.15, 1.3, 1.6, 2.2])
    some_cpu = {"cpu": str(max(2, round(cpu * share)))}
    limits = rng.choice(
        [
            some_cpu,
            {"memory": f"{max(4, round(memory * share * 1.1))}Gi"},
            some_cpu | {"memory": f"{max(8, round(memory * 2.5))}Gi"},
        ]
    )
    requirements = _requirements(rng)
    objects = [_pool("default", requirements, limits)]
    if rng.random() < 0.25:
        objects = [
            _pool("first", requirements, limits, weight=50),
            _pool("second", requirements, rng.choice([None, limits])),
        ]
    if rng.random() < 0.5:
        objects.append(_daemonset(rng.choice(["50m", "200m"])))
    return {"name": f"limits-{seed:04d}", "catalog": CATALOG, "objects": [*objects, *pods]}


def _pods(rng: Random) -> tuple[list[Manifest], float, float]:
    """The pods, and the cores and GiB that they request together."""
    pods, cpu, memory = list[Manifest](), 0.0, 0.0
    for number in range(rng.choice([1, 1, 2, 3])):
        cores, millicores, gibibytes, mebibytes = rng.choice(SIZES)
        replicas = rng.choice([3, 6, 10, 20, 30, 50])
        requests = {"cpu": cores, "memory": gibibytes}
        pods += [_pod(f"app-{number}", index, requests) for index in range(replicas)]
        cpu, memory = cpu + millicores / 1000 * replicas, memory + mebibytes / 1024 * replicas
    return pods, cpu, memory


def _pod(app: str, index: int, requests: dict[str, str]) -> Manifest:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app}
    metadata = {
        "name": f"{app}-{index}",
        "namespace": "default",
        "labels": {"app": app},
        "ownerReferences": [owner],
    }
    containers = [{"name": "app", "image": "i", "resources": {"requests": requests}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def _requirements(rng: Random) -> list[Manifest]:
    capacity_types = rng.choice([["on-demand"], ["spot"], ["on-demand", "spot"]])
    categories = rng.choice([["t", "c", "m", "r"], ["c", "m", "r"], ["m"], ["t"]])
    requirements: list[dict[str, Any]] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity_types},
        {"key": f"{AWS}/instance-category", "operator": "In", "values": categories},
    ]
    if rng.random() < 0.3:
        least = rng.choice([2, 3, 5])
        requirements.append({"key": f"{AWS}/instance-family", "operator": "Exists", "minValues": least})
    if rng.random() < 0.3:
        most = rng.choice(["9", "17", "33"])
        requirements.append({"key": f"{AWS}/instance-cpu", "operator": "Lt", "values": [most]})
    return requirements


def _pool(name: str, requirements: list[Manifest], limits: Manifest | None, weight: int | None = None) -> Manifest:
    node_class = {"group": AWS, "kind": "EC2NodeClass", "name": "default"}
    spec: Manifest = {"template": {"spec": {"nodeClassRef": node_class, "requirements": requirements}}}
    spec |= {"limits": limits} if limits else {}
    spec |= {"weight": weight} if weight else {}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def _daemonset(cpu: str) -> Manifest:
    requests = {"cpu": cpu, "memory": "64Mi"}
    containers = [{"name": "app", "image": "i", "resources": {"requests": requests}}]
    pod = {"tolerations": [{"operator": "Exists"}], "containers": containers}
    template = {"metadata": {"labels": {"ds": "agent"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"ds": "agent"}}, "template": template},
    }
