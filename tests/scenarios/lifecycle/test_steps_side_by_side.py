"""Steps of a batch: different objects side by side, each with its own lines, failures and time."""

from itertools import chain, repeat
from threading import Barrier
from types import ModuleType
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Conflict, Denied, OutOfTime, Throttled, Unavailable
from spotwright.lifecycle.retry import LONGEST_TICK_SECONDS, ONCE_MORE, TERMINATION_TICKS
from spotwright.model import labels
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.lifecycle import interruptions, nodeclaims, nodes, workflow
from spotwright.workflows.lifecycle.gathered_doorbells import GatheredDoorbells
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination
from spotwright.workflows.lifecycle.workflow import ONCE_MORE_SECONDS, lifecycle, step_doorbells
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.doorbells import Doorbell

NODES = 30


def running(world: World, nodes: int) -> None:
    """So many pods, each of which fills a small node."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), nodes)
    assert world.run(120, until=lambda: len(world.running_pods()) == nodes)


def bells_of(world: World, kind: str) -> list[Doorbell]:
    """A doorbell for each claim, or each node."""
    return [
        Doorbell(world.cluster.name, kind, obj.name) for obj in world.cluster.all(f"{kind}s".replace("cl", "nodecl"))
    ]


@pytest.mark.side_by_side
@pytest.mark.parametrize(
    ("kind", "module", "step"), [("claim", nodeclaims, "step_nodeclaim"), ("node", nodes, "step_claim")]
)
def test_a_step_does_not_wait_for_the_steps_of_other_objects(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, module: ModuleType, step: str
) -> None:
    running(world, 3)
    together, taken = Barrier(3, timeout=60), getattr(module, step)

    def wait_for_others(*arguments: Any, **more: Any) -> None:
        together.wait()
        taken(*arguments, **more)

    monkeypatch.setattr(module, step, wait_for_others)
    assert not step_doorbells(world.ports, bells_of(world, kind), now=world.clock.now())
    assert not together.broken


@pytest.mark.side_by_side
def test_many_nodes_join_at_once_and_each_line_names_its_own_launch(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Functions make their steps in threads, as on AWS; none loses a row that they share to another."""
    with caplog.at_level("INFO", "spotwright"):
        running(world, NODES)
        world.run(30)
    launches = {claim.name: claim.metadata.annotations[labels.LAUNCH] for claim in world.claims()}
    lines = [vars(record) for record in caplog.records if record.message == "initialized nodeclaim"]
    assert {line["nodeclaim"]: line["launch"] for line in lines} == launches
    assert len(lines) == NODES
    assert not world.failures
    assert world.effects.reads["state", "call_rate"] == len(world.effects.select("state", "save_call_rate"))
    assert log_lines.CHANGED_CONCURRENTLY.message not in {record.message for record in caplog.records}
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 0)
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(300, until=lambda: not world.claims() and not world.cluster.all("nodes"))
    assert not world.ec2.live_instances()


def test_what_a_node_rang_for_is_read_once(world: World) -> None:
    """The node by its name, its claim with those of the instance; neither is read again before something is written."""
    running(world, 1)
    world.run(150)
    before = world.effects.reads.copy()
    lifecycle(world.ports, bells_of(world, "node"), now=world.clock.now())
    read = world.effects.reads - before
    assert read["cluster", "node"] == 1
    assert read["cluster", "nodeclaim"] == 1


def test_exactly_the_steps_that_fail_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running(world, 4)
    bells = bells_of(world, "claim")
    failing, step = bells[1].key, nodeclaims.step_nodeclaim
    stepped = list[str]()

    def fail(ports: Any, name: str, *arguments: Any, **more: Any) -> None:
        stepped.append(name)
        if name == failing:
            raise Denied("you may not")
        step(ports, name, *arguments, **more)

    monkeypatch.setattr(nodeclaims, "step_nodeclaim", fail)
    assert [*step_doorbells(world.ports, bells, now=world.clock.now())] == [bells[1]]
    assert sorted(stepped) == [bell.key for bell in bells]


