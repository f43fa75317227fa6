"""A cluster whose nodes Karpenter made: taking it over drifts none of them."""

from typing import Any

import msgspec
import pytest

from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool_strict
from spotwright.aws.nodeclass import hashes
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.real_forwarder import RealForwarder
from tests.unit.aws.nodeclass.golden import CERTIFICATE_AUTHORITY, CLASS_HASH, CLASS_SPEC

# What Karpenter writes for the pool below, by Go's hashstructure; for the class see its test vectors.
POOL_HASH = "6821555240594823858"
POOL = {
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "720h",
                "requirements": [{"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}],
            }
        }
    }
}
CLASS = {"spec": {"amiFamily": "Custom"} | CLASS_SPEC}


def karpenters(pool_version: str = "v3", class_version: str = "v6") -> World:
    """A pool, a class and a running node, annotated by a Karpenter whose hashes are of these versions."""
    world = World(forwarder=RealForwarder)
    world.facts = msgspec.structs.replace(world.facts, certificate_authority=CERTIFICATE_AUTHORITY)
    nodepool = decode_nodepool_strict({"kind": "NodePool", "metadata": _about(pool_version, class_version)} | POOL)
    world.cluster.put("nodepools", nodepool)
    stated = decode_nodeclass_strict({"kind": "EC2NodeClass", "metadata": _about(pool_version, class_version)} | CLASS)
    world.cluster.put("ec2nodeclasses", _resolved(stated))
    node(world, "karpenters-abcde", _annotations(pool_version, class_version))
    return world


def _annotations(pool_version: str, class_version: str) -> dict[str, str]:
    """Older versions hashed something else, or in another way."""
    return {
        labels.NODEPOOL_HASH: POOL_HASH if pool_version == "v3" else "123",
        labels.NODEPOOL_HASH_VERSION: pool_version,
        labels.EC2NODECLASS_HASH: CLASS_HASH if class_version == "v6" else "456",
        labels.EC2NODECLASS_HASH_VERSION: class_version,
    }


def _about(pool_version: str, class_version: str) -> dict[str, Any]:
    return {"name": "default", "annotations": _annotations(pool_version, class_version)}


def _resolved(stated: EC2NodeClass) -> EC2NodeClass:
    like = builders.nodeclass()
    return msgspec.structs.replace(
        stated,
        subnets=like.subnets,
        security_groups=like.security_groups,
        amis=like.amis,
        resolved_instance_profile=like.resolved_instance_profile,
        conditions=like.conditions,
    )


def node(world: World, name: str, annotations: dict[str, str], *conditions: Condition, pool: str = "default") -> None:
    """An m5.large on spot and its NodeClaim."""
    id, zone = f"i-{name}", builders.ZONES[0]
    tags = {labels.CLUSTER_NAME_TAG: world.cluster.name, labels.NODEPOOL: pool}
    world.ec2.instances[id] = Instance(
        id, "m5.large", zone, "spot", "running", subnet_id="subnet-a", security_groups=("sg-1",), tags=tags
    )
    known = {
        labels.NODEPOOL: pool, labels.EC2NODECLASS: "default", labels.INSTANCE_TYPE: "m5.large", labels.ZONE: zone,
        labels.CAPACITY_TYPE: "spot", labels.ARCH: "amd64", labels.OS: "linux",
    }  # fmt: skip
    ready = tuple(Condition(kind, "True", kind) for kind in ("Launched", "Registered", "Initialized", "Ready"))
    claim = NodeClaim(
        ObjectMeta(name, labels=known, annotations=annotations, finalizers=(labels.FINALIZER,)),
        builders.nodepool().node_class_ref,
        requirements=(NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("m5.large",)),),
        provider_id=f"aws:///{zone}/{id}",
        image_id="ami-amd64",
        conditions=(*ready, *conditions),
    )
    world.cluster.put("nodeclaims", claim)


