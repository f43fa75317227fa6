"""Terminations and tags: at EC2's pace, many in a call, and one that is refused does not keep the others."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from spotwright.aws import token_bucket
from spotwright.errors import ApiError, Denied, NotFound, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetResult
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.termination.instances import (
    INSTANCES_PER_CALL,
    InstanceTermination,
    TerminationResult,
    terminate_all,
    terminate_instances,
)

THROTTLED = Throttled("too many requests", code="RequestLimitExceeded")
NODES = 6


def drained(world: World, nodes: int = NODES) -> list[str]:
    """So many nodes that run a pod each, all of which are deleted now; their instances."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), nodes)
    assert world.run(60, until=lambda: len(world.running_pods()) == nodes)
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    return sorted(instance_id(claim.provider_id) for claim in world.claims())


def is_gone(world: World) -> bool:
    return not world.claims() and not world.cluster.nodes() and not world.ec2.live_instances()


def calls(world: World) -> list[list[str]]:
    """The instances of each TerminateInstances."""
    return [effect.subject.split() for effect in world.effects.select("ec2", "terminate")]


def refusing(world: World, refuses: Callable[[Sequence[str]], None]) -> list[int]:
    """``refuses`` may raise before EC2 ends anything; how many instances each call named, refused ones too."""
    usual, asked = world.ec2.terminate, list[int]()

    def terminate(instance_ids: Sequence[str]) -> frozenset[str]:
        asked.append(len(instance_ids))
        refuses(instance_ids)
        return usual(instance_ids)

    world.ec2.terminate = terminate  # type: ignore[method-assign]
    return asked


def test_a_claim_that_another_invocation_removed_meanwhile_is_no_failed_step(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    drained(world, 1)
    (claim,) = world.claims()
    (instance,) = world.ec2.live_instances()
    removed = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, name="removed"))
    with caplog.at_level("INFO", "spotwright"):
        terminate_all(world.ports, [InstanceTermination(instance.id, instance.zone, removed)], world.clock.now())
    assert not world.ec2.live_instances()
    said = [record.message for record in caplog.records if vars(record).get("object") == "removed"]
    assert said == ["object was changed concurrently, will retry"]


def in_debt(world: World, action: str, calls: int) -> None:
    """Others of the account have used the bucket up: at the fastest rate it takes ``calls`` calls to fill again."""
    full = token_bucket.full_bucket(action, now_ms=world.clock.milliseconds())
    world.state.rates[action] = token_bucket.TokenBucket(
        action, full.refill_per_second, -calls * token_bucket.TOKENS_PER_CALL, full.updated_at_ms
    )


def test_a_drain_of_many_nodes_ends_their_instances_in_one_call(world: World) -> None:
    ids = drained(world)
    assert world.run(120, until=lambda: is_gone(world))
    assert calls(world) == [ids]


def test_throttling_of_every_call_delays_and_halves_the_pace(world: World) -> None:
    ids = drained(world)
    world.effects.inject(Fault("ec2", "terminate", THROTTLED, times=4))
    assert world.run(300, until=lambda: is_gone(world))
    assert sorted(one for call in calls(world) for one in call) == ids
    assert world.state.rates["TerminateInstances"].throttled_at_ms > 0


def test_terminations_wait_for_their_turn(world: World) -> None:
    drained(world)
    in_debt(world, "TerminateInstances", 60)
    world.run(15)
    assert calls(world) == []
    assert world.run(120, until=lambda: is_gone(world))


def test_the_instances_in_calls_are_counted_too(world: World) -> None:
    drained(world)
    in_debt(world, token_bucket.TERMINATED_INSTANCES, 320)
    world.run(15)
    assert calls(world) == []
    assert world.run(120, until=lambda: is_gone(world))


def test_calls_and_instances_are_counted_by_one_read_and_one_write(world: World) -> None:
    drained(world)
    before = world.effects.reads.copy()
    assert world.run(120, until=lambda: is_gone(world))
    assert len(calls(world)) == 1
    assert len(world.effects.select("state", "save_call_rates")) == 1
    assert (world.effects.reads - before)["state", "call_rates"] == 1
    assert not [one for one in world.effects.select("state", "save_call_rate") if "erminate" in one.subject]


def test_while_instances_wait_no_call_is_counted_for_them(world: World) -> None:
    drained(world)
    in_debt(world, token_bucket.TERMINATED_INSTANCES, 320)
    world.run(15)
    assert "TerminateInstances" not in world.state.rates


def test_one_id_that_ec2_no_longer_knows_does_not_keep_the_others(world: World) -> None:
    ids = drained(world)

    def forgets(asked: Sequence[str]) -> None:
        world.ec2.forget_instance(ids[2])

    asked = refusing(world, forgets)
    assert world.run(60, until=lambda: not world.ec2.live_instances())
    assert sorted(one for call in calls(world) for one in call) == [id_ for id_ in ids if id_ != ids[2]]
    assert asked == [NODES, NODES - 1, 1]
    assert world.run(180, until=lambda: is_gone(world))


