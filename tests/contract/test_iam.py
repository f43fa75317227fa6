"""Instance profiles in IAM."""

from typing import Any

import pytest

from spotwright.adapters.aws.iam import InstanceProfiles
from spotwright.aws.nodeclass import instance_profiles
from spotwright.errors import NotFound
from spotwright.model.kubernetes.meta import ObjectMeta
from tests.contract.conftest import REGION, LocalAws
from tests.unit.aws.samples import CLUSTER, nodeclass


def wanted(uid: str) -> instance_profiles.DesiredProfile:
    profile = instance_profiles.desired_profile(
        nodeclass(metadata=ObjectMeta("default", uid=uid)),
        region=REGION,
        cluster=CLUSTER,
        node_roles=(f"KarpenterNodeRole-{CLUSTER}",),
    )
    assert isinstance(profile, instance_profiles.DesiredProfile)
    return profile


@pytest.fixture
def profiles(local_aws: LocalAws) -> InstanceProfiles:
    client: Any = local_aws.client("iam")
    return InstanceProfiles(client)


def test_a_profile_is_made_once_and_goes_with_its_class(profiles: InstanceProfiles) -> None:
    desired_profile, other_desired_profile = wanted("uid-1"), wanted("uid-2")
    assert profiles.role_of(desired_profile.name) is None
    for _ in range(2):
        profiles.ensure(
            name=desired_profile.name, path=desired_profile.path, role=desired_profile.role, tags=desired_profile.tags
        )
    profiles.ensure(
        name=other_desired_profile.name,
        path=other_desired_profile.path,
        role=other_desired_profile.role,
        tags=other_desired_profile.tags,
    )
    assert profiles.role_of(desired_profile.name) == desired_profile.role
    assert profiles.names_under(desired_profile.path) == (desired_profile.name,)
    for _ in range(2):
        profiles.delete(desired_profile.name)
    assert profiles.names_under(desired_profile.path) == ()
    assert profiles.names_under(other_desired_profile.path) == (other_desired_profile.name,)


def test_a_profile_with_another_role_is_put_right(profiles: InstanceProfiles) -> None:
    desired_profile = wanted("uid-3")
    profiles.ensure(
        name=desired_profile.name, path=desired_profile.path, role="dev-eks-node-group-role", tags=desired_profile.tags
    )
    profiles.ensure(
        name=desired_profile.name, path=desired_profile.path, role=desired_profile.role, tags=desired_profile.tags
    )
    assert profiles.role_of(desired_profile.name) == desired_profile.role


def test_a_role_that_does_not_exist_leaves_no_profile_behind(profiles: InstanceProfiles) -> None:
    desired_profile = wanted("uid-4")
    with pytest.raises(NotFound):
        profiles.ensure(name=desired_profile.name, path=desired_profile.path, role="nobody", tags=desired_profile.tags)
    assert profiles.names_under(desired_profile.path) == ()
