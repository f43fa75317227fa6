"""How much memory nodes really have, learnt from those that joined: the hypervisor's share is only estimated before.

Keyed by instance type and image, the smallest that was seen: a plan must fit the worst of them. Source: Karpenter's
discovered capacity cache, 60 days.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.node import Node

ENTRY_TTL_SECONDS: Final = 60 * 86_400
# A time that moves with every look would make every catalog a new one.
REFRESH_SECONDS: Final = 7 * 86_400

# "<instance type> <image id>" → (bytes, epoch seconds of when a node was last seen to have so much or more)
type DiscoveredMemory = Mapping[str, tuple[int, int]]


def update_memory(
    before: DiscoveredMemory,
    nodes: Iterable[Node],
    claims: Iterable[NodeClaim],
    classes: Iterable[EC2NodeClass],
    *,
    now: datetime,
) -> dict[str, tuple[int, int]]:
    """What is known now, by key: old entries of images that are still in use, and what these nodes have."""
    seconds = int(now.timestamp())
    images = {ami.id for nodeclass in classes for ami in nodeclass.amis}
    found = {
        key: entry
        for key, entry in before.items()
        if key.partition(" ")[2] in images and seconds - entry[1] < ENTRY_TTL_SECONDS
    }
    for key, size in _seen(nodes, claims, images):
        known, at = found.get(key, (size, 0))
        found[key] = (min(known, size), at if seconds - at < REFRESH_SECONDS else seconds)
    return dict(sorted(found.items()))


def _seen(nodes: Iterable[Node], claims: Iterable[NodeClaim], images: set[str]) -> Iterable[tuple[str, int]]:
    of = {claim.provider_id: claim for claim in claims if claim.provider_id and claim.image_id in images}
    for node in nodes:
        claim, size = of.get(node.provider_id), node.capacity.get(resources.MEMORY, 0)
        name = node.metadata.labels.get(labels.INSTANCE_TYPE, "")
        if claim is not None and node.is_registered and size and name:
            yield f"{name} {claim.image_id}", size


def memory_sizes(discovered_memory: DiscoveredMemory) -> dict[tuple[str, str], int]:
    """(instance type, image) → bytes."""
    return {(key.partition(" ")[0], key.partition(" ")[2]): entry[0] for key, entry in discovered_memory.items()}


def has_less_memory(node: Node, claim: NodeClaim) -> bool:
    """Whether a node has less memory than was planned with: the sooner that is known the better."""
    return 0 < node.capacity.get(resources.MEMORY, 0) < claim.capacity.get(resources.MEMORY, 0)
