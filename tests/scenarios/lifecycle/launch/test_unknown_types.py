"""A class is Ready before the catalog has its instance types: launches wait until they are known."""

import pytest

from spotwright.lifecycle.nodeclaim_creation import NODECLASS_GROUP, NODECLASS_KIND
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta, find_condition
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.real_forwarder import RealForwarder


def claim_made_by_hand(*requirements: NodeSelectorRequirement) -> NodeClaim:
    reference = NodeClassReference(NODECLASS_GROUP, NODECLASS_KIND, "default")
    return NodeClaim(ObjectMeta("mine", labels={labels.NODEPOOL: "default"}), reference, requirements, {"cpu": 1000})


@pytest.mark.parametrize("known_before", [{}, {"other": ()}, {"default": ()}])
def test_a_claim_waits_for_the_types_of_its_class(known_before: dict[str, tuple[()]]) -> None:
    world = World(forwarder=RealForwarder)
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    catalog, world.catalogs.catalog = world.catalogs.catalog, Catalog(dict(known_before))
    world.cluster.put("nodeclaims", claim_made_by_hand())
    world.run(20)
    (claim,) = world.claims()
    launched = find_condition(claim.conditions, "Launched")
    assert launched is not None
    assert (launched.status, launched.reason) == ("Unknown", "InstanceTypesUnknown")
    assert launched.message == "the catalog has no instance types of EC2NodeClass default yet"
    world.catalogs.catalog = catalog
    assert world.run(90, until=lambda: world.claims()[0].is_condition_true("Initialized"))
    assert [claim.name for claim in world.claims()] == ["mine"]


def test_what_becomes_known_later_is_chosen_from_as_the_claim_requires() -> None:
    world = World(forwarder=RealForwarder)
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    catalog, world.catalogs.catalog = world.catalogs.catalog, Catalog()
    wanted = catalog.instance_types("default")[-1].name
    world.cluster.put(
        "nodeclaims", claim_made_by_hand(NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, (wanted,)))
    )
    world.run(5)
    world.catalogs.catalog = catalog
    assert world.run(30, until=lambda: bool(world.ec2.live_instances()))
    assert [instance.instance_type for instance in world.ec2.live_instances()] == [wanted]


def test_types_that_never_become_known_end_the_claim_as_any_launch_that_takes_too_long() -> None:
    world = World(forwarder=RealForwarder)
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    world.catalogs.catalog = Catalog()
    world.cluster.put("nodeclaims", claim_made_by_hand())
    assert not world.run(280, until=lambda: not world.claims())
    assert world.run(120, until=lambda: not world.claims())
    assert not world.ec2.requests
