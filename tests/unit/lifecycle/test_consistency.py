"""A node that is smaller than its NodeClaim says."""

import msgspec
import pytest

from spotwright.lifecycle.consistency import consistency_condition, inconsistencies
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.simulation import builders

GIB = 2**30
CLAIM = NodeClaim(
    ObjectMeta("claim"),
    builders.nodepool().node_class_ref,
    requests={"cpu": 1000, "memory": GIB},
    capacity={"cpu": 4000, "memory": 128 * GIB, "nvidia.com/gpu": 4},
)


def node(**capacity: int) -> Node:
    return Node(ObjectMeta("node"), capacity={"cpu": 4000, "memory": 128 * GIB} | capacity)


def test_e30_half_of_the_memory_is_said_with_the_share() -> None:
    found = inconsistencies(CLAIM, node(memory=64 * GIB))
    assert found == ("expected 128Gi of resource memory, but found 64Gi (50.0% of expected)",)
    condition = consistency_condition(found)
    assert (condition.status, condition.reason) == ("False", "ConsistencyCheckFailed")


@pytest.mark.parametrize(("cpu", "count"), [(3600, 0), (3599, 1)])
def test_e30_nine_tenths_are_enough(cpu: int, count: int) -> None:
    assert len(inconsistencies(CLAIM, node(cpu=cpu))) == count


def test_e30_what_was_not_requested_or_not_expected_is_not_looked_at() -> None:
    assert inconsistencies(CLAIM, node()) == ()
    zero = msgspec.structs.replace(CLAIM, requests={"nvidia.com/gpu": 0, "example.com/other": 1})
    assert inconsistencies(zero, node()) == ()
    assert consistency_condition(()).status == "True"
