"""Launches while EC2 misbehaves: every pod runs in the end, nothing is bought twice, nothing is leaked."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from spotwright.aws import token_bucket
from spotwright.aws.launch import create_fleet, fleet_errors
from spotwright.errors import ApiError, InvalidRequest, Throttled, Unavailable
from spotwright.model.ec2.fleet import FleetError, FleetResult
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.taints import Taint, TaintEffect, Toleration
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import LaunchRow
from spotwright.workflows.sweep.full import full_sweep

THROTTLED = Throttled("too many requests", code="RequestLimitExceeded")


def deployed(world: World, pods: int = 1) -> World:
    """One pod fills a small node, so there are as many nodes as pods."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), pods)
    return world


def all_run(world: World, pods: int, seconds: int = 300) -> bool:
    return world.run(seconds, until=lambda: len(world.running_pods()) == pods)


def is_tidy(world: World) -> bool:
    live = sorted(instance.id for instance in world.ec2.live_instances())
    return sorted(instance_id(claim.provider_id) for claim in world.claims()) == live


def first_call(world: World, does: Callable[[Mapping[str, Any]], FleetResult]) -> None:
    """The first CreateFleet is answered by ``does``, every further one as always."""
    usual = world.ec2.create_fleet

    def answer(request: Mapping[str, Any]) -> FleetResult:
        world.ec2.create_fleet = usual  # type: ignore[method-assign]
        return does(request)

    world.ec2.create_fleet = answer  # type: ignore[method-assign]


def test_instances_and_unknown_errors_together(world: World) -> None:
    """What came is used at once; the rest is asked for again under a new token."""
    pool = ("spot", "c5.large", builders.ZONES[0])
    world.ec2.capacity[("spot", "*", "*")] = 0
    world.ec2.capacity[("on-demand", "*", "*")] = 0
    for zone in builders.ZONES:
        world.ec2.error_codes[("spot", "c5.large", zone)] = "NeverHeardOf"
    deployed(world, 3)
    world.run(3)
    assert not world.ec2.live_instances()
    assert {health.code for health in world.state.health.values()} <= {"InsufficientInstanceCapacity"}
    world.ec2.capacity.clear()
    world.ec2.error_codes.clear()
    world.ec2.capacity[pool] = 1
    assert all_run(world, 3)
    assert is_tidy(world)


def test_instances_that_come_with_an_unknown_error_wait_for_no_other_instance(world: World) -> None:
    usual = world.ec2.create_fleet

    def one_of_three(request: Mapping[str, Any]) -> FleetResult:
        single = {"TargetCapacitySpecification": request["TargetCapacitySpecification"] | {"TotalTargetCapacity": 1}}
        result = usual(dict(request) | single)
        return FleetResult(result.instances, (FleetError("NeverHeardOf", "", capacity_type="spot"),))

    first_call(world, one_of_three)
    deployed(world, 3)
    world.run(1)
    assert sum(claim.is_condition_true("Launched") for claim in world.claims()) == 1
    assert all_run(world, 3)
    assert is_tidy(world)


@pytest.mark.parametrize("code", ["InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"])
def test_templates_that_are_gone_are_made_again_at_once_and_once(world: World, code: str) -> None:
    def gone(request: Mapping[str, Any]) -> FleetResult:
        world.ec2.forget_templates()
        raise InvalidRequest("there is no such template", code=code)

    first_call(world, gone)
    deployed(world)
    world.run(1)
    assert len(world.ec2.live_instances()) == 1
    assert len(world.effects.select("ec2", "ensure_launch_template")) == 2
    assert all_run(world, 1)


def test_templates_that_stay_away_are_waited_for(world: World) -> None:
    invalid_request = InvalidRequest("there is no such template", code="InvalidLaunchTemplateId.NotFound")
    world.effects.inject(Fault("ec2", "create_fleet", invalid_request, times=3))
    deployed(world)
    world.run(1)
    assert not world.ec2.live_instances()
    assert all_run(world, 1)
    assert is_tidy(world)


def test_a_template_that_ec2_does_not_know_yet_is_asked_for_again_after_a_second(world: World) -> None:
    invalid_request = InvalidRequest("there is no such template", code="InvalidLaunchTemplateId.NotFound")
    world.effects.inject(Fault("ec2", "create_fleet", invalid_request, times=2))
    deployed(world)
    assert world.run(3, until=lambda: bool(world.ec2.live_instances()))


