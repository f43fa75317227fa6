"""NodePools and DaemonSets of a random case."""

from tests.cases.generator.draft import ARCH, AWS, CAPACITY_TYPE, ZONE, Draft, Manifest, container, need, taint


def nodepools(d: Draft) -> None:
    """One general pool that takes most pods, and up to three special ones."""
    d.pools.append(pool(d, "general", requirements=general_requirements(d), weight=d.rng.choice([None, None, 10])))
    special = [team_pool, tainted_pool, spot_pool]
    for make in d.rng.sample(
        special, d.rng.choice([0, 0, 1, 1, 2, 3]) if d.profile != "plain" else d.rng.choice([0, 0, 1])
    ):
        d.pools.append(make(d))
    if d.quirk(0.15):
        broken = pool(d, "broken", requirements=[], weight=50)
        broken["status"] = {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "NodeClassNotReady",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        }
        d.pools.append(broken)
    d.objects += d.pools


def pool(
    d: Draft,
    name: str,
    requirements: list[Manifest],
    labels: Manifest | None = None,
    taints: list[Manifest] | None = None,
    weight: int | None = None,
    limits: Manifest | None = None,
) -> Manifest:
    template: Manifest = {
        "spec": {
            "nodeClassRef": {"group": AWS, "kind": "EC2NodeClass", "name": "default"},
            "requirements": requirements,
        }
    }
    if labels:
        template["metadata"] = {"labels": labels}
    if taints:
        template["spec"]["taints"] = taints
    if d.quirk(0.2):
        template["spec"]["startupTaints"] = [{"key": "example.com/agent-not-ready", "effect": "NoSchedule"}]
    spec: Manifest = {"template": template}
    if weight:
        spec["weight"] = weight
    if limits:
        spec["limits"] = limits
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def general_requirements(d: Draft) -> list[Manifest]:
    found = [need(CAPACITY_TYPE, "In", *d.rng.choice([["on-demand"], ["on-demand", "spot"], ["on-demand", "spot"]]))]
    if d.facts.aws:
        found.append(need(f"{AWS}/instance-category", "In", "c", "m", "r"))
        found.append(need(f"{AWS}/instance-generation", "Gt", d.rng.choice(["2", "4", "5"])))
        if d.chance(0.5):
            found.append(need(f"{AWS}/instance-cpu", "Lt", d.rng.choice(["17", "33", "65", "97"])))
        if d.constrained and d.chance(0.15):
            found.append({**need(f"{AWS}/instance-family", "Exists"), "minValues": d.rng.choice([2, 5, 10])})
    elif d.chance(0.5):
        found.append(need("integer", "Lt", d.rng.choice(["9", "17", "65"])))
    if d.constrained and d.chance(0.15):
        found.append(need(ZONE, "In", *d.some(d.facts.zones)))
    if d.quirk(0.2):
        found.append(need("example.com/rack", "In", "r1", "r2"))
    return found


def team_pool(d: Draft) -> Manifest:
    limits = {"cpu": str(d.rng.choice([8, 32, 100]))} if d.chance(0.4) else None
    if d.quirk(0.1):
        limits = {"nodes": str(d.rng.choice([1, 2, 3]))}
    return pool(
        d,
        "team-a",
        [need(CAPACITY_TYPE, "In", "on-demand"), need(ZONE, "In", *d.some(d.facts.zones))],
        {"team": "a"},
        weight=d.rng.choice([None, 5, 20]),
        limits=limits,
        taints=[taint("team", "a")] if d.chance(0.5) else None,
    )


def tainted_pool(d: Draft) -> Manifest:
    effect = d.rng.choice(["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"])
    return pool(
        d,
        "dedicated",
        [need(CAPACITY_TYPE, "In", "on-demand", "spot")],
        {"dedicated": "batch"},
        [taint("dedicated", "batch", effect)],
        weight=d.rng.choice([None, 50]),
        limits={"cpu": "200", "memory": "1Ti"} if d.chance(0.3) else None,
    )


def spot_pool(d: Draft) -> Manifest:
    requirements = [need(CAPACITY_TYPE, "In", "spot")]
    if d.facts.aws:
        requirements.append(
            need(f"{AWS}/instance-family", "In", *d.rng.sample(d.facts.values[f"{AWS}/instance-family"], 12))
        )
    return pool(d, "spot", requirements, {"lifecycle": "spot"}, weight=d.rng.choice([None, 1, 30]))


def daemon_sets(d: Draft) -> None:
    for name in d.rng.sample(["cni", "logs", "metrics", "storage"], d.rng.randint(0, 3)):
        spec: Manifest = {
            "containers": [container(d.rng.choice(["20m", "50m", "100m"]), d.rng.choice(["32Mi", "64Mi", "150Mi"]))]
        }
        if d.chance(0.6):
            spec["tolerations"] = [{"operator": "Exists"}]
        if d.constrained and d.chance(0.3):
            spec["nodeSelector"] = d.rng.choice(
                [{ARCH: "amd64"}, {"kubernetes.io/os": "linux"}, {"team": "a"}, {ZONE: d.facts.zones[0]}]
            )
        if d.quirk(0.2):
            spec["containers"][0]["ports"] = [{"containerPort": 9100, "hostPort": 9100}]
        d.daemons.append(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": name, "namespace": "kube-system"},
                "spec": {
                    "selector": {"matchLabels": {"ds": name}},
                    "template": {"metadata": {"labels": {"ds": name}}, "spec": spec},
                },
            }
        )
    d.objects += d.daemons
