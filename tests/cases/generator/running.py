"""Nodes of a random case that run already, are on their way up or in flight, and the pods on them."""

from tests.cases.generator.draft import (
    AWS,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    UNASKED,
    ZONE,
    App,
    Draft,
    Manifest,
    need,
)


def running_cluster(d: Draft, nodes: int) -> None:
    """Nodes of the pools with pods of the waiting deployments on them, some on their way up, some in flight."""
    for i in range(nodes):
        name = f"node-{i}"
        chosen = d.rng.choice(d.pools)
        found = None if d.chance(0.1) else chosen
        instance_type, zone, capacity_type = launched(d, chosen)
        labels = node_labels(d, found, instance_type, zone, capacity_type)
        state = d.rng.choices(
            ["ready", "starting", "in-flight", "cordoned", "leaving"], [75, 8, 9, 4, 4 if d.profile == "full" else 0]
        )[0]
        if found is None and state in ("starting", "in-flight", "leaving"):
            state = "ready"
        place_node(d, name, state, found, labels, instance_type)


def launched(d: Draft, chosen: Manifest) -> tuple[Manifest, str, str]:
    """A middling type, zone and capacity type the pool could have launched."""
    demands = {r["key"]: r for r in chosen["spec"]["template"]["spec"]["requirements"]}
    zones = demands.get(ZONE, {}).get("values") or d.facts.zones
    kinds = demands.get(CAPACITY_TYPE, {}).get("values") or ["on-demand"]
    small = [t for t in d.facts.types.values() if fits_pool(t, demands) and 2 <= float(t["capacity"]["cpu"]) <= 16]
    choices = [
        (t, o["requirements"])
        for t in d.rng.sample(small, min(12, len(small)))
        for o in t["offerings"]
        if o["requirements"][ZONE] in zones and o["requirements"][CAPACITY_TYPE] in kinds
    ]
    instance_type, offering = (
        d.rng.choice(choices)
        if choices
        else (next(iter(d.facts.types.values())), {ZONE: zones[0], CAPACITY_TYPE: kinds[0]})
    )
    return instance_type, offering[ZONE], offering[CAPACITY_TYPE]


def fits_pool(instance_type: Manifest, demands: dict[str, Manifest]) -> bool:
    values = {r["key"]: r.get("values") or [] for r in instance_type["requirements"]}
    return (
        all(r["operator"] != "In" or not values.get(k) or set(values[k]) & set(r["values"]) for k, r in demands.items())
        and all(
            r["operator"] != "Gt" or int(values[k][0]) > int(r["values"][0])
            for k, r in demands.items()
            if values.get(k)
        )
        and all(
            r["operator"] != "Lt" or int(values[k][0]) < int(r["values"][0])
            for k, r in demands.items()
            if values.get(k)
        )
    )


def node_labels(d: Draft, found: Manifest | None, instance_type: Manifest, zone: str, capacity_type: str) -> Manifest:
    labels = {
        r["key"]: r["values"][0]
        for r in instance_type["requirements"]
        if r["operator"] == "In" and len(r["values"]) == 1 and not r["key"].endswith(UNASKED)
    }
    labels |= {ZONE: zone, CAPACITY_TYPE: capacity_type, "kubernetes.io/os": "linux"}
    if found:
        template = found["spec"]["template"]
        labels |= {"karpenter.sh/nodepool": found["metadata"]["name"], **template.get("metadata", {}).get("labels", {})}
        labels |= {
            r["key"]: r["values"][0] for r in template["spec"]["requirements"] if r["key"].startswith("example.com/")
        }
    else:
        labels.pop(CAPACITY_TYPE)
    return labels


def place_node(
    d: Draft, name: str, state: str, found: Manifest | None, labels: Manifest, instance_type: Manifest
) -> None:
    capacity = instance_type["capacity"]
    allocatable = {k: v if k != "cpu" else f"{int(float(v) * 1000) - 120}m" for k, v in capacity.items()}
    allocatable["memory"] = f"{int(mebi(capacity['memory']) * 0.9)}Mi"
    taints = list((found or {}).get("spec", {}).get("template", {}).get("spec", {}).get("taints", []))
    startup = list((found or {}).get("spec", {}).get("template", {}).get("spec", {}).get("startupTaints", []))
    status = {"capacity": capacity, "allocatable": allocatable}
    if found and state in ("starting", "in-flight", "leaving"):
        d.objects.append(nodeclaim(name, found, labels, taints, startup, status, state))
    if state == "in-flight":
        return
    if found:
        labels = (
            labels
            | {"karpenter.sh/registered": "true"}
            | ({} if state == "starting" else {"karpenter.sh/initialized": "true"})
        )
    if state == "starting":
        taints += [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, *startup]
    node: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | {HOSTNAME: name}},
        "spec": {"providerID": f"aws:///{name}"},
        "status": {**status, "conditions": [{"type": "Ready", "status": "False" if state == "starting" else "True"}]},
    }
    if state == "cordoned":
        node["spec"]["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if taints:
        node["spec"]["taints"] = taints
    d.objects.append(node)
    if d.constrained and d.chance(0.3):
        d.objects.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": {"name": name},
                "spec": {
                    "drivers": [
                        {"name": "ebs.csi.aws.com", "nodeID": name, "allocatable": {"count": d.rng.choice([1, 3, 25])}}
                    ]
                },
            }
        )
    populate(d, name, labels, taints, allocatable, state)


