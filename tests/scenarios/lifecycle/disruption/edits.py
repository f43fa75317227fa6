"""What users and ``catalog`` change on NodePools and classes, and the look at drift that follows."""

from typing import Any

import msgspec

from spotwright.aws.nodeclass import hashes
from spotwright.model import labels
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell


def edit(world: World, kind: str, **fields: Any) -> None:
    """A user edits the pool, or a user or catalog the class: its generation moves on."""
    before = world.cluster.all(kind)[0]
    about = msgspec.structs.replace(before.metadata, generation=before.metadata.generation + 1)
    world.cluster.put(kind, msgspec.structs.replace(before, metadata=about, **fields))


def stamp(world: World) -> None:
    """As catalog does: the class carries the hash of what it says."""
    (nodeclass,) = world.cluster.nodeclasses()
    digest = hashes.nodeclass_hash(nodeclass, world.facts.certificate_authority)
    kept = {labels.EC2NODECLASS_HASH: digest, labels.EC2NODECLASS_HASH_VERSION: hashes.NODECLASS_VERSION}
    world.cluster.update("ec2nodeclasses", nodeclass.name, annotations=kept)


def look(world: World, kind: str = "drift") -> None:
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, kind)], now=world.clock.now())
    world.settle()