def test_one_that_may_not_be_ended_does_not_keep_the_others(world: World) -> None:
    ids = drained(world)

    def denies(asked: Sequence[str]) -> None:
        if ids[4] in asked:
            raise Denied("one of them is protected", code="OperationNotPermitted")

    refusing(world, denies)
    world.run(120)
    assert [instance.id for instance in world.ec2.live_instances()] == [ids[4]]
    assert [instance_id(claim.provider_id) for claim in world.claims()] == [ids[4]]


@pytest.mark.parametrize("acted", [True, False])
def test_a_call_without_an_answer_is_made_again(world: World, acted: bool) -> None:
    drained(world)
    world.effects.inject(Fault("ec2", "terminate", Unavailable("no answer"), after_change=acted))
    assert world.run(180, until=lambda: is_gone(world))


def test_the_function_dies_when_the_instances_are_ending(world: World) -> None:
    ids = drained(world)
    world.effects.crash_at("ec2", "terminate")
    with pytest.raises(Crash):
        world.run(60)
    assert world.run(300, until=lambda: is_gone(world))
    assert calls(world) == [ids], "the next look sees that they are ending"


def test_more_than_a_call_holds_are_several_calls(world: World) -> None:
    asked = refusing(world, lambda _: None)
    bought = 2 * INSTANCES_PER_CALL + 1
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (instance,) = world.ec2.live_instances()
    many = [msgspec.structs.replace(instance, id=f"i-{number:08x}") for number in range(bought)]
    world.ec2.instances |= {each.id: each for each in many}
    assert terminate_instances(world, {each.id: each.zone for each in many}, world.clock.now()).terminated_ids == {
        each.id for each in many
    }
    assert asked == [100, 100, 1]


def test_several_orphans_are_ended_together(world: World) -> None:
    ids = drained(world, nodes=3)
    for claim in world.claims():
        world.cluster.remove("nodeclaims", claim.name)
    world.state.rows.clear()
    assert world.run(1300, until=lambda: not world.ec2.live_instances())
    assert calls(world) == [ids]


def test_an_orphan_waits_for_its_turn_as_well(world: World) -> None:
    drained(world, nodes=1)
    for claim in world.claims():
        world.cluster.remove("nodeclaims", claim.name)
    world.state.rows.clear()
    world.effects.inject(Fault("ec2", "terminate", THROTTLED, times=2))
    assert world.run(1300, until=lambda: not world.ec2.live_instances())


def test_tags_wait_for_their_turn_and_keep_nothing_waiting(world: World) -> None:
    in_debt(world, "CreateTags", 320)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(30, until=lambda: len(world.running_pods()) == 3)
    assert not world.effects.select("ec2", "tag")
    assert world.run(
        120, until=lambda: all(labels.NODECLAIM in instance.tags for instance in world.ec2.live_instances())
    )


def test_throttled_tags_halve_their_pace(world: World) -> None:
    world.effects.inject(Fault("ec2", "tag", THROTTLED, times=2))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    assert world.run(120, until=lambda: all("Name" in instance.tags for instance in world.ec2.live_instances()))
    assert world.state.rates["CreateTags"].throttled_at_ms > 0


def test_surplus_waits_for_its_turn_in_its_row(world: World) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(30, until=lambda: len(world.running_pods()) == 1)
    world.run(5)
    (instance,) = world.ec2.live_instances()
    world.ec2.add_instance(msgspec.structs.replace(instance, id="i-surplus"), like=instance.id)
    world.effects.inject(Fault("ec2", "terminate", THROTTLED, times=2))
    assert world.run(120, until=lambda: len(world.ec2.live_instances()) == 1)
    world.run(60)
    assert [row.due for row in world.state.rows.values() if row.due] == []


def test_an_unknown_id_alone_counts_as_ended(world: World) -> None:
    def unknown(_: Sequence[str]) -> None:
        raise NotFound("no", code="InvalidInstanceID.NotFound")

    refusing(world, unknown)
    zones = {"i-gone": builders.ZONES[0]}
    assert terminate_instances(world, zones, world.clock.now()) == TerminationResult(frozenset({"i-gone"}))


def test_the_instances_in_launches_are_counted_too(world: World) -> None:
    in_debt(world, token_bucket.STARTED_INSTANCES, 32)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    world.run(15)
    assert not world.ec2.requests
    assert len(world.claims()) == NODES
    assert world.run(600, until=lambda: len(world.running_pods()) == NODES)


def test_a_launch_that_is_sent_twice_is_counted_once(world: World) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=1))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    assert world.run(60, until=lambda: len(world.running_pods()) == NODES)
    full = token_bucket.full_bucket(token_bucket.STARTED_INSTANCES, now_ms=0).tokens
    assert full - world.state.rates[token_bucket.STARTED_INSTANCES].tokens == NODES * token_bucket.TOKENS_PER_CALL