def test_a_token_that_was_used_for_something_else_is_left_and_its_instances_are_adopted(world: World) -> None:
    """As after the loss of a row: an earlier life of the launch has bought already."""

    def used(request: Mapping[str, Any]) -> FleetResult:
        world.ec2.create_fleet(dict(request) | {"Context": "another life"})
        return world.ec2.create_fleet(request)

    first_call(world, used)
    deployed(world)
    assert all_run(world, 1)
    world.run(120)
    assert len(world.ec2.all_instances()) == 1
    assert is_tidy(world)


def test_a_retry_by_newer_code_sends_what_was_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), after_change=True))
    deployed(world, 2)
    sent: list[Mapping[str, Any]] = []
    usual = world.ec2.create_fleet

    def send(request: Mapping[str, Any]) -> FleetResult:
        sent.append(request)
        return usual(request)

    monkeypatch.setattr(world.ec2, "create_fleet", send)
    world.run(1)
    monkeypatch.setattr(create_fleet, "create_fleet_request", lambda *_, **__: pytest.fail("the request was made anew"))
    assert all_run(world, 2)
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert len(world.ec2.all_instances()) == 2


def test_the_function_dies_when_the_fleet_is_there(world: World) -> None:
    deployed(world, 4)
    world.effects.crash_at("ec2", "create_fleet")
    with pytest.raises(Crash):
        world.run(5)
    assert all_run(world, 4, seconds=400)
    world.run(120)
    assert len(world.ec2.all_instances()) == 4
    assert is_tidy(world)


@pytest.mark.parametrize(
    "action", ["create_fleet", "ensure_launch_template", "launch_template", "instances_of_launch", "instance", "tag"]
)
def test_throttling_of_each_call_delays_and_no_more(world: World, action: str) -> None:
    world.effects.inject(Fault("ec2", action, THROTTLED, times=4))
    deployed(world, 2)
    assert all_run(world, 2)
    world.run(120)
    assert len(world.ec2.all_instances()) == 2
    assert is_tidy(world)


def test_throttling_of_every_call_at_once(world: World) -> None:
    for action in ("create_fleet", "ensure_launch_template", "launch_template", "instances_of_launch", "instance"):
        world.effects.inject(Fault("ec2", action, THROTTLED, times=3))
    deployed(world, 2)
    assert all_run(world, 2, seconds=600)
    assert is_tidy(world)


def test_a_refusal_for_being_too_fast_halves_the_pace_of_all(world: World) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", THROTTLED))
    deployed(world)
    assert all_run(world, 1)
    assert world.state.rates["CreateFleet"].throttled_at_ms > 0
    assert world.state.rates["CreateFleet"].refill_per_second < token_bucket.max_refill_per_second("CreateFleet")


def test_a_launch_waits_for_its_turn_in_its_row(world: World) -> None:
    full = token_bucket.full_bucket("CreateFleet", now_ms=world.clock.milliseconds())
    world.state.rates["CreateFleet"] = token_bucket.TokenBucket(
        "CreateFleet", full.refill_per_second, -10 * full.refill_per_second, full.updated_at_ms
    )
    deployed(world)
    world.run(3)
    (row,) = world.state.launches()
    assert row.due == row.not_before > world.clock.milliseconds()
    assert not world.ec2.requests
    assert all_run(world, 1)
    assert len(world.ec2.requests) == 1


@pytest.mark.parametrize("lag", [5.0, 40.0])
def test_stale_reads_only_delay(world: World, lag: float) -> None:
    world.ec2.lag_seconds = lag
    deployed(world, 3)
    assert all_run(world, 3, seconds=400)
    world.run(180)
    assert len(world.ec2.all_instances()) == 3
    assert is_tidy(world)


def test_a_list_that_shows_one_instance_ends_nothing(world: World) -> None:
    deployed(world, 12)
    assert all_run(world, 12)
    world.ec2.listed_ids = frozenset({world.ec2.live_instances()[0].id})
    world.run(1300)
    assert len(world.running_pods()) == 12
    assert len(world.ec2.all_instances()) == 12


