"""What a deployment may ask: spread, affinity, selectors, preferences, host ports, volumes."""

from collections.abc import Callable

from tests.cases.generator.draft import ARCH, AWS, CAPACITY_TYPE, HOSTNAME, NAMESPACES, ZONE, App, Draft, Manifest, need


def spread(d: Draft, app: App, key: str, skew: int, hard: float = 0.8) -> None:
    constraint: Manifest = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if d.chance(hard) else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app.name}},
    }
    if key == ZONE and constraint["whenUnsatisfiable"] == "DoNotSchedule" and d.chance(0.1):
        constraint["minDomains"] = d.rng.choice([2, 3])
    if d.quirk(0.15):
        constraint["nodeTaintsPolicy"] = "Honor"
    if d.quirk(0.1):
        constraint["nodeAffinityPolicy"] = "Ignore"
    if d.quirk(0.15):
        app.template["labels"]["pod-template-hash"] = "7d4b9"
        constraint["matchLabelKeys"] = ["pod-template-hash"]
    app.template["spec"].setdefault("topologySpreadConstraints", []).append(constraint)


def zone_spread(d: Draft, app: App) -> None:
    spread(d, app, ZONE, d.rng.choice([1, 1, 1, 2]))


def host_spread(d: Draft, app: App) -> None:
    skew = d.rng.choice([1, 1, 2, 3])
    spread(d, app, HOSTNAME, skew)
    app.exclusive = True


def capacity_spread(d: Draft, app: App) -> None:
    spread(d, app, CAPACITY_TYPE, d.rng.choice([1, 2]))


def affinity(app: App, kind: str) -> list[Manifest]:
    block = app.template["spec"].setdefault("affinity", {}).setdefault(kind, {})
    found: list[Manifest] = block.setdefault("requiredDuringSchedulingIgnoredDuringExecution", [])
    return found


def preferred(app: App, kind: str) -> list[Manifest]:
    block = app.template["spec"].setdefault("affinity", {}).setdefault(kind, {})
    found: list[Manifest] = block.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    return found


def term(target: App, key: str) -> Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": target.name}}}


def self_anti_affinity(d: Draft, app: App) -> None:
    affinity(app, "podAntiAffinity").append(term(app, HOSTNAME))
    app.exclusive = True


def zone_anti_affinity(d: Draft, app: App) -> None:
    affinity(app, "podAntiAffinity").append(term(app, ZONE))
    app.replicas = min(app.replicas, 3)


def anti_affinity_to_other(d: Draft, app: App) -> None:
    if d.apps:
        other = d.rng.choice(d.apps)
        affinity(app, "podAntiAffinity").append(
            reaching(d, app, other, term(other, d.rng.choice([HOSTNAME, HOSTNAME, ZONE])))
        )


def affinity_to_other(d: Draft, app: App) -> None:
    """To one that nothing keeps off a shared node or zone, mostly."""
    others = [a for a in d.apps if not a.exclusive and a.namespace in (app.namespace, "default")]
    if others:
        other = d.rng.choice(others)
        affinity(app, "podAffinity").append(reaching(d, app, other, term(other, d.rng.choice([HOSTNAME, ZONE, ZONE]))))
        app.replicas = min(app.replicas, 6)


def reaching(d: Draft, app: App, other: App, found: Manifest) -> Manifest:
    """Makes the term look into the other deployment's namespace."""
    if app.namespace != other.namespace:
        labels = NAMESPACES[other.namespace]
        found.update(
            {"namespaceSelector": {"matchLabels": labels}}
            if labels and d.chance(0.5)
            else {"namespaces": [other.namespace]}
        )
    elif d.quirk(0.1):
        found["namespaceSelector"] = {}
    return found


def self_affinity(d: Draft, app: App) -> None:
    affinity(app, "podAffinity").append(term(app, ZONE))


