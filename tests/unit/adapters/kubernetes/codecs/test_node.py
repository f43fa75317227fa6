"""Nodes into the model."""

from typing import Any

from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.model.kubernetes.taints import Taint


def test_a_node_that_cannot_be_read_says_so_and_keeps_its_name() -> None:
    node = decode_node(
        {"metadata": {"name": "n"}, "spec": {"providerID": "x"}, "status": {"allocatable": {"cpu": "??"}}}
    )
    assert node.read_error.startswith("status.allocatable.cpu: '??' is not a Kubernetes quantity")
    assert (node.name, node.provider_id, node.unschedulable) == ("n", "x", True)
    assert "malformed" in decode_node({"metadata": {"name": "n"}, "spec": {"taints": [1]}}).read_error


def test_a_node_that_cannot_be_read_keeps_its_taints() -> None:
    taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    broken: Any = {"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": {"allocatable": {"cpu": "many"}}}
    assert decode_node(broken).taints == (Taint("dedicated", "NoSchedule", "gpu"),)
    broken["spec"]["taints"] = "gpu"
    assert decode_node(broken).taints == ()
