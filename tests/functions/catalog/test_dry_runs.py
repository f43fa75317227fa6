"""A class that is right in everything else is tried at EC2, and what EC2 says stands in its conditions."""

import pytest

from spotwright.errors import ApiError, Denied, InvalidRequest, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import SelectorTerm
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from tests.functions.catalog.fakes import CatalogWorld, Trials

TEMPLATE, FLEET, RUN = "CreateLaunchTemplate", "CreateFleet", "RunInstances"
NO = Denied("You are not authorized. Encoded authorization failure message: AbC", code="UnauthorizedOperation")
PROFILE = InvalidRequest("Value (x) is invalid. Invalid IAM Instance Profile name", code="InvalidParameterValue")


@pytest.fixture
def trials() -> Trials:
    return Trials()


@pytest.fixture
def world(trials: Trials) -> CatalogWorld:
    catalog_world = CatalogWorld(dry_runs=trials)
    catalog_world.apply()
    return catalog_world


def said(world: CatalogWorld, name: str = "default") -> tuple[str, str]:
    condition = world.condition("ValidationSucceeded", name)
    return condition.status, condition.reason


def test_a_class_that_ec2_would_launch_is_ready_and_nothing_is_launched(world: CatalogWorld, trials: Trials) -> None:
    world.run()
    assert world.condition("Ready").status == "True"
    operations = [operation for operation, _ in trials.asked]
    assert operations == [TEMPLATE, FLEET, RUN]


def test_the_answer_holds_for_half_an_hour_and_for_this_content(world: CatalogWorld, trials: Trials) -> None:
    world.run()
    trials.take()
    world.clock.advance(29 * 60)
    world.run()
    assert trials.take() == []
    world.clock.advance(2 * 60)
    world.run()
    assert [operation for operation, _ in trials.take()] == [FLEET, RUN]
    world.edit("default", tags={"team": "a"})
    world.run()
    assert [operation for operation, _ in trials.take()] == [TEMPLATE, FLEET, RUN]


@pytest.mark.parametrize("operation", [TEMPLATE, FLEET, RUN])
def test_what_may_not_be_called_is_named(world: CatalogWorld, trials: Trials, operation: str) -> None:
    trials.says[operation] = [NO]
    world.apply("other", role="", instance_profile="nobody")
    assert world.run().ready_classes == ()
    assert said(world) == ("False", f"{operation}AuthCheckFailed")
    assert world.condition("Ready").reason == "UnhealthyDependents"
    message = world.condition("ValidationSucceeded").message
    assert f"ec2:{operation}" in message
    assert "AbC" not in message


def test_a_denial_is_remembered_for_two_minutes_and_ends_when_the_right_is_given(
    world: CatalogWorld, trials: Trials
) -> None:
    trials.says[FLEET] = [NO]
    world.run()
    trials.take()
    world.run()
    assert trials.take() == []
    assert said(world) == ("False", "CreateFleetAuthCheckFailed")
    trials.says.clear()
    world.clock.advance(121)
    world.run()
    assert said(world)[0] == "True"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("because no permissions boundary allows the ec2:RunInstances action", "permissions boundary does not allow"),
        ("with an explicit deny in a service control policy", "service control policy of the organization denies"),
    ],
)
def test_who_stands_in_the_way_is_said(world: CatalogWorld, trials: Trials, text: str, told: str) -> None:
    trials.says[RUN] = [Denied(text, code="UnauthorizedOperation")]
    world.run()
    assert told in world.condition("ValidationSucceeded").message


def test_one_subnet_that_works_is_enough_else_the_first_ones_answer_counts(world: CatalogWorld, trials: Trials) -> None:
    first = ApiError("no room here", code="InsufficientFreeAddressesInSubnet")
    trials.says[RUN] = [first, NO, NO, NO]
    world.run()
    assert [about for operation, about in trials.take() if operation == RUN] == ["subnet-a", "subnet-b", "subnet-c"]
    assert said(world) == ("Unknown", "AwaitingReconciliation")
    assert "no room here" in world.condition("ValidationSucceeded").message
    assert world.condition("Ready").reason == "ReconcilingDependents"


@pytest.mark.parametrize("error", [Throttled("slow", code="RequestLimitExceeded"), Unavailable("5xx")])
def test_no_answer_leaves_a_ready_class_ready(world: CatalogWorld, trials: Trials, error: ApiError) -> None:
    world.run()
    trials.says[FLEET] = [error]
    world.clock.advance(31 * 60)
    catalog_result = world.run()
    assert catalog_result.ready_classes == ("default",)
    assert "default" in catalog_result.failures
    world.edit("default", tags={"team": "a"})
    world.run()
    assert said(world) == ("Unknown", "AwaitingReconciliation")


def test_throttling_slows_down_the_whole_account(world: CatalogWorld, trials: Trials) -> None:
    trials.says[FLEET] = [Throttled("slow", code="RequestLimitExceeded")]
    world.run()
    rate = world.state.call_rate(FLEET)
    assert rate is not None
    assert rate.throttled_at_ms


def test_a_profile_that_iam_has_and_ec2_does_not_know_yet(world: CatalogWorld, trials: Trials) -> None:
    trials.says[RUN] = [PROFILE]
    world.run()
    assert said(world) == ("Unknown", "AwaitingReconciliation")
    world.instance_profiles.profiles["mine"] = ("/", world.node_roles[0])
    world.apply("own", role="", instance_profile="mine")
    world.run()
    assert said(world, "own") == ("False", "InstanceProfileNotFound")
    trials.says.clear()
    world.run()
    assert said(world, "own")[0] == "True"


def test_user_data_that_ec2_finds_too_long(world: CatalogWorld, trials: Trials) -> None:
    trials.says[TEMPLATE] = [InvalidRequest("User data is limited to 16384 bytes", code="InvalidParameterValue")]
    world.run()
    assert said(world) == ("False", "UserDataSizeLimitExceeded")


def test_a_type_that_a_pool_of_the_class_may_buy_is_tried(world: CatalogWorld, trials: Trials) -> None:
    ref = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    only = NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("c5.large",))
    world.run()
    assert (FLEET, "m5.large") in trials.take()
    world.cluster.put("nodepools", NodePool(ObjectMeta("default"), ref, requirements=(only,)))
    world.clock.advance(31 * 60)
    world.run()
    assert (FLEET, "c5.large") in trials.take()


def test_nothing_is_tried_for_a_class_that_is_wrong_or_where_trials_are_off(
    world: CatalogWorld, trials: Trials
) -> None:
    world.apply(ami_selector_terms=(SelectorTerm(alias="al2@latest"),))
    world.run()
    assert trials.take() == []
    assert said(world) == ("False", "DependenciesNotReady")
    world.dry_runs = None
    world.apply()
    assert world.run().ready_classes == ("default",)
    assert trials.take() == []
