"""Discovered capacity: how much memory nodes reported once they joined. Before, the hypervisor's share is an estimate.

Kept by instance type and image: the smallest amount that a node reported, since a plan must fit every node. Source:
Karpenter's discovered capacity cache, 60 days.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.node import Node

ENTRY_TTL_SECONDS: Final = 60 * 86_400
# An entry's time moves on only so often, since each change of an entry makes a new catalog.
REFRESH_SECONDS: Final = 7 * 86_400

# "<instance type> <image id>" → (bytes, epoch seconds at which a node last reported at least these)
type DiscoveredMemory = Mapping[str, tuple[int, int]]


def update_memory(
    before: DiscoveredMemory,
    nodes: Iterable[Node],
    claims: Iterable[NodeClaim],
    classes: Iterable[EC2NodeClass],
    *,
    now: datetime,
) -> dict[str, tuple[int, int]]:
    """The entries, sorted: earlier entries of images still in use, and the memory that these nodes report."""
    seconds = int(now.timestamp())
    images = {ami.id for nodeclass in classes for ami in nodeclass.amis}
    entries = {
        key: entry
        for key, entry in before.items()
        if key.partition(" ")[2] in images and seconds - entry[1] < ENTRY_TTL_SECONDS
    }
    for key, size in _memory_of_nodes(nodes, claims, images):
        smallest, at = entries.get(key, (size, 0))
        entries[key] = (min(smallest, size), at if seconds - at < REFRESH_SECONDS else seconds)
    return dict(sorted(entries.items()))


def _memory_of_nodes(nodes: Iterable[Node], claims: Iterable[NodeClaim], images: set[str]) -> Iterable[tuple[str, int]]:
    claims_by_provider_id = {
        claim.provider_id: claim for claim in claims if claim.provider_id and claim.image_id in images
    }
    for node in nodes:
        claim, size = claims_by_provider_id.get(node.provider_id), node.capacity.get(resources.MEMORY, 0)
        name = node.metadata.labels.get(labels.INSTANCE_TYPE, "")
        if claim is not None and node.is_registered and size and name:
            yield f"{name} {claim.image_id}", size


def memory_sizes(discovered_memory: DiscoveredMemory) -> dict[tuple[str, str], int]:
    """(instance type, image) → bytes."""
    return {(key.partition(" ")[0], key.partition(" ")[2]): entry[0] for key, entry in discovered_memory.items()}


def has_less_memory(node: Node, claim: NodeClaim) -> bool:
    """Whether a node reports less memory than the plan counted on: then the catalog is made anew at once."""
    return 0 < node.capacity.get(resources.MEMORY, 0) < claim.capacity.get(resources.MEMORY, 0)