@pytest.mark.parametrize("kind", ["claim", "node", "decision", "launch"])
@pytest.mark.parametrize("failure", [Unavailable("no answer"), Throttled("too many"), Conflict("modified")])
def test_a_step_that_gets_no_answer_is_taken_once_more_soon_and_then_when_its_message_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, failure: ApiError
) -> None:
    """An API server that is away for an hour is not asked every few seconds for each node."""
    running(world, 1)
    bell = Doorbell(world.cluster.name, kind, "a")

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(workflow, "handle_doorbell", fail)
    world.doorbells.messages.clear()
    assert not step_doorbells(world.ports, [bell], now=world.clock.now())
    (message,) = world.doorbells.messages
    assert message.at - world.clock.milliseconds() == ONCE_MORE_SECONDS * 1000
    again = message.doorbell
    assert msgspec.structs.replace(again, epoch=0) == bell
    world.doorbells.messages.clear()
    assert [*step_doorbells(world.ports, [again], now=world.clock.now())] == [again]
    assert not world.doorbells.messages


@pytest.mark.parametrize("kind", ["claim", "node", "decision", "launch"])
def test_what_rings_for_the_first_time_is_taken_once_more_beside_what_rang_again(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A node may ring each second; its new doorbell came back three minutes later together with the old one."""
    bells = [Doorbell(world.cluster.name, kind, "a", epoch=epoch) for epoch in (ONCE_MORE, 0)]

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(workflow, "handle_doorbell", fail)
    assert not step_doorbells(world.ports, bells, now=world.clock.now())
    (message,) = world.doorbells.messages
    assert message.doorbell == bells[0]


def test_a_live_claim_that_always_meets_another_change_is_rung_for_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world, 1)
    (bell,) = bells_of(world, "claim")

    def fail(*_: object, **__: object) -> None:
        raise Conflict("modified")

    monkeypatch.setattr(nodeclaims, "_step_live", fail)
    for rung in ([ONCE_MORE], []):
        world.doorbells.messages.clear()
        assert not step_doorbells(world.ports, [bell], now=world.clock.now())
        assert [message.doorbell.epoch for message in world.doorbells.messages] == rung
        bell = msgspec.structs.replace(bell, epoch=ONCE_MORE)


@pytest.mark.parametrize("kind", ["claim", "decision"])
def test_a_step_that_cannot_be_rung_for_once_more_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its message comes back. Other steps of the batch are taken all the same."""
    bells = [Doorbell(world.cluster.name, kind, "a"), Doorbell(world.cluster.name, "nodepools", "")]
    stepped = list[str]()

    def fail(_: object, bell: Doorbell, *__: object, **___: object) -> None:
        stepped.append(bell.kind)
        if bell.kind == kind:
            raise Throttled("too many")

    def refuse(*_: object, **__: object) -> None:
        raise Unavailable("the queue does not answer")

    monkeypatch.setattr(workflow, "handle_doorbell", fail)
    monkeypatch.setattr(world.doorbells, "ring", refuse)
    failures = step_doorbells(world.ports, bells, now=world.clock.now())
    assert bells[0] in failures
    assert stepped == [kind, "nodepools"]


@pytest.mark.parametrize(
    ("epochs", "stepped"),
    [
        ((0, 7), 7),
        ((9, 7), 7),
        ((7, ONCE_MORE), 7),
        ((7, TERMINATION_TICKS + 9), TERMINATION_TICKS + 9),
        ((0, ONCE_MORE, TERMINATION_TICKS + 9), TERMINATION_TICKS + 9),
    ],
)
def test_of_several_doorbells_of_a_claim_its_chain_of_ticks_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, epochs: tuple[int, ...], stepped: int
) -> None:
    taken = list[int]()
    monkeypatch.setattr(workflow, "handle_doorbell", lambda _, bell, *__, **___: taken.append(bell.epoch))
    for order in (epochs, epochs[::-1]):
        bells = [Doorbell(world.cluster.name, "claim", "a", epoch) for epoch in order]
        assert not step_doorbells(world.ports, bells, now=world.clock.now())
    assert taken == [stepped, stepped]


