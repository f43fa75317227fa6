"""What our definitions promise: what is accepted, what is filled in, what `kubectl get` shows."""

import json
import string
from pathlib import Path
from typing import Any

import pytest

from local.kubernetes.api import ApiError
from spotwright import manifests
from tests.manifests.cluster import Cluster
from tests.manifests.samples import COLLECTIONS, SAMPLES, Object, changed

EXAMPLES = Path(__file__).parents[2] / "examples"
VALUES = {
    "CLUSTER_NAME": "dev-eks-cluster",
    "EKS_CLUSTER_NAME": "dev-eks-cluster",
    "KARPENTER_NODE_ROLE": "KarpenterNodeRole-dev-eks-cluster",
    "ALIAS_VERSION": "v20250821",
}


def published(name: str) -> str:
    return string.Template((EXAMPLES / name).read_text()).substitute(VALUES)


def stored(cluster: Cluster, kind: str, path: str = "", value: Any = None) -> Object:
    """What the API server makes of a sample with one place changed."""
    sample = changed(SAMPLES[kind](), path, value) if path else SAMPLES[kind]()
    return cluster.plane.api.create(f"{COLLECTIONS[kind]}?dryRun=All&fieldValidation=Strict", sample)


@pytest.mark.parametrize("name", ["spot-t3a.yaml", "scale-up-cmr.yaml", "basic-gen6.yaml", "spot-to-spot.yaml"])
def test_published_manifests_apply_unchanged(cluster: Cluster, name: str) -> None:
    applied = cluster.kubectl("apply", "-f", "-", text=published(name))
    assert applied.returncode == 0, applied.stderr
    assert applied.stderr == ""
    cluster.kubectl("delete", "--wait=false", "-f", "-", text=published(name))


def test_the_seoul_manifest_is_refused_naming_its_unknown_field(cluster: Cluster) -> None:
    cluster.kubectl("delete", "nodepool", "default", "--ignore-not-found")
    applied = cluster.kubectl("apply", "-f", "-", text=published("t4g-seoul.yaml"))
    assert applied.returncode != 0
    assert 'unknown field "spec.limit"' in applied.stderr
    assert cluster.objects.read(changed(SAMPLES["NodePool"](), "metadata.name", "default")) is None


