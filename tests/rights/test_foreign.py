"""What is not the cluster's own is refused, whatever a caller with the cluster's rights asks for."""

from collections.abc import Callable

import pytest

from spotwright.adapters.iam import InstanceProfiles
from spotwright.failures import Denied
from spotwright.model import labels
from tests.rights.recorded import Recorded
from tests.rights.scenarios import (
    CLUSTER,
    FOREIGN_ROLE,
    NODE_ROLE,
    PATH,
    PROFILE_TAGS,
    TAGS,
    World,
    fleet,
    launched,
    template,
)

OTHERS = TAGS | {labels.CLUSTER_NAME_TAG: "other"} | {labels.cluster_tag("other"): "owned"}
OTHERS = {key: value for key, value in OTHERS.items() if key != labels.cluster_tag(CLUSTER)}
WITHOUT_POOL = {key: value for key, value in TAGS.items() if key != labels.NODEPOOL}


def terminate_anothers_instance(world: World) -> None:
    world.ec2("act").terminate([launched(world, tags=OTHERS)])


def terminate_an_instance_of_no_pool(world: World) -> None:
    world.ec2("act").terminate([launched(world, tags=WITHOUT_POOL)])


def terminate_ours_and_anothers(world: World) -> None:
    world.ec2("act").terminate([launched(world), launched(world, tags=OTHERS)])


def tag_anothers_instance(world: World) -> None:
    world.ec2("act").tag(launched(world, tags=OTHERS), {"Name": "mine"})


def tag_an_instance_as_ours(world: World) -> None:
    world.ec2("act").tag(launched(world, tags=WITHOUT_POOL), {labels.NODEPOOL: "default"})


def tag_ours_with_anything(world: World) -> None:
    world.ec2("act").tag(launched(world), {"owner": "me"})


def make_a_template_for_another_cluster(world: World) -> None:
    template(world, world.ec2("act"), profile=world.profile(), tags=OTHERS)


def change_anothers_template(world: World) -> None:
    name = f"spotwright/other/{next(world.numbers)}"
    template(world, world.ec2(), profile=world.profile(), name=name, tags=OTHERS)
    template(world, world.ec2("act"), profile=world.profile(), name=name)


def delete_anothers_template(world: World) -> None:
    made = template(world, world.ec2(), profile=world.profile(), tags=OTHERS)
    world.ec2("act").delete_launch_template(made[0])


def launch_from_anothers_template(world: World) -> None:
    fleet(world, world.ec2("act"), template(world, world.ec2(), profile=world.profile(), tags=OTHERS))


def launch_for_another_cluster(world: World) -> None:
    fleet(world, world.ec2("act"), template(world, world.ec2(), profile=world.profile()), tags=OTHERS)


def launch_without_tags_that_own(world: World) -> None:
    fleet(world, world.ec2("act"), template(world, world.ec2(), profile=world.profile()), tags={"team": "a"})


def make_a_profile_elsewhere(world: World) -> None:
    profiles = InstanceProfiles(world.client("iam", "act"))
    path = PATH.replace(CLUSTER, "other")
    profiles.ensure(name=f"other_{next(world.numbers)}", path=path, role=NODE_ROLE, tags=PROFILE_TAGS)


def make_a_profile_for_another_region(world: World) -> None:
    tags = PROFILE_TAGS | {labels.REGION: "eu-west-1"}
    profiles = InstanceProfiles(world.client("iam", "act"))
    profiles.ensure(name=f"p_{next(world.numbers)}", path=PATH, role=NODE_ROLE, tags=tags)


def put_another_role_into_a_profile(world: World) -> None:
    profiles = InstanceProfiles(world.client("iam", "act"))
    profiles.ensure(name=f"p_{next(world.numbers)}", path=PATH, role=FOREIGN_ROLE, tags=PROFILE_TAGS)


def delete_anothers_profile(world: World) -> None:
    InstanceProfiles(world.client("iam", "act")).delete(world.profile())


def see_another_region(world: World) -> None:
    from spotwright.adapters.ec2 import Ec2

    client = world.account.client("ec2", world.credentials["read"], region_name="us-east-1")
    Ec2(client, cluster=CLUSTER).instances_of_cluster()


FOREIGN: tuple[Callable[[World], None], ...] = (
    terminate_anothers_instance, terminate_an_instance_of_no_pool, terminate_ours_and_anothers, tag_anothers_instance,
    tag_an_instance_as_ours, tag_ours_with_anything, make_a_template_for_another_cluster, change_anothers_template,
    delete_anothers_template, launch_from_anothers_template, launch_for_another_cluster, launch_without_tags_that_own,
    make_a_profile_elsewhere, make_a_profile_for_another_region, put_another_role_into_a_profile,
    delete_anothers_profile, see_another_region,
)  # fmt: skip


@pytest.mark.parametrize("call", FOREIGN, ids=lambda call: call.__name__.replace("_", " "))
def test_it_is_refused(recorded: Recorded, call: Callable[[World], None]) -> None:
    with pytest.raises(Denied):
        call(recorded.world)


def test_a_node_cannot_run_as_another_role(recorded: Recorded) -> None:
    """An administrator's profile may hold any role; passing it is asked for when the instance starts."""
    world = recorded.world
    by = world.ec2("act")
    result = fleet(world, by, template(world, by, profile=world.profile(FOREIGN_ROLE)))
    assert not result.instances
    assert {error.code for error in result.errors} == {"UnauthorizedOperation"}
    assert "iam:PassRole" in result.errors[0].message


def test_reading_launches_nothing(recorded: Recorded) -> None:
    world = recorded.world
    made = template(world, world.ec2(), profile=world.profile())
    for call in (
        lambda: fleet(world, world.ec2("read"), made),
        lambda: world.ec2("read").terminate([launched(world)]),
        lambda: world.ec2("read").delete_launch_template(made[0]),
    ):
        with pytest.raises(Denied):
            call()