@pytest.mark.parametrize(
    ("first", "seconds"),
    [(1, ONCE_MORE_SECONDS), (99, LONGEST_TICK_SECONDS), (TERMINATION_TICKS + 1, ONCE_MORE_SECONDS)],
)
def test_ticks_that_get_no_answer_for_an_hour_become_few(world: World, first: int, seconds: int) -> None:
    """One that gets none is followed by the next: evictions of a drain wait for it. Messages that fail come back."""
    running(world, 1)
    (claim,) = world.claims()
    world.doorbells.messages.clear()
    world._schedules = lambda: None  # type: ignore[method-assign]
    world.forwarder_runs = False
    world.outages["cluster"] = Unavailable("no answer")
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", claim.name, first)])
    steps, step = list[int](), world._lifecycle

    def count(bells: tuple[Doorbell, ...]) -> None:
        steps.append(int(world.clock.now().timestamp()))
        step(bells)

    world._lifecycle = count  # type: ignore[method-assign]
    world.run(60 * 60)
    assert steps[1] - steps[0] == seconds
    assert len(steps) <= 10 + 3600 / 180
    world.outages.clear()
    assert world.run(600, until=lambda: not world.doorbells.messages)


@pytest.mark.parametrize("kind", ["claim", "node"])
def test_a_step_of_a_node_that_has_everything_is_taken_once_more_as_well(world: World, kind: str) -> None:
    """A tick would end, since nothing is left to wait for."""
    running(world, 1)
    world.run(60)
    (claim,), (node,) = world.claims(), world.cluster.nodes()
    world.cluster.update("nodes", node.name, taints=(DISRUPTED_TAINT,))
    (bell,) = bells_of(world, kind)
    world.effects.inject(Fault("cluster", "set_taints", Unavailable("no answer")))
    world.doorbells.messages.clear()
    world.clock.advance(1)
    for _ in range(2):
        assert not step_doorbells(world.ports, [bell], now=world.clock.now())
        world.clock.advance(ONCE_MORE_SECONDS)
        bell = next(iter(world.doorbells.receive("lifecycle")), bell)
    assert DISRUPTED_TAINT not in world.cluster.nodes()[0].taints
    assert world.claims() == (claim,)


def test_steps_for_which_no_time_is_left_are_rung_for_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running(world, 4)
    bells, stepped = bells_of(world, "claim"), list[str]()
    monkeypatch.setattr(nodeclaims, "step_nodeclaim", lambda _, name, *__, **___: stepped.append(name))
    seconds = iter([30.0, 20.0, 5.0, 4.0])
    world.doorbells.messages.clear()
    lifecycle(world.ports, bells, now=world.clock.now(), seconds_left=lambda: next(seconds))
    assert stepped == [bell.key for bell in bells[:2]]
    assert [message.doorbell for message in world.doorbells.messages] == bells[2:]
    assert len({message.at for message in world.doorbells.messages}) == 1


def end_of_time(*_: object, **__: object) -> None:
    raise OutOfTime("GET /api/v1/nodes: the invocation ends soon", code="OutOfTime")