def selectors(d: Draft, app: App) -> None:
    """A nodeSelector or required node affinity on labels that exist."""
    found = [
        need(ZONE, "In", *d.some(d.facts.zones, 2)),
        need(ZONE, "NotIn", d.rng.choice(d.facts.zones)),
        need(CAPACITY_TYPE, "In", "on-demand"),
        need(ARCH, "In", "amd64"),
    ]
    if d.facts.aws:
        found += [
            need(f"{AWS}/instance-category", "In", *d.some(["c", "m", "r"], 2)),
            need(f"{AWS}/instance-generation", "Gt", "5"),
            need(f"{AWS}/instance-cpu", "Lt", "33"),
            need(f"{AWS}/instance-cpu-manufacturer", "In", d.rng.choice(["amd", "intel"])),
            need(f"{AWS}/instance-local-nvme", "DoesNotExist"),
            need(f"{AWS}/instance-memory", "Gt", "8192"),
        ]
    else:
        found += [need("integer", "Gt", "2"), need("size", "In", "small"), need("special", "DoesNotExist")]
    chosen = d.rng.sample(found, d.rng.choice([1, 1, 2]))
    if len(chosen) == 1 and chosen[0]["operator"] == "In" and len(chosen[0]["values"]) == 1:
        app.template["spec"].setdefault("nodeSelector", {})[chosen[0]["key"]] = chosen[0]["values"][0]
    else:
        node_affinity(app)["nodeSelectorTerms"].append({"matchExpressions": chosen})
    if d.quirk(0.15):
        node_affinity(app)["nodeSelectorTerms"].append({"matchExpressions": [need(CAPACITY_TYPE, "In", "on-demand")]})


def node_affinity(app: App) -> Manifest:
    block = app.template["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    found: Manifest = block.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    return found


def preferences(d: Draft, app: App) -> None:
    for weight in d.rng.sample([1, 10, 50, 100], d.rng.choice([1, 1, 2])):
        wish = d.rng.choice(
            [
                need(ZONE, "In", d.rng.choice(d.facts.zones)),
                need(CAPACITY_TYPE, "In", "spot"),
                need("example.com/none", "In", "x"),
            ]
        )
        preferred(app, "nodeAffinity").append({"weight": weight, "preference": {"matchExpressions": [wish]}})


def preferred_anti_affinity(d: Draft, app: App) -> None:
    preferred(app, "podAntiAffinity").append(
        {"weight": 100, "podAffinityTerm": term(app, d.rng.choice([HOSTNAME, ZONE]))}
    )


def host_ports(d: Draft, app: App) -> None:
    port = d.rng.choice([8080, 9090, 9100])
    app.template["spec"]["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port, "protocol": d.rng.choice(["TCP", "TCP", "UDP"])}
    ]
    app.replicas = min(app.replicas, 5)
    app.exclusive = True


def volumes(d: Draft, app: App) -> None:
    """A volume per pod: bound to a zonal PV, or waiting for its first consumer within the class's zones."""
    bound, zones = d.chance(0.6), d.some(d.facts.zones, 2)
    storage_class = f"{app.name}-zonal"
    if not bound:
        topology = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}] if d.chance(0.6) else None
        d.objects.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": storage_class},
                "provisioner": "ebs.csi.aws.com",
                "volumeBindingMode": "WaitForFirstConsumer",
                **({"allowedTopologies": topology} if topology else {}),
            }
        )

    def volume(pod: str, zone: str | None) -> tuple[Manifest, list[Manifest]]:
        claim = f"data-{pod}"
        spec: Manifest = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "8Gi"}},
        }
        made: list[Manifest] = [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": app.namespace},
                "spec": spec,
            }
        ]
        if bound or zone:
            spec["volumeName"] = f"pv-{pod}"
            made[0]["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            made[0]["status"] = {"phase": "Bound"}
            home = [need(ZONE, "In", zone or d.rng.choice(zones))]
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"pv-{pod}"},
                    "spec": {
                        "capacity": {"storage": "8Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{pod}"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": home}]}},
                    },
                }
            )
        return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}, made

    app.volume = volume
    app.replicas = min(app.replicas, 4)


FEATURES: tuple[tuple[float, Callable[[Draft, App], None]], ...] = (
    (0.28, zone_spread),
    (0.12, host_spread),
    (0.03, capacity_spread),
    (0.10, self_anti_affinity),
    (0.03, zone_anti_affinity),
    (0.05, anti_affinity_to_other),
    (0.07, affinity_to_other),
    (0.04, self_affinity),
    (0.15, selectors),
    (0.10, preferences),
    (0.06, preferred_anti_affinity),
    (0.04, host_ports),
    (0.06, volumes),
)
