"""Random but realistic cases for judging planners; equal seeds make equal cases.

Profiles: ``plain`` (micro-services, DaemonSets, NodePools), ``constrained`` (plus spread, affinity, selectors, taints,
volumes, host ports), ``existing`` (plain plus running nodes, pods and NodeClaims in flight), ``full`` (all of it, and
odd settings). Most pods can be scheduled; a few in a hundred cannot.
"""

from random import Random
from typing import Any

import yaml

from tests.cases.generator.deployments import applications
from tests.cases.generator.draft import CATALOGS, NAMESPACES, Draft, Manifest, facts
from tests.cases.generator.pools import daemon_sets, nodepools
from tests.cases.generator.running import one_pod, running_cluster


def case(seed: int, profile: str, most_pods: int) -> Manifest:
    """The case document for a seed, with so many waiting pods at most."""
    rng = Random(f"{profile} {seed}")
    d = Draft(rng, profile, facts(rng.choices([c for c, _ in CATALOGS], [w for _, w in CATALOGS])[0]))
    if most_pods > 200:
        d.facts = facts("aws-us-east-1-cmr")
    if d.quirk(0.1):
        d.settings["preferencePolicy"] = "Ignore"
    d.objects += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": labels}}
        for n, labels in NAMESPACES.items()
    ]
    nodepools(d)
    daemon_sets(d)
    pods = rng.randint(max(1, most_pods // 5), most_pods) if most_pods <= 200 else int(rng.uniform(0.9, 1) * most_pods)
    applications(d, pods)
    if d.populated:
        running_cluster(d, max(1, min(rng.randint(1, 8), pods // 4) if pods <= 200 else pods // 60))
    for app in d.apps:
        for i in range(app.replicas):
            d.objects += one_pod(d, app, f"{app.name}-{i}")
    waiting = sum(a.replicas for a in d.apps)
    about = f"Random case, profile {profile}, seed {seed}: {waiting} waiting pods of {len(d.apps)} deployments."
    made: Manifest = {"name": f"{profile}-{seed:04}", "about": about, "catalog": d.facts.name}
    if d.settings:
        made["settings"] = d.settings
    return {**made, "objects": d.objects}


class Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # libyaml if PyYAML has it
    """Never writes anchors; equal sub-objects are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def text(made: Manifest) -> str:
    """YAML with one object per line, which keeps files small and diffs readable."""
    head = yaml.dump({k: v for k, v in made.items() if k != "objects"}, Dumper=Plain, sort_keys=False, width=10**9)
    lines = [
        yaml.dump(o, Dumper=Plain, sort_keys=False, default_flow_style=True, width=10**9).strip()
        for o in made["objects"]
    ]
    return head + "objects:\n" + "".join(f"- {line}\n" for line in lines)


def small(seed: int, profile: str, pods: int, kilobytes: float) -> str:
    """A case's text, drawn again with fewer pods until it is this small."""
    document = text(case(seed, profile, pods))
    while len(document) > kilobytes * 1000 and pods > 5:
        pods = pods * 4 // 5
        document = text(case(seed, profile, pods))
    return document