def stamp_class(world: World) -> None:
    """As catalog does."""
    (nodeclass,) = world.cluster.nodeclasses()
    kept = {
        labels.EC2NODECLASS_HASH: hashes.nodeclass_hash(nodeclass, world.facts.certificate_authority),
        labels.EC2NODECLASS_HASH_VERSION: hashes.NODECLASS_VERSION,
    }
    world.cluster.update("ec2nodeclasses", nodeclass.name, annotations=kept)


def look(world: World) -> None:
    for kind in ("nodepools", "drift"):
        lifecycle(world.ports, [Doorbell(builders.CLUSTER, kind)], now=world.clock.now())


def drifting(world: World) -> dict[str, str]:
    found = {claim.name: find_condition(claim.conditions, "Drifted") for claim in world.claims()}
    return {name: condition.reason for name, condition in found.items() if condition is not None}


@pytest.mark.parametrize("versions", [("v3", "v6"), ("v2", "v6"), ("v3", "v5"), ("v2", "v5")])
def test_nothing_drifts_and_no_hash_of_ours_differs(versions: tuple[str, str]) -> None:
    world = karpenters(*versions)
    stamp_class(world)
    look(world)
    assert drifting(world) == {}
    (pool,), (nodeclass,) = world.cluster.nodepools(), world.cluster.nodeclasses()
    assert pool.metadata.annotations[labels.NODEPOOL_HASH] == POOL_HASH
    assert nodeclass.metadata.annotations[labels.EC2NODECLASS_HASH] == CLASS_HASH
    (claim,) = world.claims()
    assert claim.metadata.annotations[labels.NODEPOOL_HASH] == POOL_HASH


def test_what_changes_after_the_take_over_drifts() -> None:
    world = karpenters("v2")
    look(world)
    world.cluster.update("nodepools", "default", expire_after_seconds=None)
    look(world)
    assert drifting(world) == {"karpenters-abcde": "NodePoolDrifted"}


def test_what_drifted_before_goes_on_drifting_and_other_pools_keep_their_hashes() -> None:
    world = karpenters("v2")
    old, current = _annotations("v2", "v6"), _annotations("v3", "v6") | {labels.NODEPOOL_HASH: "9"}
    node(world, "drifting", old, Condition("Drifted", "True", "NodePoolDrifted"))
    node(world, "of-another-pool", old, pool="other")
    node(world, "changed-since", current)
    look(world)
    found = {nodeclaim.name: nodeclaim.metadata.annotations for nodeclaim in world.claims()}
    kept = {name: (one[labels.NODEPOOL_HASH], one[labels.NODEPOOL_HASH_VERSION]) for name, one in found.items()}
    assert kept == {
        "karpenters-abcde": (POOL_HASH, "v3"),
        "drifting": ("123", "v3"),
        "of-another-pool": ("123", "v2"),
        "changed-since": ("9", "v3"),
    }
    assert drifting(world) == {"drifting": "NodePoolDrifted", "changed-since": "NodePoolDrifted"}


def test_a_claim_and_a_node_of_an_old_version_get_the_label_of_their_class() -> None:
    """They are told apart from others by it; nothing else becomes of them."""
    world = karpenters()
    (claim,) = world.claims()
    kept = {key: value for key, value in claim.metadata.labels.items() if key != labels.EC2NODECLASS}
    old = msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(claim.metadata, labels=kept), node_name="karpenters-node"
    )
    world.cluster.put("nodeclaims", old)
    about = ObjectMeta("karpenters-node", labels=kept | {labels.REGISTERED: "true"})
    joined = builders.unmanaged_node("karpenters-node", metadata=about, provider_id=claim.provider_id)
    world.cluster.put("nodes", joined)
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "claim", claim.name)], now=world.clock.now())
    (after,), node = world.claims(), world.cluster.node("karpenters-node")
    assert node is not None
    assert after.metadata.labels[labels.EC2NODECLASS] == node.metadata.labels[labels.EC2NODECLASS] == "default"
    assert drifting(world) == {}
    begun = len(world.effects.log)
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "claim", claim.name)], now=world.clock.now())
    written = [effect.subject for effect in world.effects.log[begun:] if effect.port == "cluster"]
    assert not written, "once"