def test_claims_that_a_list_does_not_show_make_many_orphans_and_none_is_touched(world: World) -> None:
    deployed(world, 12)
    assert all_run(world, 12)
    every = world.claims()
    world.cluster.nodeclaims = lambda: every[:1]  # type: ignore[method-assign]
    assert full_sweep(world, now=world.clock.now()).orphans in (-1, 0)
    assert not [message for message in world.doorbells.messages if message.doorbell.kind == "instance"]


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("InsufficientInstanceCapacity", {"on-demand"}),
        ("MaxSpotInstanceCountExceeded", {"on-demand"}),
        ("VcpuLimitExceeded", {"on-demand"}),
        ("Unsupported", {"on-demand"}),
        ("UnfulfillableCapacity", {"on-demand"}),
    ],
)
def test_what_is_left_is_planned_at_once(world: World, code: str, left: set[str]) -> None:
    """Spot gives nothing: one more round, at the same moment, buys on-demand."""
    for name in ("m5.large", "m5.xlarge", "c5.large", "c5.2xlarge"):
        for zone in builders.ZONES:
            world.ec2.capacity[("spot", name, zone)] = 0
            world.ec2.error_codes[("spot", name, zone)] = code
    deployed(world, 5)
    world.run(2)
    assert {instance.capacity_type for instance in world.ec2.live_instances()} == left
    assert all_run(world, 5)
    assert is_tidy(world)


WHOLE_REQUESTS = {code: fleet_errors.failure_reason(FleetError(code, "")) for code in fleet_errors.CAPACITY_CODES}


@pytest.mark.parametrize("code", sorted(WHOLE_REQUESTS))
def test_what_refuses_the_whole_request_is_told_of_and_tried_again_ever_later(world: World, code: str) -> None:
    """EC2 names no type then, so that no offering is closed: NodeClaims wait instead of being made again."""
    usual, calls = world.ec2.create_fleet, []

    def refuse(request: Mapping[str, Any]) -> FleetResult:
        calls.append(request)
        raise ApiError("you have requested more vCPU capacity than your limit of 5", code=code)

    world.ec2.create_fleet = refuse  # type: ignore[method-assign]
    deployed(world)
    world.run(240)
    (claim,) = world.claims()
    (launched,) = (condition for condition in claim.conditions if condition.type == "Launched")
    assert (launched.status, launched.reason) == ("Unknown", WHOLE_REQUESTS[code])
    assert "more vCPU capacity than your limit of 5" in launched.message
    assert len(calls) < 15
    world.ec2.create_fleet = usual  # type: ignore[method-assign]
    assert all_run(world, 1, seconds=180)
    assert is_tidy(world)


def test_a_refusal_that_closes_what_is_closed_already_is_tried_again_ever_later(world: World) -> None:
    """Without the role for spot nothing is bought on demand either: the second launch says nothing that is new."""
    calls: list[Mapping[str, Any]] = []

    def refuse(request: Mapping[str, Any]) -> FleetResult:
        calls.append(request)
        raise ApiError("no role", code=fleet_errors.NO_SPOT_ROLE)

    world.ec2.create_fleet = refuse  # type: ignore[method-assign]
    deployed(world)
    world.run(150)
    assert len({event.name for event in world.cluster.events if event.kind == "nodeclaims"}) <= 2
    assert len(calls) < 12


def test_an_answer_without_instances_and_errors_is_asked_for_again_ever_later(world: World) -> None:
    usual = world.ec2.create_fleet
    world.ec2.create_fleet = lambda request: FleetResult()  # type: ignore[method-assign]
    deployed(world)
    world.run(60)
    (claim,) = world.claims()
    world.ec2.create_fleet = usual  # type: ignore[method-assign]
    assert all_run(world, 1, seconds=90)
    assert world.claims() == (world.cluster.nodeclaim(claim.name),)


