"""Instance profiles in IAM."""

from typing import Any

import pytest

from spotwright.adapters.aws.iam import InstanceProfiles
from spotwright.aws.nodeclass import readiness
from spotwright.errors import NotFound
from spotwright.model.kubernetes.meta import ObjectMeta
from tests.contract.conftest import REGION, LocalAws
from tests.unit.aws.samples import CLUSTER, node_class


def wanted(uid: str) -> readiness.DesiredProfile:
    one = node_class(metadata=ObjectMeta("default", uid=uid))
    found = readiness.desired_profile(one, region=REGION, cluster=CLUSTER, node_roles=(f"KarpenterNodeRole-{CLUSTER}",))
    assert isinstance(found, readiness.DesiredProfile)
    return found


@pytest.fixture
def profiles(local_aws: LocalAws) -> InstanceProfiles:
    client: Any = local_aws.client("iam")
    return InstanceProfiles(client)


def test_a_profile_is_made_once_and_goes_with_its_class(profiles: InstanceProfiles) -> None:
    one, other = wanted("uid-1"), wanted("uid-2")
    assert profiles.role_of(one.name) is None
    for _ in range(2):
        profiles.ensure(name=one.name, path=one.path, role=one.role, tags=one.tags)
    profiles.ensure(name=other.name, path=other.path, role=other.role, tags=other.tags)
    assert profiles.role_of(one.name) == one.role
    assert profiles.names_under(one.path) == (one.name,)
    for _ in range(2):
        profiles.delete(one.name)
    assert profiles.names_under(one.path) == ()
    assert profiles.names_under(other.path) == (other.name,)


def test_a_profile_with_another_role_is_put_right(profiles: InstanceProfiles) -> None:
    one = wanted("uid-3")
    profiles.ensure(name=one.name, path=one.path, role="dev-eks-node-group-role", tags=one.tags)
    profiles.ensure(name=one.name, path=one.path, role=one.role, tags=one.tags)
    assert profiles.role_of(one.name) == one.role


def test_a_role_that_does_not_exist_leaves_no_profile_behind(profiles: InstanceProfiles) -> None:
    one = wanted("uid-4")
    with pytest.raises(NotFound):
        profiles.ensure(name=one.name, path=one.path, role="nobody", tags=one.tags)
    assert profiles.names_under(one.path) == ()
