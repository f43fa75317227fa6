"""Whole objects: what the API server wrote, what names a thing twice, what pods still ask for."""

from spotwright.conversion import needs_conversion
from spotwright.conversion.convert import convert
from spotwright.conversion.remarks import Level
from tests.unit.conversion.objects import beta_class, provisioner, refused, said, template


def test_what_the_server_and_karpenter_wrote_is_left_out() -> None:
    old = template() | {"status": {"subnets": []}}
    old["metadata"] |= {
        "uid": "u", "resourceVersion": "1", "creationTimestamp": "2023-01-01T00:00:00Z", "generation": 3,
        "managedFields": [], "finalizers": ["karpenter.k8s.aws/termination", "mine"], "labels": {"a": "b"},
        "annotations": {"karpenter.k8s.aws/nodetemplate-hash": "1", "own": "c"},
    }  # fmt: skip
    ((converted,),) = convert([old]).objects
    assert converted["metadata"] == {
        "name": "c", "finalizers": ["mine"], "labels": {"a": "b"}, "annotations": {"own": "c"},
    }  # fmt: skip
    assert "status" not in converted
    assert {"status", "metadata.uid", "metadata.finalizers"} <= set(said(old, Level.LOST))


def test_a_name_is_needed() -> None:
    assert "metadata.name: null is not a name" in refused(template() | {"metadata": {}})


def test_the_same_name_twice_is_left_to_decide() -> None:
    result = convert([template(), beta_class()])
    assert "EC2NodeClass c is there already" in result.remarks[1][0].text


def test_what_stands_for_an_instance_is_left_out() -> None:
    machine = {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Machine", "metadata": {"name": "m"}}
    claim = {"apiVersion": "karpenter.sh/v1beta1", "kind": "NodeClaim", "metadata": {"name": "m"}}
    for instance_object in (machine, claim):
        result = convert([instance_object])
        assert result.objects == ((),)
        assert "would buy another" in said(result, Level.LOST)[""]


def test_pods_that_ask_for_old_names_stay_and_it_is_said() -> None:
    expression = {"key": "karpenter.sh/provisioner-name", "operator": "In", "values": ["a"]}
    term = {"matchExpressions": [expression]}
    pod = {
        "nodeSelector": {"karpenter.sh/provisioner-name": "a"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
    }
    about = {"annotations": {"karpenter.sh/do-not-evict": "true"}}
    old = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"template": {"metadata": about, "spec": pod}},
    }  # fmt: skip
    result = convert([old])
    assert result.objects == ((old,),)
    inside = "spec.template.spec"
    nodes = f"{inside}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    assert set(said(result)) == {
        f"{inside}.nodeSelector", f"{nodes}.matchExpressions[0].key", "spec.template.metadata.annotations",
    }  # fmt: skip
    assert "is karpenter.sh/nodepool in v1" in said(result)[f"{inside}.nodeSelector"]


def test_only_what_is_old_concerns_a_conversion() -> None:
    assert needs_conversion(provisioner())
    assert needs_conversion(template())
    assert needs_conversion(beta_class())
    assert not needs_conversion(beta_class() | {"apiVersion": "karpenter.k8s.aws/v1"})
    assert not needs_conversion({"kind": "NodePool", "metadata": {"name": "x"}})
    assert not needs_conversion({"kind": "Machine", "apiVersion": "cluster.x-k8s.io/v1beta1", "metadata": {}})