@pytest.mark.parametrize("refusal", ["pools", "role"])
@pytest.mark.parametrize("seconds", [0, 3])
def test_launches_that_fail_beside_each_other_are_all_planned_again_at_once(
    world: World, refusal: str, seconds: int
) -> None:
    """What one closed while another waited for its answer is news for both, although its invocation is the older."""
    usual = world.ec2.create_fleet
    for zone in builders.ZONES:
        for name in ("m5.large", "m5.xlarge", "c5.large", "c5.2xlarge"):
            world.ec2.capacity[("spot", name, zone)] = 0

    def answer(request: Mapping[str, Any]) -> FleetResult:
        if refusal == "role" and request["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "spot":
            raise ApiError("no role", code=fleet_errors.NO_SPOT_ROLE)
        return usual(request)

    def slow(request: Mapping[str, Any]) -> FleetResult:
        """The other launch was begun some seconds before, and has its answer before this one."""
        world.ec2.create_fleet = answer  # type: ignore[method-assign]
        token = request["ClientToken"]
        (other,) = (row.id for row in world.state.launches() if not token.startswith(row.id[:48]))
        began = world.clock.now() - timedelta(seconds=seconds)
        lifecycle(world.ports, [Doorbell(world.cluster.name, "launch", other)], now=began)
        return answer(request)

    world.ec2.create_fleet = slow  # type: ignore[method-assign]
    for number, pool in enumerate(("default", "second")):
        taint = Taint("only", TaintEffect.NO_SCHEDULE, pool)
        world.cluster.put("nodepools", builders.nodepool(pool, taints=(taint,)))
        tolerations = (Toleration("only", "Equal", pool),)
        world.deploy(builders.pod(f"of{number}", cpu_millicores=1800, tolerations=tolerations), 1)
    world.run(1)
    assert [instance.capacity_type for instance in world.ec2.live_instances()] == ["on-demand", "on-demand"]


def test_a_subnet_without_addresses_closes_its_zone_and_another_is_taken_at_once(world: World) -> None:
    zone = builders.ZONES[0]
    for kind in ("spot", "on-demand"):
        for name in ("m5.large", "m5.xlarge", "c5.large", "c5.2xlarge"):
            world.ec2.capacity[(kind, name, zone)] = 0
            world.ec2.error_codes[(kind, name, zone)] = "InsufficientFreeAddressesInSubnet"
    world.cluster.put("nodepools", builders.nodepool(requirements=builders.capacity_types("spot")))
    deployed(world, 3)
    assert all_run(world, 3)
    assert {instance.zone for instance in world.ec2.live_instances()}.isdisjoint({zone})
    assert [health.key for health in world.state.health.values()] == [f"subnet:subnet-{zone[-1]}:{zone}"]


def test_two_clusters_share_what_one_learns() -> None:
    from tests.scenarios.lifecycle.conftest import fresh_world

    first, second = fresh_world(), fresh_world()
    for zone in builders.ZONES:
        first.ec2.capacity[("spot", "c5.large", zone)] = 0
    assert all_run(deployed(first), 1)
    assert first.state.health
    second.state.health = first.state.health
    deployed(second)
    second.run(2)
    asked = {
        one["InstanceType"] for config in second.ec2.requests[0]["LaunchTemplateConfigs"] for one in config["Overrides"]
    }
    assert "c5.large" not in asked


def test_an_error_of_another_kind_does_not_close_an_offering(world: World) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", ApiError("no", code="UnauthorizedOperation")))
    deployed(world)
    assert all_run(world, 1)
    assert not world.state.health


def test_a_quota_that_is_used_up_is_told_of_and_tried_again_every_three_minutes(world: World) -> None:
    """However often it was reached: it has room as soon as a node ends, or AWS raises it."""
    for kind in ("spot", "on-demand"):
        for name in ("m5.large", "m5.xlarge", "c5.large", "c5.2xlarge"):
            for zone in builders.ZONES:
                world.ec2.capacity[(kind, name, zone)] = 0
                world.ec2.error_codes[(kind, name, zone)] = "VcpuLimitExceeded"
    deployed(world, 5)
    world.run(600)
    assert not world.ec2.live_instances()
    refused, pending = (
        {event.message for event in world.cluster.events if event.reason == reason}
        for reason in ("InsufficientCapacityError", "FailedScheduling")
    )
    quota = "the account's quota of vCPUs for standard (A, C, D, H, I, M, R, T, Z) on-demand instances is used up: "
    assert any(f"{quota}aws service-quotas request-service-quota-increase" in message for message in refused)
    assert all("vCPUs is used up: spotwright preflight names it" in message for message in pending)
    world.ec2.capacity.clear()
    world.ec2.error_codes.clear()
    assert all_run(world, 5, seconds=240)
    assert is_tidy(world)


def test_a_launch_whose_claims_are_gone_waits_a_minute_for_the_answer_to_its_last_request(world: World) -> None:
    """EC2 may be working on that request, though it did not answer, nor the ones before."""
    sent: list[int] = []

    def no_answer(request: Mapping[str, Any]) -> FleetResult:
        sent.append(world.clock.milliseconds())
        raise Unavailable("no answer")

    world.ec2.create_fleet = no_answer  # type: ignore[method-assign]
    deployed(world)
    assert world.run(120, until=lambda: len(sent) > 1 and sent[-1] - sent[0] > 30_000)
    world.forget_deployments()
    for pod in world.cluster.all("pods"):
        world.cluster.remove("pods", pod.key)
    for claim in world.claims():
        world.cluster.remove("nodeclaims", claim.name)
    requests = len(sent)
    assert world.run(
        300,
        until=lambda: {row.phase for row in world.state.rows.values() if isinstance(row, LaunchRow)} == {"done"},
    )
    assert len(sent) == requests
    assert world.clock.milliseconds() - sent[-1] >= 60_000