def nodeclaim(
    name: str,
    found: Manifest,
    labels: Manifest,
    taints: list[Manifest],
    startup: list[Manifest],
    status: Manifest,
    state: str,
) -> Manifest:
    meta: Manifest = {"name": f"claim-{name}", "labels": labels}
    if state == "leaving":
        meta |= {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": ["karpenter.sh/termination"]}
    spec: Manifest = {
        "nodeClassRef": {"group": AWS, "kind": "EC2NodeClass", "name": "default"},
        "requirements": [need(k, "In", labels[k]) for k in (INSTANCE_TYPE, ZONE, CAPACITY_TYPE)],
    }
    if taints:
        spec["taints"] = list(taints)
    if startup:
        spec["startupTaints"] = startup
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": meta,
        "spec": spec,
        "status": {"providerID": f"aws:///{name}", **({} if state == "in-flight" else {"nodeName": name}), **status},
    }


def populate(d: Draft, node: str, labels: Manifest, taints: list[Manifest], allocatable: Manifest, state: str) -> None:
    """DaemonSet pods, then replicas of the waiting deployments until a random share of the node is used.

    A cordon came after the DaemonSet pods did; a starting node may not have all of them yet.
    """
    cpu, memory = float(allocatable["cpu"][:-1]), mebi(allocatable["memory"])
    slots = int(allocatable["pods"])
    for daemon in d.daemons:
        template = daemon["spec"]["template"]["spec"]
        wanted = all(labels.get(k) == v for k, v in template.get("nodeSelector", {}).items()) and (
            template.get("tolerations") or not taints or state == "cordoned"
        )
        if wanted and (state != "starting" or d.chance(0.5)):
            name = daemon["metadata"]["name"]
            d.objects.append(
                running_pod(f"{name}-{node}", "kube-system", {"ds": name}, template, node, owner("DaemonSet", name))
            )
            cpu, memory, slots = spend(template, cpu, memory, slots)
    target = d.rng.uniform(0.1, 0.9) * cpu
    if state == "starting":
        return
    apps = [a for a in d.apps if harmless(a, labels, taints)]
    d.rng.shuffle(apps)
    for app in apps:
        for i in range(1 if app.exclusive else d.rng.randint(1, 3)):
            left = spend(app.template["spec"], cpu, memory, slots)
            if min(left) < 0 or left[0] < target * 0.2:
                break
            cpu, memory, slots = left
            d.objects.extend(one_pod(d, app, f"{app.name}-on-{node}-{i}", node, labels[ZONE]))
        if cpu < target:
            break


def spend(spec: Manifest, cpu: float, memory: float, slots: int) -> tuple[float, float, int]:
    for c in spec["containers"] + spec.get("initContainers", []):
        cpu -= millicores(c["resources"]["requests"]["cpu"])
        memory -= mebi(c["resources"]["requests"]["memory"])
    return cpu, memory, slots - 1


def harmless(app: App, labels: Manifest, taints: list[Manifest]) -> bool:
    """Whether replicas may already run on the node without breaking the rules that the deployment itself states."""
    spec = app.template["spec"]
    rules = spec.get("affinity", {})
    if any(
        "requiredDuringSchedulingIgnoredDuringExecution" in rules.get(kind, {})
        for kind in ("nodeAffinity", "podAffinity")
    ):
        return False
    if any(
        t["topologyKey"] != HOSTNAME or t["labelSelector"]["matchLabels"]["app"] != app.name
        for t in rules.get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    ):
        return False
    if (
        (taints and not spec.get("tolerations"))
        or spec.get("schedulingGates")
        or any("hostPort" in p for p in spec["containers"][0].get("ports", []))
    ):
        return False
    return all(labels.get(k) == v for k, v in spec.get("nodeSelector", {}).items()) and "volumes" not in spec


def owner(kind: str, name: str) -> list[Manifest]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name}]


def running_pod(
    name: str, namespace: str, labels: Manifest, spec: Manifest, node: str, owners: list[Manifest]
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners},
        "spec": {**spec, "nodeName": node},
        "status": {"phase": "Running"},
    }


def one_pod(d: Draft, app: App, name: str, node: str | None = None, zone: str | None = None) -> list[Manifest]:
    """One replica, waiting or running, preceded by the volume it owns."""
    spec = dict(app.template["spec"])
    made: list[Manifest] = []
    if app.volume:
        mount, made = app.volume(name, zone)
        spec["volumes"] = [*spec.get("volumes", []), mount]
    owners = owner("ReplicaSet", app.name)
    if node:
        return [*made, running_pod(name, app.namespace, app.template["labels"], spec, node, owners)]
    meta = {"name": name, "namespace": app.namespace, "labels": app.template["labels"], "ownerReferences": owners}
    return [*made, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}]


def millicores(text: str) -> float:
    return float(text[:-1]) if text.endswith("m") else float(text) * 1000


def mebi(text: str) -> float:
    units = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
    return float(text[:-2]) * units[text[-2:]]