@pytest.mark.parametrize("counted", ["request", "resource"])
def test_ec2_says_whether_calls_or_instances_were_too_many(world: World, counted: str) -> None:
    said = f"Account 1 has been throttled on ec2:CreateFleet because it exceeded its {counted} rate limit."
    world.effects.inject(Fault("ec2", "create_fleet", Throttled(said, code="RequestLimitExceeded"), times=1))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    assert world.run(120, until=lambda: len(world.running_pods()) == NODES)
    slowed = {name for name, one in world.state.rates.items() if one.throttled_at_ms}
    assert slowed == {"CreateFleet" if counted == "request" else token_bucket.STARTED_INSTANCES}


TOO_MANY_INSTANCES = Throttled(
    "Account 1 has been throttled on ec2:CreateFleet because it exceeded its resource rate limit.",
    code="RequestLimitExceeded",
)


def test_a_request_that_ec2_refuses_for_its_instances_waits_until_so_many_may_be_started(world: World) -> None:
    """It is not sent again every two seconds, and the instances are counted once more: EC2 started none."""
    world.effects.inject(Fault("ec2", "create_fleet", TOO_MANY_INSTANCES, times=3))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    sent: list[int] = []
    usual = world.ec2.create_fleet

    def create_fleet(request: Mapping[str, Any]) -> FleetResult:
        sent.append(world.clock.milliseconds() // 1000)
        return usual(request)

    world.ec2.create_fleet = create_fleet  # type: ignore[method-assign]
    assert world.run(600, until=lambda: len(world.running_pods()) == NODES)
    pauses = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert len(sent) == 4
    assert min(pauses) >= NODES * token_bucket.TOKENS_PER_CALL // token_bucket.max_refill_per_second(
        "instances started"
    )
    assert len(world.ec2.live_instances()) == NODES


def turns(world: World) -> list[int]:
    """Whenever instances are counted from now on, how many may be started afterwards, in millionths."""
    usual, counted = world.state.save_call_rate, list[int]()

    def save_call_rate(rate: token_bucket.TokenBucket) -> None:
        usual(rate)
        if rate.action == token_bucket.STARTED_INSTANCES and rate.throttled_at_ms != world.clock.milliseconds():
            counted.append(rate.tokens)

    world.state.save_call_rate = save_call_rate  # type: ignore[method-assign]
    return counted


def test_a_request_that_waited_its_turn_is_counted_once_though_the_process_ends_when_ec2_answers(world: World) -> None:
    """Its instances run already, and are given to their claims without another wait."""
    world.effects.inject(Fault("ec2", "create_fleet", TOO_MANY_INSTANCES))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    usual = world.ec2.create_fleet

    def create_fleet(request: Mapping[str, Any]) -> FleetResult:
        usual(request)
        raise Crash("the response is lost")

    world.ec2.create_fleet = create_fleet  # type: ignore[method-assign]
    with pytest.raises(Crash):
        world.run(60)
    world.ec2.create_fleet = usual  # type: ignore[method-assign]
    counted = turns(world)
    assert world.run(90, until=lambda: len(world.running_pods()) == NODES)
    assert not counted
    assert len(world.ec2.live_instances()) == NODES


def test_a_request_that_waited_its_turn_is_counted_once_though_calls_have_to_wait_too(world: World) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", TOO_MANY_INSTANCES))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    assert world.run(10, until=lambda: token_bucket.STARTED_INSTANCES in world.state.rates and bool(world.claims()))
    calls_left = world.state.rates["CreateFleet"]
    debt = -10 * token_bucket.max_refill_per_second("CreateFleet")
    world.state.rates["CreateFleet"] = msgspec.structs.replace(calls_left, tokens=debt)
    counted = turns(world)
    assert world.run(120, until=lambda: len(world.running_pods()) == NODES)
    assert len(counted) == 1


@pytest.mark.parametrize("error", [THROTTLED, Unavailable("no answer")])
def test_a_request_that_ec2_does_not_answer_is_sent_again_without_another_turn(world: World, error: ApiError) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", error, times=3))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    assert world.run(5, until=lambda: len(world.claims()) == NODES)
    counted = turns(world)
    assert world.run(90, until=lambda: len(world.running_pods()) == NODES)
    assert not counted


def test_each_instance_of_a_call_is_counted(world: World) -> None:
    ids = drained(world)
    assert world.run(60, until=lambda: is_gone(world))
    full = token_bucket.full_bucket(token_bucket.TERMINATED_INSTANCES, now_ms=world.clock.milliseconds())
    taken = world.state.rates[token_bucket.TERMINATED_INSTANCES]
    before = msgspec.structs.replace(full, updated_at_ms=taken.updated_at_ms)
    assert before.tokens - taken.tokens == len(ids) * token_bucket.TOKENS_PER_CALL
    assert len(calls(world)) == 1
