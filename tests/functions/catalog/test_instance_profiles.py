"""Instance profiles that nobody needs go, and no other."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import Denied
from spotwright.model import labels
from spotwright.model.ec2.fleet import InstanceProfile
from spotwright.workflows.catalog import instance_profiles
from tests.functions.catalog.fakes import NODE_ROLE, CatalogWorld
from tests.unit.aws.samples import CLUSTER, REGION

OTHER_ROLE = "OtherNodeRole"
HOUR = timedelta(hours=1)


@pytest.fixture
def world() -> CatalogWorld:
    catalog_world = CatalogWorld(node_roles=(NODE_ROLE, OTHER_ROLE))
    catalog_world.instance_profiles.roles.add(OTHER_ROLE)
    catalog_world.apply()
    catalog_world.run()
    return catalog_world


def collect(world: CatalogWorld) -> tuple[str, ...]:
    return instance_profiles.delete_unused(world, now=world.clock.now())


def claim(world: CatalogWorld, profile: str = "") -> None:
    annotations = {labels.INSTANCE_PROFILE_NAME: profile} if profile else {}
    world.claim("one", annotations=annotations)


def turn(world: CatalogWorld) -> tuple[str, str]:
    """The class gets another role: (profile before, profile after)."""
    before = world.nodeclass().resolved_instance_profile
    world.edit("default", role=OTHER_ROLE)
    world.run()
    return before, world.nodeclass().resolved_instance_profile


def test_a_role_change_makes_a_new_profile_and_keeps_the_old_one_for_an_hour(world: CatalogWorld) -> None:
    world.clock.advance(5 * HOUR.total_seconds())
    before, after = turn(world)
    assert before != after
    world.clock.advance(HOUR.total_seconds() - 1)
    assert collect(world) == ()
    world.clock.advance(2)
    (note,) = collect(world)
    assert before in note
    assert set(world.instance_profiles.profiles) == {after}


def test_the_profile_of_a_class_stays(world: CatalogWorld) -> None:
    world.clock.advance(100 * HOUR.total_seconds())
    assert collect(world) == ()
    assert world.nodeclass().resolved_instance_profile in world.instance_profiles.profiles


@pytest.mark.parametrize("named", [True, False])
def test_a_profile_that_a_claim_names_or_may_have_stays(world: CatalogWorld, named: bool) -> None:
    before, _ = turn(world)
    claim(world, before if named else "")
    world.clock.advance(3 * HOUR.total_seconds())
    assert collect(world) == ()
    assert before in world.instance_profiles.profiles


def stray(world: CatalogWorld, name: str, **changes: Any) -> None:
    """A profile of a class that is gone."""
    path = changes.pop("path", f"/karpenter/{REGION}/{CLUSTER}/uid-gone/")
    tags = changes.pop("tags", {labels.cluster_tag(CLUSTER): "owned", labels.EC2NODECLASS: "gone"})
    world.instance_profiles.profiles[name] = (path, NODE_ROLE)
    world.instance_profiles.made[name] = InstanceProfile(name, path, world.clock.now() - 2 * HOUR, tags)


def test_a_claim_of_a_class_of_another_kind_keeps_no_profile(world: CatalogWorld) -> None:
    world.claim("foreign", kind="karpenter.azure.com/AKSNodeClass")
    stray(world, "profile-gone")
    assert collect(world) != ()
    assert "profile-gone" not in world.instance_profiles.profiles


def test_a_claim_that_cannot_be_read_may_have_any_profile(world: CatalogWorld) -> None:
    unreadable = msgspec.structs.replace(world.claim("unreadable", "", kind="/"), read_error="spec: it is no object")
    world.cluster.put("nodeclaims", unreadable)
    stray(world, "profile-gone")
    assert collect(world) == ()


def test_a_profile_of_a_class_that_is_gone_goes(world: CatalogWorld) -> None:
    stray(world, "left")
    assert collect(world) == ("deleted instance profile left, which nothing uses",)


def test_somebody_elses_profile_stays(world: CatalogWorld) -> None:
    stray(world, "theirs", tags={labels.cluster_tag("another"): "owned"})
    stray(world, "untagged", tags={})
    stray(world, "elsewhere", path=f"/karpenter/{REGION}/{CLUSTER}2/uid/")
    assert collect(world) == ()
    assert {"theirs", "untagged", "elsewhere"} <= set(world.instance_profiles.profiles)


def test_a_class_that_a_list_forgot_keeps_its_profile(world: CatalogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.clock.advance(5 * HOUR.total_seconds())
    monkeypatch.setattr(world.cluster, "nodeclasses", lambda: ())
    assert collect(world) == ()
    assert world.instance_profiles.profiles


def test_too_many_at_once_are_a_mistake_of_ours(world: CatalogWorld) -> None:
    for number in range(4):
        stray(world, f"left-{number}")
    (note,) = collect(world)
    assert "none is touched" in note
    assert len(world.instance_profiles.profiles) == 5


def test_profiles_are_looked_for_every_half_hour() -> None:
    start = CatalogWorld().clock.now().replace(minute=0, second=0, microsecond=0)
    ticks = [start + timedelta(minutes=5 * number) for number in range(24)]
    assert sum(instance_profiles.is_due(tick) for tick in ticks) == 4


def test_a_profile_just_made_stays(world: CatalogWorld) -> None:
    stray(world, "new")
    world.instance_profiles.made["new"] = InstanceProfile(
        "new", world.instance_profiles.made["new"].path, world.clock.now(), world.instance_profiles.made["new"].tags
    )
    assert collect(world) == ()


def test_when_iam_does_not_answer_classes_are_settled_all_the_same(
    world: CatalogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str) -> tuple[InstanceProfile, ...]:
        raise Denied(f"ListInstanceProfiles {path}: not authorized", code="AccessDenied")

    monkeypatch.setattr(world.instance_profiles, "profiles_under", denied)
    (note,) = collect(world)
    assert "not authorized" in note


def isolated(world: CatalogWorld, **changes: Any) -> CatalogWorld:
    """The same cluster with ISOLATED_VPC."""
    world.instance_profiles = None  # type: ignore[assignment]
    world.edit("default", **changes)
    world.run()
    return world


def test_in_an_isolated_vpc_the_users_profile_is_taken_as_it_is(world: CatalogWorld) -> None:
    isolated(world, role="", instance_profile="theirs")
    assert world.nodeclass().resolved_instance_profile == "theirs"
    assert world.condition("InstanceProfileReady").status == "True"
    assert collect(world) == ()


def test_in_an_isolated_vpc_a_profile_that_was_made_before_is_kept(world: CatalogWorld) -> None:
    before = world.nodeclass().resolved_instance_profile
    isolated(world)
    assert before
    assert world.nodeclass().resolved_instance_profile == before


def test_in_an_isolated_vpc_a_role_without_a_profile_says_what_to_do(world: CatalogWorld) -> None:
    isolated(world, role=OTHER_ROLE)
    condition = world.condition("InstanceProfileReady")
    assert (condition.status, condition.reason) == ("False", "IsolatedVPC")
    assert "spec.instanceProfile" in condition.message


def test_in_an_isolated_vpc_a_class_goes_without_iam(world: CatalogWorld) -> None:
    world.instance_profiles = None  # type: ignore[assignment]
    world.delete("default")
    world.run()
    assert world.cluster.nodeclass("default") is None