def test_a_step_that_time_ran_out_for_is_rung_for_again_and_does_not_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where an API server takes seconds for each answer, invocations were cut off, and their messages were held back
    for three minutes."""
    running(world, 2)
    bells = bells_of(world, "node")
    monkeypatch.setattr(world.cluster, "pods", end_of_time)
    world.doorbells.messages.clear()
    assert not step_doorbells(world.ports, bells, now=world.clock.now())
    assert [message.doorbell for message in world.doorbells.messages_of("lifecycle", "node")] == bells
    assert log_lines.DOORBELL_FAILED.message not in caplog.messages


def test_a_tick_that_time_ran_out_for_is_followed_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running(world, 1)
    (claim,) = world.claims()
    # A tick of a claim that has everything ends before it looks at pods.
    world.cluster.update("nodeclaims", claim.name, annotations={labels.INSTANCE_TAGGED: "false"})
    monkeypatch.setattr(world.cluster, "pods", end_of_time)
    world.doorbells.messages.clear()
    bell = Doorbell(world.cluster.name, "claim", claim.name, epoch=7)
    assert not step_doorbells(world.ports, [bell], now=world.clock.now())
    rung = [message.doorbell for message in world.doorbells.messages_of("lifecycle", "claim")]
    assert rung == [msgspec.structs.replace(bell, epoch=8)]


def test_notices_that_time_ran_out_for_come_back_to_their_own_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruptions, "step_notices", end_of_time)
    bell = Doorbell(world.cluster.name, "notice", "i-1")
    assert [*step_doorbells(world.ports, [bell], now=world.clock.now())] == [bell]
    assert not world.doorbells.messages_of("lifecycle", "notice")


def test_doorbells_that_cannot_be_rung_again_are_reported(world: World) -> None:
    running(world, 2)
    bells = bells_of(world, "claim")
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=1))
    assert [*step_doorbells(world.ports, bells, now=world.clock.now(), seconds_left=lambda: 0.0)] == bells


def test_what_was_rung_for_again_is_not_taken_again_when_other_doorbells_are_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world, 2)
    bells, seconds = bells_of(world, "claim"), chain([30.0], repeat(5.0))

    def lose(_: GatheredDoorbells) -> None:
        raise Unavailable("no queue")

    monkeypatch.setattr(GatheredDoorbells, "send", lose)
    failed = step_doorbells(world.ports, bells, now=world.clock.now(), seconds_left=lambda: next(seconds))
    assert [*failed] == bells[:1]


@pytest.mark.parametrize("epoch", [0, TERMINATION_TICKS + 7, ONCE_MORE])
def test_a_step_whose_instance_cannot_be_terminated_is_taken_once_more_then_it_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """That of a tick, too: the next one is far."""
    running(world, 3)
    bells = [msgspec.structs.replace(bell, epoch=epoch) for bell in bells_of(world, "claim")]
    world.doorbells.messages.clear()
    ending, (instance, *_) = bells[1].key, world.ec2.live_instances()

    def step(_: object, name: str, to_terminate: list[InstanceTermination], **__: object) -> None:
        to_terminate += [InstanceTermination(instance.id, instance.zone)] if name == ending else []

    def fail(*_: object) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(nodeclaims, "step_nodeclaim", step)
    monkeypatch.setattr(workflow, "terminate_all", fail)
    failed = [*step_doorbells(world.ports, bells, now=world.clock.now())]
    again = [message.doorbell for message in world.doorbells.messages]
    assert (failed, again) == (
        ([bells[1]], []) if epoch == ONCE_MORE else ([], [msgspec.structs.replace(bells[1], epoch=ONCE_MORE)])
    )


def test_a_termination_that_time_ran_out_for_is_rung_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DynamoDB takes seconds for each answer: a message that fails is held back for three minutes."""
    running(world, 3)
    bells = bells_of(world, "claim")
    ending, (instance, *_) = bells[1].key, world.ec2.live_instances()

    def step(_: object, name: str, to_terminate: list[InstanceTermination], **__: object) -> None:
        to_terminate += [InstanceTermination(instance.id, instance.zone)] if name == ending else []

    monkeypatch.setattr(nodeclaims, "step_nodeclaim", step)
    monkeypatch.setattr(workflow, "terminate_all", end_of_time)
    world.doorbells.messages.clear()
    assert not step_doorbells(world.ports, bells, now=world.clock.now())
    assert [message.doorbell for message in world.doorbells.messages_of("lifecycle", "claim")] == [bells[1]]


def test_a_claim_and_its_node_take_their_steps_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world, 2)
    side_by_side = list[set[str]]()

    def note(work: Any, steps: list[tuple[Doorbell, ...]], **more: Any) -> list[Any]:
        side_by_side.append({bell.kind for bells in steps for bell in bells})
        return in_parallel(work, steps, **more)

    monkeypatch.setattr("spotwright.workflows.lifecycle.workflow.in_parallel", note)
    assert not step_doorbells(world.ports, [*bells_of(world, "node"), *bells_of(world, "claim")], now=world.clock.now())
    assert side_by_side == [{"claim"}, {"node"}]