def test_the_seoul_manifest_is_let_in_with_a_warning_and_remembers_what_was_written(cluster: Cluster) -> None:
    applied = cluster.kubectl("apply", "--validate=warn", "-f", "-", text=published("t4g-seoul.yaml"))
    assert applied.returncode == 0, applied.stderr
    assert 'unknown field "spec.limit"' in applied.stderr
    pool = cluster.objects.read(changed(SAMPLES["NodePool"](), "metadata.name", "default"))
    assert pool is not None
    assert not {"limit", "weight"} & set(pool["spec"])
    written = json.loads(pool["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    assert written["spec"]["limit"] == {"cpu": 20, "memory": "80Gi"}
    assert written["spec"]["weight"] is None
    cluster.kubectl("delete", "-f", "-", text=published("t4g-seoul.yaml"))


def test_a_class_without_selectors_is_refused_naming_them(cluster: Cluster) -> None:
    text = published("spot-to-spot.yaml").split("  subnetSelectorTerms:")[0]
    applied = cluster.kubectl("apply", "-f", "-", text=text)
    assert applied.returncode != 0
    assert "spec.subnetSelectorTerms: Required value" in applied.stderr
    assert "spec.securityGroupSelectorTerms: Required value" in applied.stderr
    cluster.kubectl("delete", "-f", "-", text=text)


def test_an_old_provisioner_is_an_unknown_kind(cluster: Cluster) -> None:
    applied = cluster.kubectl("apply", "-f", "-", text=published("provisioner-v1alpha5.yaml"))
    assert applied.returncode != 0
    said = 'no matches for kind "Provisioner" in version "karpenter.sh/v1alpha5"'
    assert said in applied.stderr
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    assert page.index(said) < page.index("`spotwright convert`")


def test_defaults_of_a_nodepool(cluster: Cluster) -> None:
    spec = stored(cluster, "NodePool")["spec"]
    assert spec["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert spec["template"]["spec"]["expireAfter"] == "720h"
    assert "weight" not in spec


def test_defaults_inside_a_disruption_that_is_written_in_part(cluster: Cluster) -> None:
    disruption = stored(cluster, "NodePool", "spec.disruption", {"consolidationPolicy": "WhenEmpty"})["spec"][
        "disruption"
    ]
    assert disruption["consolidateAfter"] == "0s"
    assert disruption["budgets"] == [{"nodes": "10%"}]
    no_budget = stored(cluster, "NodePool", "spec.disruption", {"budgets": []})["spec"]["disruption"]
    assert no_budget["budgets"] == []
    blank = stored(cluster, "NodePool", "spec.disruption.budgets", [{"reasons": ["Empty"]}])["spec"]["disruption"]
    assert blank["budgets"] == [{"nodes": "10%", "reasons": ["Empty"]}]


def test_defaults_of_a_claim_and_of_a_class(cluster: Cluster) -> None:
    assert stored(cluster, "NodeClaim")["spec"]["expireAfter"] == "720h"
    options = {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1}
    assert stored(cluster, "EC2NodeClass")["spec"]["metadataOptions"] == options | {"httpTokens": "required"}
    written = stored(cluster, "EC2NodeClass", "spec.metadataOptions", {"httpTokens": "optional"})
    assert written["spec"]["metadataOptions"] == options | {"httpTokens": "optional"}


GOOD: list[tuple[str, str, Any]] = [
    ("NodePool", "spec.limits", {"cpu": 1000, "memory": "1.5Gi", "nvidia.com/gpu": "2", "nodes": 3}),
    ("NodePool", "spec.replicas", 0),
    ("NodePool", "spec.replicas", 1000),
    ("NodePool", "spec.disruption.consolidateAfter", "Never"),
    ("NodePool", "spec.disruption.consolidateAfter", "30s"),
    ("NodePool", "spec.disruption.consolidateAfter", "1h30m5s"),
    ("NodePool", "spec.disruption.consolidationPolicy", "Balanced"),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}]),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "100%", "schedule": "@daily", "duration": "1h30m0s"}]),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "5", "schedule": "@daily", "duration": "2h20m"}]),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "0%", "schedule": "@daily", "duration": "2h20m0s"}]),
    ("NodePool", "spec.template.spec.expireAfter", "Never"),
    ("NodePool", "spec.template.spec.expireAfter", "30s"),
    ("NodePool", "spec.template.spec.expireAfter", "1h30m5s"),
    ("NodePool", "spec.template.spec.terminationGracePeriod", "1h30m"),
    ("NodePool", "spec.template.spec.taints", [{"key": "a.b/c", "value": "d", "effect": "NoExecute"}]),
    ("NodePool", "spec.template.metadata.labels", {"karpenter.k8s.aws/instance-family": "m5", "notkarpenter.sh/a": ""}),
    ("NodePool", "spec.template.metadata.labels", {
        "kops.k8s.io/gpu": "1", "node-restriction.kubernetes.io/x": "y", "kubernetes.io/custom": "z",
    }),
    ("NodePool", "spec.template.spec.requirements", [{"key": "a", "operator": "NotIn", "values": []}]),
    ("NodePool", "spec.template.spec.requirements", [
        {"key": "kops.k8s.io/gpu", "operator": "Exists"},
        {"key": "node-restriction.kubernetes.io/x", "operator": "Exists"},
        {"key": "kubernetes.io/custom", "operator": "Exists"},
        # Unlike Karpenter, whose rule takes every domain that ends like its own for a restricted one.
        {"key": "notkarpenter.sh/x", "operator": "Exists"},
    ]),
    ("NodePool", "spec.template.spec.requirements", [
        {"key": "a", "operator": "In", "values": [f"v{number}" for number in range(50)], "minValues": 50},
        {"key": "b", "operator": "In", "values": [f"v{number}" for number in range(90)]},
    ]),
    *(
        ("NodeOverlay", "spec.priceAdjustment", adjustment)
        for adjustment in ("+1%", "+298%", "+100.102%", "-100%", "-10.5%", "+0.5", "-129")
    ),
    ("NodeOverlay", "spec", {"requirements": [], "price": "0"}),
    ("NodeOverlay", "spec", {"requirements": [], "price": "10.5"}),
    ("NodePool", "spec.template.spec.requirements", [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"], "minValues": 2},
        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["0"]},
        {"key": "kubernetes.io/os", "operator": "Exists"},
    ]),
    ("NodeClaim", "spec.requirements", [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}]),
    ("NodeClaim", "spec.requirements", [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [f"m{n}.large" for n in range(600)]}
    ]),
    ("EC2NodeClass", "spec.kubelet", {"maxPods": 20, "evictionHard": {"memory.available": "5%"}, "own": {"x": [1]}}),
    ("EC2NodeClass", "spec.tags", {"Name": "x"}),
    ("EC2NodeClass", "spec.amiFamily", "Custom"),
    ("EC2NodeClass", "spec.capacityReservationSelectorTerms", [{"ownerID": "123456789012", "tags": {"a": "*"}}]),
    ("EC2NodeClass", "spec.placementGroupSelector", {"name": "a"}),
    ("EC2NodeClass", "spec.cpuOptions", {"nestedVirtualization": "enabled"}),
    ("EC2NodeClass", "spec.connectionTracking", {"udpTimeout": 30}),
    ("EC2NodeClass", "spec.networkInterfaces", [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]),
    ("EC2NodeClass", "spec.blockDeviceMappings", [
        {"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {
            "volumeSize": "18Ti", "volumeType": "gp3", "iops": 3000, "throughput": 125, "encrypted": True,
            "kmsKeyID": "k", "deleteOnTermination": True, "snapshotID": "snap-1", "volumeInitializationRate": 100,
        }},
        {"deviceName": "/dev/xvdb"},
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "path", "value"), GOOD)
def test_what_karpenter_takes_is_taken(cluster: Cluster, kind: str, path: str, value: Any) -> None:
    kept: Any = stored(cluster, kind, path, value)
    for step in path.split("."):
        kept = kept[step]
    assert kept == value


