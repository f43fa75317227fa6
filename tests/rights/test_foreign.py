"""What is not the cluster's own is refused, whatever a caller with the cluster's rights asks for."""

from collections.abc import Callable

import pytest

from spotwright.adapters.aws.iam import InstanceProfiles
from spotwright.errors import Denied
from spotwright.model import labels
from tests.rights.recording import Recording
from tests.rights.scenarios import (
    CLUSTER,
    FOREIGN_ROLE,
    NODE_ROLE,
    PATH,
    PROFILE_TAGS,
    TAGS,
    RightsAccount,
    create_fleet,
    create_template,
    launch_instance,
)

OTHERS = TAGS | {labels.CLUSTER_NAME_TAG: "other"} | {labels.cluster_tag("other"): "owned"}
OTHERS = {key: value for key, value in OTHERS.items() if key != labels.cluster_tag(CLUSTER)}
WITHOUT_POOL = {key: value for key, value in TAGS.items() if key != labels.NODEPOOL}


def terminate_anothers_instance(account: RightsAccount) -> None:
    account.ec2("act").terminate([launch_instance(account, tags=OTHERS)])


def terminate_an_instance_of_no_pool(account: RightsAccount) -> None:
    account.ec2("act").terminate([launch_instance(account, tags=WITHOUT_POOL)])


def terminate_ours_and_anothers(account: RightsAccount) -> None:
    account.ec2("act").terminate([launch_instance(account), launch_instance(account, tags=OTHERS)])


def tag_anothers_instance(account: RightsAccount) -> None:
    account.ec2("act").tag(launch_instance(account, tags=OTHERS), {"Name": "mine"})


def tag_an_instance_as_ours(account: RightsAccount) -> None:
    account.ec2("act").tag(launch_instance(account, tags=WITHOUT_POOL), {labels.NODEPOOL: "default"})


def tag_ours_with_anything(account: RightsAccount) -> None:
    account.ec2("act").tag(launch_instance(account), {"owner": "me"})


def make_a_template_for_another_cluster(account: RightsAccount) -> None:
    create_template(account, account.ec2("act"), profile=account.create_profile(), tags=OTHERS)


def change_anothers_template(account: RightsAccount) -> None:
    name = f"spotwright/other/{next(account.numbers)}"
    create_template(account, account.ec2(), profile=account.create_profile(), name=name, tags=OTHERS)
    create_template(account, account.ec2("act"), profile=account.create_profile(), name=name)


def delete_anothers_template(account: RightsAccount) -> None:
    made = create_template(account, account.ec2(), profile=account.create_profile(), tags=OTHERS)
    account.ec2("act").delete_launch_template(made[0])


def launch_from_anothers_template(account: RightsAccount) -> None:
    create_fleet(
        account,
        account.ec2("act"),
        create_template(account, account.ec2(), profile=account.create_profile(), tags=OTHERS),
    )


def make_a_template_of_no_pool(account: RightsAccount) -> None:
    create_template(account, account.ec2("act"), profile=account.create_profile(), tags=WITHOUT_POOL)


def change_a_template_of_no_pool(account: RightsAccount) -> None:
    name = f"nodegroup-{next(account.numbers)}"
    create_template(account, account.ec2(), profile=account.create_profile(), name=name, tags=WITHOUT_POOL)
    create_template(account, account.ec2("act"), profile=account.create_profile(), name=name)


def delete_a_template_of_no_pool(account: RightsAccount) -> None:
    made = create_template(account, account.ec2(), profile=account.create_profile(), tags=WITHOUT_POOL)
    account.ec2("act").delete_launch_template(made[0])


def launch_from_a_template_of_no_pool(account: RightsAccount) -> None:
    create_fleet(
        account,
        account.ec2("act"),
        create_template(account, account.ec2(), profile=account.create_profile(), tags=WITHOUT_POOL),
    )


def launch_for_another_cluster(account: RightsAccount) -> None:
    create_fleet(
        account,
        account.ec2("act"),
        create_template(account, account.ec2(), profile=account.create_profile()),
        tags=OTHERS,
    )


def launch_without_tags_that_own(account: RightsAccount) -> None:
    create_fleet(
        account,
        account.ec2("act"),
        create_template(account, account.ec2(), profile=account.create_profile()),
        tags={"team": "a"},
    )


def make_a_profile_elsewhere(account: RightsAccount) -> None:
    profiles = InstanceProfiles(account.client("iam", "act"))
    path = PATH.replace(CLUSTER, "other")
    profiles.ensure(name=f"other_{next(account.numbers)}", path=path, role=NODE_ROLE, tags=PROFILE_TAGS)


def make_a_profile_for_another_region(account: RightsAccount) -> None:
    tags = PROFILE_TAGS | {labels.REGION: "eu-west-1"}
    profiles = InstanceProfiles(account.client("iam", "act"))
    profiles.ensure(name=f"p_{next(account.numbers)}", path=PATH, role=NODE_ROLE, tags=tags)


def put_another_role_into_a_profile(account: RightsAccount) -> None:
    profiles = InstanceProfiles(account.client("iam", "act"))
    profiles.ensure(name=f"p_{next(account.numbers)}", path=PATH, role=FOREIGN_ROLE, tags=PROFILE_TAGS)


def delete_anothers_profile(account: RightsAccount) -> None:
    InstanceProfiles(account.client("iam", "act")).delete(account.create_profile())


def see_another_region(account: RightsAccount) -> None:
    from spotwright.adapters.aws.ec2.instances import Ec2

    client = account.aws.client("ec2", account.credentials["read"], region_name="us-east-1")
    Ec2(client, cluster=CLUSTER).instances_of_cluster()


FOREIGN: tuple[Callable[[RightsAccount], None], ...] = (
    terminate_anothers_instance, terminate_an_instance_of_no_pool, terminate_ours_and_anothers, tag_anothers_instance,
    tag_an_instance_as_ours, tag_ours_with_anything, make_a_template_for_another_cluster, change_anothers_template,
    delete_anothers_template, launch_from_anothers_template, make_a_template_of_no_pool, change_a_template_of_no_pool,
    delete_a_template_of_no_pool, launch_from_a_template_of_no_pool, launch_for_another_cluster,
    launch_without_tags_that_own,
    make_a_profile_elsewhere, make_a_profile_for_another_region, put_another_role_into_a_profile,
    delete_anothers_profile, see_another_region,
)  # fmt: skip


@pytest.mark.parametrize("call", FOREIGN, ids=lambda call: call.__name__.replace("_", " "))
def test_it_is_refused(recording: Recording, call: Callable[[RightsAccount], None]) -> None:
    with pytest.raises(Denied):
        call(recording.account)


def test_a_node_cannot_run_as_another_role(recording: Recording) -> None:
    """An administrator's profile may hold any role; passing it is asked for when the instance starts."""
    account = recording.account
    by = account.ec2("act")
    result = create_fleet(account, by, create_template(account, by, profile=account.create_profile(FOREIGN_ROLE)))
    assert not result.instances
    assert {error.code for error in result.errors} == {"UnauthorizedOperation"}
    assert "iam:PassRole" in result.errors[0].message


def test_reading_launches_nothing(recording: Recording) -> None:
    account = recording.account
    made = create_template(account, account.ec2(), profile=account.create_profile())
    for call in (
        lambda: create_fleet(account, account.ec2("read"), made),
        lambda: account.ec2("read").terminate([launch_instance(account)]),
        lambda: account.ec2("read").delete_launch_template(made[0]),
    ):
        with pytest.raises(Denied):
            call()
