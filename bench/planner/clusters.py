"""What stands around the pods of a problem: NodePools, DaemonSets, and clusters that are nearly full."""

from random import Random
from typing import Any, Final

from bench.planner.workloads import ZONE, ZONES, Deployment, deployments, manifests

type Json = dict[str, Any]

_AWS: Final = "karpenter.k8s.aws/"
_NODE: Final = "m5.4xlarge"


def pool(name: str, *requirements: Json, weight: int = 0, spot: bool = False) -> Json:
    """A NodePool for linux on amd64, on demand, or on demand and spot."""
    asked = [
        _in("kubernetes.io/arch", "amd64"),
        _in("kubernetes.io/os", "linux"),
        _in("karpenter.sh/capacity-type", *(("on-demand", "spot") if spot else ("on-demand",))),
    ]
    template = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [*asked, *requirements],
        "expireAfter": "720h",
    }
    spec: Json = {"template": {"spec": template}, "disruption": {"consolidateAfter": "0s"}}
    return {"metadata": {"name": name, "uid": name}, "spec": spec | ({"weight": weight} if weight else {})}


def limited_pool(limit_millicores: int) -> Json:
    """The documented NodePool with a limit of cpu."""
    limited = documented_pool()
    limited["spec"]["limits"] = {"cpu": f"{limit_millicores}m"}
    return limited


def documented_pool(name: str = "default", *, most_cores: int = 0, weight: int = 0, spot: bool = False) -> Json:
    """The NodePool of Karpenter's getting-started page: c, m and r of a generation above two."""
    asked = [_in(_AWS + "instance-category", "c", "m", "r"), _one(_AWS + "instance-generation", "Gt", "2")]
    if most_cores:
        asked.append(_one(_AWS + "instance-cpu", "Lt", str(most_cores + 1)))
    return pool(name, *asked, weight=weight, spot=spot)


def gpu_pool(name: str) -> Json:
    """The one pool that sells GPUs, of the lowest weight."""
    return pool(name, _in("node.kubernetes.io/instance-type", "g6.2xlarge"), weight=1)


def _in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def _one(key: str, operator: str, value: str) -> Json:
    return {"key": key, "operator": operator, "values": [value]}


def daemonsets() -> list[Json]:
    """Four, 200m and 300Mi together."""
    resources = {"requests": {"cpu": "50m", "memory": "75Mi"}}
    spec = {"containers": [{"name": "agent", "image": "agent", "resources": resources}]}
    return [
        {
            "metadata": {"name": f"agent-{number}", "namespace": "kube-system", "uid": f"agent-{number}"},
            "spec": {"template": {"metadata": {"labels": {"agent": str(number)}}, "spec": spec}},
        }
        for number in range(4)
    ]


def full_cluster(
    count: int, pools: list[str], types: dict[str, Json], seed: int
) -> tuple[list[Json], list[Json], list[Json]]:
    """So many nodes that are nearly full of micro services; nodes, claims and their pods."""
    dice = Random(f"cluster/{seed}")
    nodes, claims, running = [], [], list[Json]()
    room = _allocatable(types[_NODE])
    waiting = _running(dice)
    for number in range(count):
        name = f"ip-10-0-{number // 250}-{number % 250}"
        node, claim = _node(name, number, pools[number % len(pools)], types[_NODE], room)
        nodes.append(node)
        claims.append(claim)
        cores, memory = room[0] - 200, room[1] - 300
        while True:
            one, manifest = next(waiting)
            if one.millicores > cores or one.mebibytes > memory:
                break
            cores, memory = cores - one.millicores, memory - one.mebibytes
            manifest["metadata"]["name"] = f"running-{len(running)}"
            manifest["spec"]["nodeName"] = name
            manifest["status"] = {"phase": "Running"}
            running.append(manifest)
    return nodes, claims, running


def _running(dice: Random) -> Any:
    while True:
        for deployment in deployments("micro", 1000, dice):
            for manifest in manifests(deployment, dice):
                yield deployment, manifest


def _allocatable(type_: Json) -> tuple[int, int, int]:
    """Millicores, mebibytes and pods."""
    capacity, reserved = type_["capacity"], type_["overhead"]["kubeReserved"]
    cores = int(capacity["cpu"]) * 1000 - int(reserved["cpu"].removesuffix("m"))
    memory = int(capacity["memory"].removesuffix("Mi")) - int(reserved["memory"].removesuffix("Mi")) - 100
    return cores, memory, int(capacity["pods"])


def _node(name: str, number: int, pool_name: str, type_: Json, room: tuple[int, int, int]) -> tuple[Json, Json]:
    provider = f"aws:///{ZONES[number % 3]}/i-{number:017d}"
    labels = {one["key"]: one["values"][0] for one in type_["requirements"] if len(one.get("values") or ()) == 1}
    labels |= {
        "karpenter.sh/nodepool": pool_name,
        "topology.kubernetes.io/zone": ZONES[number % 3],
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "kubernetes.io/hostname": name,
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }
    metadata = {"name": name, "uid": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    allocatable = {"cpu": f"{room[0]}m", "memory": f"{room[1]}Mi", "pods": str(room[2])}
    capacity = {name: type_["capacity"][name] for name in ("cpu", "memory", "pods")}
    size = {"capacity": capacity, "allocatable": allocatable}
    ready = [{"type": "Ready", "status": "True"}]
    node = {"metadata": metadata, "spec": {"providerID": provider}, "status": size | {"conditions": ready}}
    steps = [{"type": one, "status": "True"} for one in ("Launched", "Registered", "Initialized")]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    claim = {
        "metadata": metadata | {"name": f"{pool_name}-{number}", "uid": f"claim-{number}"},
        "spec": {"nodeClassRef": reference, "requirements": [], "expireAfter": "720h"},
        "status": size | {"providerID": provider, "nodeName": name, "conditions": steps},
    }
    return node, claim


def gpu_shape() -> list[Deployment]:
    """Pods of one GPU each, and a few small ones that must not starve behind them."""
    return [
        Deployment("ml", 2065, 6000, 24576, further={"gpus": "1", "size": "large"}),
        Deployment("web", 105, 2000, 8192, further={"size": "small"}),
    ]


def gpu_type() -> Json:
    """g6.2xlarge: 8 cpu, 32 GiB and one GPU, beside the c, m and r types of the catalog."""
    zones = [
        {"requirements": {"karpenter.sh/capacity-type": "on-demand", ZONE: zone}, "price": 0.9776} for zone in ZONES
    ]
    stated = {
        "node.kubernetes.io/instance-type": "g6.2xlarge",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        _AWS + "instance-category": "g",
        _AWS + "instance-family": "g6",
        _AWS + "instance-generation": "6",
        _AWS + "instance-cpu": "8",
        _AWS + "instance-gpu-count": "1",
    }
    return {
        "name": "g6.2xlarge",
        "requirements": [_in(key, value) for key, value in stated.items()],
        "capacity": {"cpu": "8", "memory": "30310Mi", "pods": "58", "ephemeral-storage": "20Gi", "nvidia.com/gpu": "1"},
        "overhead": {"kubeReserved": {"cpu": "90m", "memory": "893Mi"}, "evictionThreshold": {"memory": "100Mi"}},
        "offerings": zones,
    }