def test_a_static_pool_may_limit_its_nodes(cluster: Cluster) -> None:
    spec = SAMPLES["NodePool"]()["spec"] | {"replicas": 1000, "limits": {"nodes": "7"}}
    assert stored(cluster, "NodePool", "spec", spec)["spec"]["limits"] == {"nodes": "7"}


@pytest.mark.parametrize("size", ["1Gi", "59000Gi", "64000G", "58Ti", "19Ti", "64T", "100G"])
def test_volume_sizes_ebs_has(cluster: Cluster, size: str) -> None:
    stored(cluster, "EC2NodeClass", "spec.blockDeviceMappings", [{"ebs": {"volumeSize": size}}])


@pytest.mark.parametrize("size", ["0Gi", "64001G", "59Ti", "65T", "1.5Gi", "10", "T"])
def test_volume_sizes_ebs_has_not(cluster: Cluster, size: str) -> None:
    with pytest.raises(ApiError, match="volumeSize"):
        stored(cluster, "EC2NodeClass", "spec.blockDeviceMappings", [{"ebs": {"volumeSize": size}}])


def test_a_stored_class_may_switch_between_role_and_profile(cluster: Cluster) -> None:
    sample = changed(SAMPLES["EC2NodeClass"](), "metadata.name", "switching")
    cluster.objects.apply(sample)
    path = f"{COLLECTIONS['EC2NodeClass']}/switching"
    now = cluster.plane.api.patch(path, {"spec": {"role": None, "instanceProfile": "p"}})
    assert now["spec"]["instanceProfile"] == "p"
    cluster.objects.delete(sample)


def test_conditions_are_merged_by_type_and_need_no_reason(cluster: Cluster) -> None:
    sample = changed(SAMPLES["NodeClaim"](), "metadata.name", "status")
    cluster.objects.apply(sample)
    condition = {"type": "Launched", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": ""}
    path = f"{COLLECTIONS['NodeClaim']}/status/status"
    now = cluster.plane.api.patch(path, {"status": {"conditions": [condition]}})
    assert now["status"]["conditions"] == [condition]
    with pytest.raises(ApiError, match="Duplicate value"):
        cluster.plane.api.patch(path, {"status": {"conditions": [condition, condition]}})
    cluster.objects.delete(sample)


def test_a_nodepool_scales(cluster: Cluster) -> None:
    sample = changed(changed(SAMPLES["NodePool"](), "metadata.name", "static"), "spec.replicas", 1)
    cluster.objects.apply(sample)
    scaled = cluster.kubectl("scale", "nodepool/static", "--replicas=3")
    assert scaled.returncode == 0, scaled.stderr
    pool = cluster.objects.read(sample)
    assert pool is not None
    assert pool["spec"]["replicas"] == 3
    cluster.objects.delete(sample)


@pytest.mark.parametrize(("words", "columns"), [
    (["nodepools"], ["NAME", "NODECLASS", "NODES", "READY", "AGE", "WEIGHT", "CPU", "MEMORY"]),
    (["nodeclaims"], [
        "NAME", "TYPE", "CAPACITY", "ZONE", "NODE", "READY", "AGE", "IMAGEID", "ID", "NODEPOOL", "NODECLASS", "DRIFTED",
    ]),
    (["ec2nc"], ["NAME", "READY", "AGE", "ROLE"]),
    (["overlays"], ["NAME", "READY", "AGE", "WEIGHT"]),
])  # fmt: skip
def test_columns(cluster: Cluster, words: list[str], columns: list[str]) -> None:
    for kind, sample in SAMPLES.items():
        cluster.objects.apply(changed(sample(), "metadata.name", f"columns-{kind.lower()}"))
    shown = cluster.kubectl("get", *words, "-o", "wide")
    assert shown.stdout.splitlines()[0].split() == columns, shown.stderr
    assert cluster.kubectl("get", "karpenter").returncode == 0


def test_only_kubelet_keeps_what_is_unknown() -> None:
    assert list(_open(list(manifests.definitions()), "")) == [".spec.kubelet"]


def _open(schema: Any, path: str) -> list[str]:
    """Paths of fields (without list and version steps) that keep unknown fields."""
    if isinstance(schema, list):
        return [place for inner in schema for place in _open(inner, path)]
    if not isinstance(schema, dict):
        return []
    own = [path] if schema.get("x-kubernetes-preserve-unknown-fields") else []
    inside = schema.get("properties", {})
    own += [place for name, inner in inside.items() for place in _open(inner, f"{path}.{name}")]
    return own + [place for name, inner in schema.items() if name != "properties" for place in _open(inner, path)]


def test_digest_is_stable() -> None:
    assert manifests.digest() == manifests.digest()
