"""Nodes into the model."""

from spotwright.adapters.kubernetes.codecs.node import decode_node


def test_a_node_that_cannot_be_read_says_so_and_keeps_its_name() -> None:
    node = decode_node(
        {"metadata": {"name": "n"}, "spec": {"providerID": "x"}, "status": {"allocatable": {"cpu": "??"}}}
    )
    assert node.read_error.startswith("status.allocatable.cpu: '??' is not a Kubernetes quantity")
    assert (node.name, node.provider_id, node.unschedulable) == ("n", "x", True)
    assert "malformed" in decode_node({"metadata": {"name": "n"}, "spec": {"taints": [1]}}).read_error
