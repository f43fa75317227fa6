"""What a class is told before anything is launched: each right that a launch needs is missed when it is tried."""

import pytest

from spotwright.failures import Denied
from spotwright.model import labels
from tests.rights.recorded import Recorded
from tests.rights.scenarios import TAGS, World, document, entered, template, try_out

NAMELESS = TAGS | {labels.NODEPOOL: ""}


def without(world: World, recorded: Recorded, sid: str) -> str:
    """A role with the rights of *act* but one statement."""
    role = f"without-{sid}-{next(world.numbers)}"
    return entered(world, role, document(*(one for one in recorded.grants["act"] if one.sid != sid)))


def test_a_trial_starts_nothing(recorded: Recorded) -> None:
    world = recorded.world
    by = world.ec2("act")
    before = {instance.id for instance in by.instances_of_cluster()}
    try_out(world, by, template(world, by, profile=world.profile(), tags=NAMELESS), tags=NAMELESS)
    assert {instance.id for instance in by.instances_of_cluster()} <= before  # what is ending may end


@pytest.mark.parametrize(
    "sid", ["LaunchInto", "LaunchFrom", "LaunchInstances", "LaunchWith", "TagAtBirth", "PassNodeRoles"]
)
def test_a_right_that_is_missing_is_missed(recorded: Recorded, sid: str) -> None:
    world = recorded.world
    made = template(world, world.ec2(), profile=world.profile(), tags=NAMELESS)
    with pytest.raises(Denied) as denied:
        try_out(world, world.ec2(without(world, recorded, sid)), made, tags=NAMELESS)
    assert denied.value.code == "UnauthorizedOperation"


def test_anothers_template_cannot_be_tried(recorded: Recorded) -> None:
    world = recorded.world
    others = {labels.cluster_tag("other"): "owned", labels.CLUSTER_NAME_TAG: "other"}
    made = template(world, world.ec2(), profile=world.profile(), tags=others)
    with pytest.raises(Denied):
        try_out(world, world.ec2("act"), made)
