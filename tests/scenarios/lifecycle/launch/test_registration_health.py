"""The NodePool says whether its nodes join: NodeRegistrationHealthy."""

from contextlib import suppress

import msgspec
import pytest

from spotwright.aws import token_bucket
from spotwright.errors import InvalidRequest, Throttled, Unavailable
from spotwright.lifecycle.registration_health import CONDITION
from spotwright.lifecycle.steps import Deletion
from spotwright.model.kubernetes.meta import Condition, find_condition
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.joining.launching import give_up
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import LaunchRow

MINUTES = 60
ONE_EACH = builders.pod("inflate", cpu_millicores=1800)


def condition(world: World) -> Condition:
    found = find_condition(world.cluster.nodepools()[0].conditions, CONDITION)
    assert found is not None
    return found


def status(world: World) -> str:
    return condition(world).status


@pytest.fixture
def failing(world: World) -> World:
    """No machine joins."""
    world.kubelets.boot_seconds = 10**6
    world.run(5)
    assert status(world) == "Unknown"
    world.deploy(ONE_EACH, 2)
    return world


def test_nodes_that_join_make_a_pool_healthy(world: World) -> None:
    world.deploy(ONE_EACH, 1)
    assert world.run(90, until=lambda: status(world) == "True")


def test_e26_nodes_that_do_not_join_make_it_unhealthy_and_it_launches_all_the_same(failing: World) -> None:
    assert failing.run(17 * MINUTES, until=lambda: status(failing) == "False")
    assert (condition(failing).reason, condition(failing).message) == ("RegistrationFailed", "Failed to register node")
    ready = find_condition(failing.cluster.nodepools()[0].conditions, "Ready")
    assert ready is not None
    assert ready.status == "True"
    assert "NodeRegistrationHealthy" in {event.reason for event in failing.cluster.events if event.name == "default"}
    failing.kubelets.boot_seconds = 20
    failing.deploy(builders.pod("more", cpu_millicores=1800), 3)
    assert failing.run(20 * MINUTES, until=lambda: status(failing) == "True")


def test_a_changed_class_or_pool_begins_anew(failing: World) -> None:
    assert failing.run(17 * MINUTES, until=lambda: status(failing) == "False")
    failing.forget_deployments()
    nodeclass = failing.cluster.nodeclasses()[0]
    failing.cluster.put(
        "ec2nodeclasses", builders.nodeclass(metadata=msgspec.structs.replace(nodeclass.metadata, generation=2))
    )
    assert failing.run(11 * MINUTES, until=lambda: status(failing) == "Unknown")


@pytest.mark.parametrize("changed", ["nodepools", "ec2nodeclasses"])
@pytest.mark.parametrize("fails", ["save_registration_health", "set_conditions"])
@pytest.mark.parametrize("after_change", [True, False], ids=["after its effect", "before its effect"])
def test_a_change_begins_anew_though_a_write_fails_in_between(
    failing: World, changed: str, fails: str, after_change: bool
) -> None:
    assert failing.run(17 * MINUTES, until=lambda: status(failing) == "False")
    failing.forget_deployments()
    (present,) = failing.cluster.all(changed)
    metadata = msgspec.structs.replace(present.metadata, generation=2)
    failing.cluster.put(changed, msgspec.structs.replace(present, metadata=metadata))
    port = "cluster" if fails == "set_conditions" else "state"
    failing.effects.inject(Fault(port, fails, Unavailable("no answer"), after_change=after_change))
    for _ in range(3):
        with suppress(Unavailable):
            lifecycle(failing.ports, [Doorbell(failing.cluster.name, "nodepools")], now=failing.clock.now())
    assert status(failing) == "Unknown"


def test_e24_a_claim_of_an_earlier_pool_of_the_name_does_not_count(failing: World) -> None:
    assert failing.run(60, until=lambda: len(failing.claims()) == 2)
    failing.cluster.remove("nodepools", "default")
    failing.cluster.put("nodepools", builders.nodepool())
    failing.forget_deployments()
    failing.cluster.remove("pods", "default/inflate-0001")
    failing.cluster.remove("pods", "default/inflate-0002")
    failing.run(18 * MINUTES)
    assert failing.claims() == ()
    assert status(failing) == "Unknown"


def test_a_lost_table_changes_nothing(failing: World) -> None:
    assert failing.run(17 * MINUTES, until=lambda: status(failing) == "False")
    failing.state.registrations.clear()
    failing.run(12 * MINUTES)
    assert status(failing) == "False"


