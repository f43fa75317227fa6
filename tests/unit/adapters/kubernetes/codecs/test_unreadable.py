"""Objects that the API server let pass and that cannot be read: each says so, and stops no other."""

from typing import Any

import pytest

from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from spotwright.model.kubernetes.meta import find_condition


def named(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, **parts}


def test_a_class_that_cannot_be_read_is_not_ready() -> None:
    nodeclass = decode_nodeclass(named("c", kind="EC2NodeClass", spec={"role": 7}))
    ready = find_condition(nodeclass.conditions, "Ready")
    assert ready is not None
    assert (ready.status, nodeclass.name) == ("False", "c")
    assert "role" in ready.message
    assert "role" in nodeclass.read_error


def test_a_budget_that_cannot_be_read_allows_nothing_in_its_namespace() -> None:
    budget = decode_pod_disruption_budget(
        named("b", spec={"minAvailable": {}, "selector": {"matchLabels": {"a": "b"}}})
    )
    assert (budget.selector, budget.disruptions_allowed) == ((), 0)
    assert "minAvailable" in budget.read_error


def test_a_budget_with_an_operator_that_nobody_knows_allows_nothing_in_its_namespace() -> None:
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "tier", "operator": "Near", "values": ["x"]}]}
    budget = decode_pod_disruption_budget(named("b", spec={"selector": selector}, status={"disruptionsAllowed": 3}))
    assert (budget.selector, budget.disruptions_allowed) == ((), 0)
    assert "spec.selector.matchExpressions[0].operator: 'Near'" in budget.read_error


@pytest.mark.parametrize(
    ("read", "broken", "field"),
    [
        (decode_persistent_volume_claim, {"spec": {"volumeName": ["x"]}}, "volume"),
        (decode_persistent_volume, {"spec": {"csi": {"driver": 5}}}, "driver"),
        (decode_storage_class, {"provisioner": 1.5}, "provisioner"),
        (decode_csi_node, {"spec": {"drivers": [{"name": "d", "allocatable": {"count": "many"}}]}}, "many"),
    ],
)
def test_storage_that_cannot_be_read_says_what(read: Any, broken: Any, field: str) -> None:
    decoded = read(named("s", **broken))
    assert decoded.metadata.name == "s"
    assert field in decoded.read_error


def test_a_daemonset_that_cannot_be_read_says_so_in_its_template() -> None:
    assert decode_daemonset(named("d", spec={"template": "x"})).template.read_error
