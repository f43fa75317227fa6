"""What a class that changes, or goes, means for its claims and for what was made for it."""

import msgspec
import pytest

from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim
from spotwright.aws.images import aliases
from spotwright.aws.refusal import Refusal
from spotwright.errors import Denied
from spotwright.model import labels
from tests.functions.catalog.fakes import CatalogWorld
from tests.unit.aws.samples import CLUSTER, REGION

DRIFT = ("lifecycle", "drift", "")


@pytest.fixture
def world() -> CatalogWorld:
    return CatalogWorld()


def test_claims_of_an_older_hash_version_take_the_new_hash(world: CatalogWorld) -> None:
    world.apply()
    world.stale_hash("default", "v5")
    stamped = {labels.EC2NODECLASS_HASH: "1", labels.EC2NODECLASS_HASH_VERSION: "v5"}
    world.claim("plain", annotations=stamped)
    world.claim("drifted", annotations=stamped)
    world.claim("foreign", "other", annotations=stamped)
    world.claim("of-another-kind", kind="karpenter.azure.com/AKSNodeClass", annotations=stamped)
    world.drift("drifted")
    world.run()
    current = world.nodeclass().metadata.annotations[labels.EC2NODECLASS_HASH]
    found = {nodeclaim.name: nodeclaim.metadata.annotations for nodeclaim in world.cluster.nodeclaims()}
    assert found["plain"] == {labels.EC2NODECLASS_HASH: current, labels.EC2NODECLASS_HASH_VERSION: "v6"}
    assert found["drifted"] == {labels.EC2NODECLASS_HASH: "1", labels.EC2NODECLASS_HASH_VERSION: "v6"}
    assert found["foreign"] == found["of-another-kind"] == stamped


@pytest.mark.parametrize("what", ["subnets", "groups", "images", "hash"])
def test_whoever_may_drift_is_looked_at_when_a_class_changes(world: CatalogWorld, what: str) -> None:
    world.apply()
    world.run()
    world.rung()
    world.run()
    assert DRIFT not in world.rung()
    chosen = world.selectors
    match what:
        case "subnets":
            chosen.found_subnets = chosen.found_subnets[:1]
        case "groups":
            chosen.found_groups = (msgspec.structs.replace(chosen.found_groups[0], id="sg-new"),)
        case "images":
            latest = aliases.alias_parameters("al2023@latest", world.facts.version)
            assert not isinstance(latest, Refusal)
            chosen.missing = frozenset({latest[0].path})
        case _:
            world.edit("default", user_data="echo")
    world.run()
    assert DRIFT in world.rung()


def test_a_deleted_class_waits_for_its_claims(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    world.claim("default-abcde")
    world.delete()
    world.rung()
    world.run()
    assert world.nodeclass().metadata.deletion_timestamp is not None
    assert [(event.type, event.reason, event.message) for event in world.cluster.events] == [
        ("Normal", "WaitingOnNodeClaimTermination", "Waiting on NodeClaim termination for default-abcde")
    ]
    assert ("catalog", "nodeclasses", "default") in world.rung()
    assert world.instance_profiles.profiles


@pytest.mark.parametrize("kind", ["karpenter.azure.com/EC2NodeClass", "karpenter.k8s.aws/AKSNodeClass"])
def test_a_deleted_class_does_not_wait_for_claims_of_a_class_of_another_kind(world: CatalogWorld, kind: str) -> None:
    world.apply()
    world.run()
    world.claim("foreign", kind=kind)
    world.delete()
    world.run()
    assert not world.cluster.nodeclasses()
    assert not world.cluster.events


@pytest.mark.parametrize(
    ("stated", "waits"),
    [({}, True), ({labels.EC2NODECLASS: "default"}, True), ({labels.EC2NODECLASS: "other"}, False)],
)
def test_a_deleted_class_waits_for_claims_that_cannot_be_read(
    world: CatalogWorld, stated: dict[str, str], waits: bool
) -> None:
    """Their instances may run with its instance profile."""
    world.apply()
    world.run()
    about = {"metadata": {"name": "unread", "uid": "uid-unread", "labels": stated}}
    claim = decode_nodeclaim({**about, "spec": {"expireAfter": "soon", "nodeClassRef": {"name": "default"}}})
    assert claim.read_error
    world.cluster.put("nodeclaims", claim)
    world.delete()
    world.run()
    assert [event.reason for event in world.cluster.events] == ["WaitingOnNodeClaimTermination"] * waits
    assert bool(world.cluster.nodeclasses()) == bool(world.instance_profiles.profiles) == waits


def test_a_deleted_class_takes_its_profiles_and_templates_along(world: CatalogWorld) -> None:
    world.apply()
    world.apply("other")
    world.run()
    world.launch_templates.templates = {"lt-1": "default", "lt-2": "other"}
    world.delete()
    world.run("default")
    assert [nodeclass.name for nodeclass in world.cluster.nodeclasses()] == ["other"]
    assert world.launch_templates.templates == {"lt-2": "other"}
    assert {path for path, _ in world.instance_profiles.profiles.values()} == {
        f"/karpenter/{REGION}/{CLUSTER}/{world.nodeclass('other').metadata.uid}/"
    }
    world.run()
    assert set(world.catalog().by_nodeclass) == {"other"}


def test_a_template_that_cannot_be_deleted_keeps_the_class(world: CatalogWorld) -> None:
    world.apply()
    world.run()
    world.launch_templates.templates = {"lt-1": "default"}
    world.launch_templates.fails = Denied("no")
    world.delete()
    catalog_result = world.run()
    assert catalog_result.failures == {"default": "Denied: no"}
    assert labels.EC2NODECLASS_FINALIZER in world.nodeclass().metadata.finalizers
