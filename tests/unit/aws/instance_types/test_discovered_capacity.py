"""The memory of nodes is learnt from those that joined."""

from datetime import timedelta
from typing import Any

from spotwright.aws.instance_types import discovered_capacity
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from tests.unit.aws.samples import NOW, nodeclass

GIB = 2**30
IMAGE = "ami-x86_64-standard"
KEY = f"m5.large {IMAGE}"
SECONDS = int(NOW.timestamp())
DAY = 86_400


def claim(name: str, image: str = IMAGE, **changes: Any) -> NodeClaim:
    ref = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    return NodeClaim(ObjectMeta(name), ref, provider_id=f"aws:///a/i-{name}", image_id=image, **changes)


def node(name: str, size: int, *, registered: bool = True) -> Node:
    node_labels = {labels.INSTANCE_TYPE: "m5.large"} | ({labels.REGISTERED: "true"} if registered else {})
    return Node(ObjectMeta(name, labels=node_labels), f"aws:///a/i-{name}", capacity={"memory": size})


def learned(
    before: discovered_capacity.DiscoveredMemory, *sizes: int, days: int = 0, **changes: Any
) -> dict[str, tuple[int, int]]:
    nodes = [node(str(number), size) for number, size in enumerate(sizes)]
    claims = [claim(str(number)) for number in range(len(sizes))]
    return discovered_capacity.update_memory(
        before, nodes, claims, [nodeclass(**changes)], now=NOW + timedelta(days=days)
    )


def test_the_smallest_node_of_a_type_and_image_counts() -> None:
    assert learned({}, 8 * GIB, 7 * GIB, 9 * GIB) == {KEY: (7 * GIB, SECONDS)}
    assert learned({KEY: (6 * GIB, SECONDS)}, 7 * GIB) == {KEY: (6 * GIB, SECONDS)}
    assert discovered_capacity.memory_sizes({KEY: (7 * GIB, SECONDS)}) == {("m5.large", IMAGE): 7 * GIB}


def test_a_second_look_changes_nothing_for_a_week() -> None:
    discovered = learned({}, 8 * GIB)
    assert learned(discovered, 8 * GIB, days=6) == discovered
    assert learned(discovered, 8 * GIB, days=8) == {KEY: (8 * GIB, SECONDS + 8 * DAY)}


def test_what_nobody_saw_for_sixty_days_or_is_of_an_image_that_is_gone_is_forgotten() -> None:
    discovered = learned({}, 8 * GIB)
    assert learned(discovered, days=59) == discovered
    assert learned(discovered, days=60) == {}
    assert learned(discovered, days=1, amis=()) == {}


def test_only_registered_nodes_of_claims_and_current_images_teach() -> None:
    claims = [claim("a"), claim("b", "ami-old")]
    nodes = [node("a", GIB, registered=False), node("b", GIB), node("c", GIB), node("a", 0)]
    assert discovered_capacity.update_memory({}, nodes, claims, [nodeclass()], now=NOW) == {}


def test_less_than_planned_is_noticed() -> None:
    planned = claim("a", capacity={"memory": 8 * GIB})
    assert discovered_capacity.has_less_memory(node("a", 7 * GIB), planned)
    assert not discovered_capacity.has_less_memory(node("a", 8 * GIB), planned)
    assert not discovered_capacity.has_less_memory(node("a", 0), planned)
