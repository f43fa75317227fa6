"""NodePools into the model."""

import json

import pytest
import yaml

from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool, decode_nodepool_strict
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import LONGEST_DURATION_SECONDS
from spotwright.model.requirements import NodeSelectorRequirement


def test_a_nodepool_has_the_defaults_of_its_schema() -> None:
    nodepool = decode_nodepool_strict(
        {"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": {"spec": {}}}}
    )
    assert nodepool.expire_after_seconds == 720 * 3600
    assert nodepool.consolidate_after_seconds == 0
    assert nodepool.budgets == (Budget("10%"),)
    assert nodepool.weight == 0


T4G = """
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata:
    spec: {requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [t4g]}], expireAfter: Never}
  limit: {cpu: 20}
  weight:
"""


def test_unknown_and_empty_fields_are_named_with_the_nearest_known_one() -> None:
    problems = decode_nodepool_strict(yaml.safe_load(T4G)).problems
    assert "unknown field spec.limit, did you mean limits?" in problems
    assert any("spec.weight is empty" in problem for problem in problems)
    assert len(problems) == 2


def test_what_the_api_server_pruned_is_found_in_the_last_applied_manifest() -> None:
    obj = yaml.safe_load(T4G)
    applied = yaml.safe_dump(obj["spec"])
    del obj["spec"]["limit"], obj["spec"]["weight"]
    obj["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": yaml.safe_load(applied)})
    }
    assert any("spec.limit" in problem for problem in decode_nodepool_strict(obj).problems)


DEEP = 5_000


@pytest.mark.parametrize("spec", ["[" * DEEP + "]" * DEEP, "[" * 100_000, '{"template": ' * DEEP + "1" + "}" * DEEP])
def test_a_last_applied_manifest_that_is_nested_deeply_is_no_hindrance(spec: str) -> None:
    obj = yaml.safe_load(T4G)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"spec": {spec}}}'}
    problems = decode_nodepool_strict(obj).problems
    assert "unknown field spec.limit, did you mean limits?" in problems


def test_a_bad_duration_names_object_field_value_and_what_is_allowed() -> None:
    obj = yaml.safe_load(T4G)
    obj["spec"]["template"]["spec"]["expireAfter"] = "tomorrow"
    with pytest.raises(DecodeError, match=r"NodePool default: spec\.template\.spec\.expireAfter: 'tomorrow'"):
        decode_nodepool_strict(obj)


@pytest.mark.parametrize("text", ["99999999h", "9" * 5000 + "s"])
def test_a_duration_that_go_cannot_hold_is_the_longest_that_it_can(text: str) -> None:
    obj = yaml.safe_load(T4G)
    obj["spec"]["template"]["spec"] |= {"expireAfter": text, "terminationGracePeriod": text}
    obj["spec"]["disruption"] = {"consolidateAfter": text}
    pool = decode_nodepool_strict(obj)
    durations = (pool.expire_after_seconds, pool.termination_grace_period_seconds, pool.consolidate_after_seconds)
    assert durations == (LONGEST_DURATION_SECONDS,) * 3


def test_requirements_keep_operator_values_and_min_values() -> None:
    obj = yaml.safe_load(T4G)
    obj["spec"]["template"]["spec"]["requirements"][0]["minValues"] = 1
    assert decode_nodepool_strict(obj).requirements == (
        NodeSelectorRequirement("karpenter.k8s.aws/instance-family", "In", ("t4g",), 1),
    )


def test_a_nodepool_that_cannot_be_read_says_so_and_makes_no_nodes() -> None:
    """Its neighbours in the list are read as ever; lifecycle gives it a False condition with this sentence."""
    obj = yaml.safe_load(T4G)
    obj["spec"]["limits"] = {"cpu": "a lot"}
    nodepool = decode_nodepool(obj)
    assert "NodePool default: spec.limits.cpu: 'a lot'" in nodepool.read_error
    assert nodepool.name == "default"
    assert decode_nodepool(yaml.safe_load(T4G)).read_error == ""


def test_a_pool_that_cannot_be_read_keeps_its_class() -> None:
    obj = yaml.safe_load(T4G)
    obj["spec"]["template"]["spec"] |= {"taints": [{"effect": "NoSchedule"}], "nodeClassRef": {"name": "mine"}}
    nodepool = decode_nodepool(obj)
    assert "malformed" in nodepool.read_error
    assert nodepool.node_class_ref.name == "mine"


@pytest.mark.parametrize(
    ("stated", "policy"),
    [({}, "ReplaceWhenBetter"), ({"spotwright.dev/rebalance-recommendation": "Replace"}, "Replace")],
)
def test_the_policy_for_rebalance_recommendations_is_an_annotation(stated: dict[str, str], policy: str) -> None:
    nodepool = decode_nodepool_strict(
        {"kind": "NodePool", "metadata": {"name": "p", "annotations": stated}, "spec": {}}
    )
    assert nodepool.rebalance_policy == policy
    assert not nodepool.problems


def test_a_policy_that_is_none_is_named_and_replaces_nothing() -> None:
    annotations = {"spotwright.dev/rebalance-recommendation": "replace"}
    nodepool = decode_nodepool_strict(
        {"kind": "NodePool", "metadata": {"name": "p", "annotations": annotations}, "spec": {}}
    )
    assert nodepool.rebalance_policy == "Ignore"
    assert nodepool.problems == (
        "metadata.annotations[spotwright.dev/rebalance-recommendation]: 'replace' is not one of Ignore,"
        " ReplaceWhenBetter, Replace; recommendations are ignored until it is",
    )
