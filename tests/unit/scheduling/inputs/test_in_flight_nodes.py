"""What a NodeClaim promises before its instance is known."""

import msgspec
import pytest

from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.resources import CPU, EFA
from spotwright.scheduling.inputs.in_flight_nodes import build_in_flight_node
from spotwright.simulation import builders

REFERENCE = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")


def with_efa() -> Catalog:
    """A type with four EFA devices."""
    made = builders.instance_type("p5.48xlarge", 192, 2048, on_demand=50.0)
    return Catalog({"default": (msgspec.structs.replace(made, allocatable=made.allocatable | {EFA: 4}),)})


@pytest.mark.parametrize(
    ("requests", "allocatable", "devices"),
    [({CPU: 1000}, {}, 0), ({CPU: 1000, EFA: 1}, {}, 4), ({CPU: 1000}, {CPU: 190_000, EFA: 2}, 2)],
    ids=["not requested", "requested", "launched with them"],
)
def test_efa_devices_are_promised_only_where_pods_request_them(
    requests: dict[str, int], allocatable: dict[str, int], devices: int
) -> None:
    claim = NodeClaim(ObjectMeta("one"), REFERENCE, requests=requests, allocatable=allocatable)
    node = build_in_flight_node(claim, ("p5.48xlarge",), with_efa())
    assert node.free_capacity.get(EFA, 0) == devices
    assert node.free_capacity[CPU] > 0
