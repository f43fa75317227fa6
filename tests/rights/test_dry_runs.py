"""What a class is told before anything is launched: each right that a launch needs is missed when it is tried."""

import pytest

from spotwright.errors import Denied
from spotwright.model import labels
from tests.rights.recording import Recording
from tests.rights.scenarios import TAGS, RightsAccount, create_role, create_template, dry_run_launch, policy_document

NAMELESS = TAGS | {labels.NODEPOOL: ""}


def without(account: RightsAccount, recording: Recording, sid: str) -> str:
    """A role with the rights of *act* but one statement."""
    role = f"without-{sid}-{next(account.numbers)}"
    return create_role(
        account, role, policy_document(*(grant for grant in recording.grants["act"] if grant.sid != sid))
    )


def test_a_trial_starts_nothing(recording: Recording) -> None:
    account = recording.account
    by = account.ec2("act")
    before = {instance.id for instance in by.instances_of_cluster()}
    dry_run_launch(
        account, by, create_template(account, by, profile=account.create_profile(), tags=NAMELESS), tags=NAMELESS
    )
    assert {instance.id for instance in by.instances_of_cluster()} <= before  # what is ending may end


@pytest.mark.parametrize(
    "sid", ["LaunchInto", "LaunchFrom", "LaunchInstances", "LaunchWith", "TagAtBirth", "PassNodeRoles"]
)
def test_a_right_that_is_missing_is_missed(recording: Recording, sid: str) -> None:
    account = recording.account
    made = create_template(account, account.ec2(), profile=account.create_profile(), tags=NAMELESS)
    with pytest.raises(Denied) as denied:
        dry_run_launch(account, account.ec2(without(account, recording, sid)), made, tags=NAMELESS)
    assert denied.value.code == "UnauthorizedOperation"


def test_anothers_template_cannot_be_tried(recording: Recording) -> None:
    account = recording.account
    others = {labels.cluster_tag("other"): "owned", labels.CLUSTER_NAME_TAG: "other"}
    made = create_template(account, account.ec2(), profile=account.create_profile(), tags=others)
    with pytest.raises(Denied):
        dry_run_launch(account, account.ec2("act"), made)