def test_a_claim_that_expires_before_it_joins_is_no_failed_registration(failing: World) -> None:
    """Its node had less time than a node has to join."""
    failing.cluster.update("nodepools", "default", expire_after_seconds=10 * MINUTES)
    failing.run(5)
    first = {claim.name for claim in failing.claims()}
    assert first
    assert failing.run(11 * MINUTES, until=lambda: first.isdisjoint(claim.name for claim in failing.claims()))
    failing.run(12 * MINUTES)
    assert status(failing) == "Unknown"


def give_up_two_launches(world: World) -> None:
    """Two nodes are wanted, and not launched in time."""
    world.deploy(ONE_EACH, 2)
    assert world.run(20, until=lambda: len(world.claims()) == 2)
    first = {claim.name for claim in world.claims()}
    assert world.run(6 * MINUTES, until=lambda: not first & {claim.name for claim in world.claims()})
    world.run(10)


@pytest.mark.parametrize("at_first", [None, InvalidRequest("the template is malformed", code="InvalidParameterValue")])
def test_nodes_that_had_to_wait_for_their_turn_did_not_fail(world: World, at_first: InvalidRequest | None) -> None:
    """More are wanted than the account may start for ten minutes. ``at_first``: what kept them from asking."""
    if at_first is not None:
        world.effects.inject(Fault("ec2", "ensure_launch_template", at_first))
    full = token_bucket.full_bucket(token_bucket.STARTED_INSTANCES, now_ms=world.clock.milliseconds())
    debt = -10 * MINUTES * token_bucket.max_refill_per_second(token_bucket.STARTED_INSTANCES)
    world.state.rates[full.action] = msgspec.structs.replace(full, tokens=debt)
    give_up_two_launches(world)
    assert status(world) == "Unknown"
    assert world.run(20 * MINUTES, until=lambda: len(world.running_pods()) == 2)
    assert status(world) == "True"


def test_nodes_that_ec2_refuses_as_too_many_at_once_did_not_fail(world: World) -> None:
    """It was asked for them, and starts none until others are long started."""
    said = "Account 1 has been throttled on ec2:CreateFleet because it exceeded its resource rate limit."
    throttled = Throttled(said, code="RequestLimitExceeded")
    world.effects.inject(Fault("ec2", "create_fleet", throttled, times=10**6))
    give_up_two_launches(world)
    assert status(world) == "Unknown"


def test_a_launch_that_ec2_does_not_answer_fails(world: World) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=10**6))
    world.deploy(ONE_EACH, 2)
    assert world.run(12 * MINUTES, until=lambda: status(world) == "False")


@pytest.mark.parametrize("call", ["ensure_launch_template", "create_fleet"])
def test_a_launch_that_ec2_refuses_fails(world: World, call: str) -> None:
    """Also where CreateFleet is never called."""
    refusal = InvalidRequest("the user data is malformed", code="InvalidUserData.Malformed")
    world.effects.inject(Fault("ec2", call, refusal, times=10**6))
    world.deploy(ONE_EACH, 2)
    assert world.run(12 * MINUTES, until=lambda: status(world) == "False")


def test_a_claim_whose_lost_launch_goes_on_and_waits_for_its_turn_fails(world: World) -> None:
    """EC2 may have been asked for its instance before."""
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=10**6))
    world.deploy(ONE_EACH, 2)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    rows = {key: row for key, row in world.state.rows.items() if isinstance(row, LaunchRow)}
    for key, row in rows.items():
        world.state.rows[key] = msgspec.structs.replace(row, attempt=1, request="", failure="", requested_at=0)
    for claim in world.claims():
        give_up(world.ports, claim, Deletion("launch_timeout", "not Launched"), world.clock.now())
    assert world.run(2 * MINUTES, until=lambda: status(world) == "False")


def test_a_claim_whose_launch_is_lost_fails(world: World) -> None:
    """EC2 may have been asked for its instance."""
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=10**6))
    world.deploy(ONE_EACH, 2)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    for key in [key for key, row in world.state.rows.items() if isinstance(row, LaunchRow)]:
        del world.state.rows[key]
    for claim in world.claims():
        give_up(world.ports, claim, Deletion("launch_timeout", "not Launched"), world.clock.now())
    assert world.run(2 * MINUTES, until=lambda: status(world) == "False")
