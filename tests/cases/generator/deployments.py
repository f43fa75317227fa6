"""Deployments of a random case, of which a few in a hundred cannot be scheduled."""

import math

from tests.cases.generator.draft import HOSTNAME, NAMESPACES, ZONE, App, Draft, Manifest, container, need
from tests.cases.generator.rules import FEATURES, node_affinity


def applications(d: Draft, pods: int) -> None:
    """Deployments until about `pods` pods wait."""
    scale = 4 if pods <= 100 else 12
    while sum(a.replicas for a in d.apps) < pods:
        left = pods - sum(a.replicas for a in d.apps)
        replicas = max(1, min(left, round(d.rng.lognormvariate(math.log(scale), 0.8))))
        d.apps.append(application(d, f"app-{len(d.apps)}", replicas))
    hopeless = [a for a in d.apps if a.replicas <= max(2, pods // 12)]
    if hopeless and d.chance(0.75):
        spoil(d, d.rng.choice(hopeless))


def application(d: Draft, name: str, replicas: int) -> App:
    namespace = d.rng.choices(list(NAMESPACES), [7, 2, 1])[0]
    cpu, memory = size(d)
    spec: Manifest = {"containers": [container(cpu, memory)]}
    app = App(
        name, namespace, {"labels": {"app": name, "tier": d.rng.choice(["web", "api", "job"])}, "spec": spec}, replicas
    )
    if d.chance(0.1):
        spec["initContainers"] = [{**container(d.rng.choice(["50m", "500m"]), "64Mi", "init")}]
    if d.chance(0.08):
        spec.setdefault("initContainers", []).append({**container("30m", "48Mi", "proxy"), "restartPolicy": "Always"})
    if d.quirk(0.04):
        spec["overhead"] = {"cpu": "100m", "memory": "64Mi"}
    tolerations(d, app)
    if d.constrained:
        for chance, feature in FEATURES:
            if d.chance(chance):
                feature(d, app)
    return app


def size(d: Draft) -> tuple[str, str]:
    """CPU and memory of a micro-service, log-normal around 250m and 2.6 GiB per core, most of them round numbers."""
    most = {"karpenter-fake": 1.5, "karpenter-fake-10": 4.0}.get(d.facts.name, 12.0)
    cores = min(most, d.rng.lognormvariate(math.log(0.25), 1.0))
    gib = min(most * (0.8 if d.facts.name == "karpenter-fake" else 2), cores * d.rng.lognormvariate(math.log(2.6), 0.6))
    if d.chance(0.7):
        cores = min((0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8), key=lambda x: abs(math.log(x / cores)))
        gib = min((0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16), key=lambda x: abs(math.log(x / gib)))
    return f"{max(10, round(min(cores, most) * 1000))}m", f"{max(32, round(gib * 1024))}Mi"


def tolerations(d: Draft, app: App) -> None:
    """About a third of the deployments tolerate some pool's taints; half of those insist on that pool."""
    tainted = [p for p in d.pools if p["spec"]["template"]["spec"].get("taints")]
    if not tainted or not d.chance(0.35):
        return
    chosen = d.rng.choice(tainted)["spec"]["template"]
    first = chosen["spec"]["taints"][0]
    app.template["spec"]["tolerations"] = [
        d.rng.choice(
            [{"key": first["key"], "operator": "Exists"}, {**first, "operator": "Equal"}, {"operator": "Exists"}]
        )
    ]
    if d.chance(0.5) and chosen.get("metadata"):
        app.template["spec"]["nodeSelector"] = dict(chosen["metadata"]["labels"])


def spoil(d: Draft, app: App) -> None:
    """Makes a deployment one that cannot be scheduled, or that is no candidate at all."""
    spec = app.template["spec"]
    match d.rng.randrange(7):
        case 0:
            spec["containers"][0]["resources"]["requests"]["cpu"] = "900"
        case 1:
            spec["nodeSelector"] = {ZONE: "nowhere-1z"}
        case 2:
            spec["nodeSelector"] = {"example.com/unknown": "x"}
        case 3:
            spec["nodeSelector"] = {HOSTNAME: "node-0"}
        case 4:
            spec["volumes"] = [{"name": "lost", "persistentVolumeClaim": {"claimName": "never-made"}}]
        case 5:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        case 6:
            node_affinity(app)["nodeSelectorTerms"] = [
                {"matchExpressions": [need("karpenter.sh/nodepool", "DoesNotExist")]}
            ]
