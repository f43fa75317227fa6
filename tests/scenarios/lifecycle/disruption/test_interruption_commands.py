"""Commands of interrupted nodes: how often they are looked at, and what they do when their replacements change."""

import re
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import actions, commands, nodeclaims
from spotwright.workflows.lifecycle.commands import (
    BOOTING_LOOK_SECONDS,
    COMMANDS_TOLD,
    LONGEST_LOOK_SECONDS,
    REPLACEMENT_CHANGED,
)
from spotwright.workflows.lifecycle.joining import initialization
from spotwright.workflows.lifecycle.workflow import lifecycle, step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import CommandRow
from tests.scenarios.lifecycle.disruption.interrupted_nodes import (
    MOVING,
    bells_of,
    gathered,
    initialized,
    longest_wait,
    running,
    warn,
)


def test_commands_of_notices_are_looked_at_when_their_launches_have_begun() -> None:
    """They have nothing to do before, and what they read would be read beside CreateFleet. No pod keeps their nodes."""
    world = running(2)
    world.doorbells.messages.clear()
    interrupted = [claim.name for claim in world.claims()]
    warn(world, *world.claims())
    gathered(world)
    reads = world.effects.reads.copy()
    lifecycle(world.ports, bells_of(world, "notice"), now=world.clock.now())
    assert (world.effects.reads - reads)["cluster", "node"] == 2, "one for each, to taint it and to tell it"
    bells = world.doorbells.messages_of("lifecycle", "command")
    assert [bell.at - world.clock.milliseconds() for bell in bells] == [5_000, 5_000]
    reads = world.effects.reads.copy()
    lifecycle(world.ports, [bell.doorbell for bell in bells], now=world.clock.now())
    assert (world.effects.reads - reads)["cluster", "pods"] == 0
    assert [command.phase for command in world.state.commands()] == ["waiting", "waiting"]
    assert all(claim.is_condition_true("DisruptionReason") for claim in world.claims() if claim.name in interrupted)


def test_commands_read_launches_only_for_a_replacement_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(4)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    world.run(8)
    read = Counter[str]()
    usual = world.state.launches

    def launches(**arguments: Any) -> Any:
        read["launches"] += 1
        return usual(**arguments)

    monkeypatch.setattr(world.state, "launches", launches)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    versions = [command.version for command in world.state.commands()]
    for command in world.state.commands():
        lifecycle(world.ports, [Doorbell(world.cluster.name, "command", command.id)], now=world.clock.now())
    assert [command.version - 1 for command in world.state.commands()] == versions, "each took a step"
    assert not read
    world.clock.advance(20)
    (replacement,) = world.state.commands()[0].replacements
    world.cluster.remove("nodeclaims", replacement)
    bell = Doorbell(world.cluster.name, "command", world.state.commands()[0].id)
    lifecycle(world.ports, [bell], now=world.clock.now())
    assert read["launches"] >= 1


def look(world: World) -> list[Doorbell]:
    """Doorbells for all commands that are open."""
    return [Doorbell(world.cluster.name, "command", command.id) for command in world.state.commands()]


def test_commands_of_a_batch_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nodes are replaced by fewer, larger ones: each replacement is read once, whoever waits for it."""
    world = running(10)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    world.run(8)
    read = Counter[str]()

    def rows(ids: Collection[str]) -> tuple[CommandRow, ...]:
        read["rows"] += 1
        return usual(ids)

    usual = world.state.commands_by_id
    monkeypatch.setattr(world.state, "commands_by_id", rows)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    before, bells = world.effects.reads.copy(), look(world)
    replacements = {name for command in world.state.commands() for name in command.replacements}
    versions = [command.version for command in world.state.commands()]
    assert len(bells) == 10
    assert not step_doorbells(world.ports, bells, now=world.clock.now())
    assert [command.version - 1 for command in world.state.commands()] == versions, "each took a step"
    assert read == {"rows": 1}
    assert (world.effects.reads - before)["cluster", "nodeclaim"] == len(replacements)


def test_a_command_that_fails_does_not_keep_those_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: its doorbell comes back, the others' do not."""
    world = running(3)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    world.run(5)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    bells, usual = look(world), world.state.save

    def save(row: Any) -> Any:
        if isinstance(row, CommandRow) and row.id == bells[1].key:
            raise ValueError("the row is beyond understanding")
        return usual(row)

    monkeypatch.setattr(world.state, "save", save)
    versions = {command.id: command.version for command in world.state.commands()}
    failed = step_doorbells(world.ports, bells, now=world.clock.now())
    assert list(failed) == [bells[1]]
    stepped = {command.id for command in world.state.commands() if command.version > versions[command.id]}
    assert stepped == {bells[0].key, bells[2].key}


@pytest.mark.parametrize("changes", range(1, 40, 3))
def test_a_batch_of_commands_goes_on_where_it_died(changes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacements are ready; the function dies after so many changes while it deletes the candidates."""
    world = running(3)
    for module in (initialization, nodeclaims):
        monkeypatch.setattr(module, "ring_commands", lambda *_: None)
    warn(world, *world.claims())
    before = {claim.metadata.uid for claim in world.claims()}

    def are_replaced() -> bool:
        names = tuple(name for command in world.state.commands() for name in command.replacements)
        return bool(names) and initialized(world, names)

    assert world.run(100, until=are_replaced)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    world.effects.crash_after(changes)
    with suppress(Crash):
        step_doorbells(world.ports, look(world), now=world.clock.now())
    world.effects.crash_after(None)
    assert longest_wait(world, 150) <= MOVING
    assert not world.state.commands()
    assert before.isdisjoint(claim.metadata.uid for claim in world.claims())
    assert len(world.running_pods()) == len(world.claims()) == len(world.ec2.live_instances()) == 3


@pytest.mark.parametrize(("is_told", "last"), [(True, {LONGEST_LOOK_SECONDS}), (False, {6, 7, 8})])
def test_a_replacement_that_takes_long_is_looked_at_less_often(*, is_told: bool, last: set[int]) -> None:
    """Rarely, since it rings; one that does not know of the command after five seconds, then a tenth of the time."""
    world = running(1)
    (interrupted,) = world.claims()
    warn(world, interrupted)
    world.run(2)
    (replacement,) = [claim for claim in world.claims() if claim.name != interrupted.name]
    world.kubelets.broken_instances.add(instance_id(replacement.provider_id))
    if not is_told:
        annotations = {key: value for key, value in replacement.metadata.annotations.items() if key != labels.COMMANDS}
        world.cluster.put(
            "nodeclaims",
            msgspec.structs.replace(
                replacement, metadata=msgspec.structs.replace(replacement.metadata, annotations=annotations)
            ),
        )
    world.run(70)
    (command,) = world.state.commands()
    looks = [
        effect for effect in world.effects.select("state", "save") if effect.subject == f"command#{command.id} waiting"
    ]
    seconds = [round((later.at - earlier.at).total_seconds()) for earlier, later in pairwise(looks)]
    assert seconds[1] == (5 if not is_told else LONGEST_LOOK_SECONDS)
    assert seconds[-1] in last
    assert len(looks) <= (15 if not is_told else 7)
    assert world.run(120, until=lambda: not world.state.commands()), "the deadline ends it all the same"


def booting_replacements(seconds: int) -> tuple[World, dict[str, str]]:
    """Two interrupted nodes whose replacements take so long to boot; and the replacement of each command."""
    world = running(2)
    world.kubelets.boot_seconds = seconds
    warn(world, *world.claims())
    assert world.run(10, until=lambda: sum(claim.is_condition_true("Launched") for claim in world.claims()) == 4)
    world.run(6)
    return world, {command.id: command.replacements[0] for command in world.state.commands()}


def leaving(world: World) -> int:
    return sum(claim.metadata.deletion_timestamp is not None for claim in world.claims())


def test_a_node_goes_when_its_replacement_is_initialized_though_looks_are_rare() -> None:
    world, replacements = booting_replacements(50)
    begun = len(world.effects.log)
    names = set(replacements.values())

    def is_initialized() -> bool:
        return all(claim.is_condition_true("Initialized") for claim in world.claims() if claim.name in names)

    assert world.run(90, until=is_initialized)
    seen = Counter(effect.subject for effect in world.effects.log[begun:] if effect.subject.startswith("command#"))
    assert max(seen.values()) <= 1 + 60 // LONGEST_LOOK_SECONDS
    assert world.run(3, until=lambda: leaving(world) == 2)
    node = world.cluster.node(next(claim.node_name for claim in world.claims() if claim.name in names))
    assert node is not None
    assert labels.COMMANDS not in node.metadata.annotations


def test_a_replacement_that_is_deleted_is_noticed_at_once() -> None:
    world, replacements = booting_replacements(80)
    command, name = next(iter(replacements.items()))
    world.run(3)
    claim = world.cluster.nodeclaim(name)
    assert claim is not None
    world.cluster.delete("nodeclaims", claim.metadata)

    def is_aborted() -> bool:
        row = world.state.command(command)
        return row is not None and row.phase == "aborted"

    assert world.run(5, until=is_aborted)


def test_without_the_doorbell_of_the_replacement_the_next_look_comes_within_a_quarter_of_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, replacements = booting_replacements(30)
    names = set(replacements.values())
    for module in (initialization, nodeclaims):
        monkeypatch.setattr(module, "ring_commands", lambda *_: None)

    def are_initialized() -> bool:
        return all(claim.is_condition_true("Initialized") for claim in world.claims() if claim.name in names)

    assert world.run(60, until=are_initialized)
    assert world.run(LONGEST_LOOK_SECONDS + 2, until=lambda: leaving(world) == 2)


def test_a_node_goes_at_its_deadline_though_the_look_before_is_less_than_a_quarter_of_a_minute_old() -> None:
    world, replacements = booting_replacements(600)
    command = next(iter(replacements))
    row = world.state.command(command)
    assert row is not None
    world.run(round((row.deadline - world.clock.milliseconds()) / 1000 - LONGEST_LOOK_SECONDS / 2))
    row = world.state.command(command)
    assert row is not None
    world.state.save(msgspec.structs.replace(row, due=world.clock.milliseconds()))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "command", command)], now=world.clock.now())
    waits = world.state.command(command)
    assert waits is not None
    assert (waits.phase, waits.due) == ("waiting", row.deadline)
    assert world.run(LONGEST_LOOK_SECONDS, until=lambda: leaving(world) == 2)
    assert world.clock.milliseconds() <= row.deadline + 1000


def test_a_look_that_fails_when_the_replacement_is_initialized_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, replacements = booting_replacements(50)
    names, usual, failed = set(replacements.values()), actions.claims_by_name, Counter[str]()

    def read(*arguments: Any) -> Any:
        found = usual(*arguments)
        if any(name in names and claim.is_condition_true("Initialized") for name, claim in found.items()):
            failed["reads"] += 1
            if failed["reads"] <= 2:
                raise Unavailable("the API server does not answer")
        return found

    monkeypatch.setattr(commands, "claims_by_name", read)
    assert world.run(90, until=lambda: failed["reads"] > 0)
    assert world.run(6, until=lambda: leaving(world) == 2)


def early_bells(world: World, ids: Collection[str]) -> list[Doorbell]:
    """As a replacement rings that becomes initialized."""
    return [Doorbell(world.cluster.name, "command", id, REPLACEMENT_CHANGED) for id in ids]


def test_a_replacement_that_was_initialized_once_stays_so_between_two_looks() -> None:
    """Somebody deletes it before the other one is initialized: the command is not given up, its node goes."""
    world, replacements = booting_replacements(80)
    command, first = next(iter(replacements.items()))
    row = world.state.command(command)
    assert row is not None
    other = next(name for name in replacements.values() if name != first)
    world.state.save(msgspec.structs.replace(row, replacements=(first, other)))
    claim = world.cluster.nodeclaim(first)
    assert claim is not None
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=(Condition("Initialized", "True"),)))
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    world.cluster.remove("nodeclaims", first)
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    after = world.state.command(command)
    assert after is not None
    assert (after.phase, after.initialized_replacements) == ("waiting", (first,))
    assert after.due == row.due, "the look that is to come stays"


def test_a_command_that_is_done_is_not_taken_back_by_a_late_doorbell_while_disruption_is_paused() -> None:
    world, replacements = booting_replacements(80)
    command = next(iter(replacements))
    row = world.state.command(command)
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="done", due=0, forced=False))
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, disruption_paused=True)
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    after = world.state.command(command)
    assert after is not None
    assert after.phase == "done"


def test_a_claim_that_has_no_instance_yet_is_looked_at_every_five_seconds() -> None:
    """Its launch may fail before there is a claim that could ring."""
    world, replacements = booting_replacements(80)
    command, name = next(iter(replacements.items()))
    claim = world.cluster.nodeclaim(name)
    assert claim is not None
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=()))
    world.clock.advance(LONGEST_LOOK_SECONDS)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "command", command)], now=world.clock.now())
    row = world.state.command(command)
    assert row is not None
    assert row.due - world.clock.milliseconds() == BOOTING_LOOK_SECONDS * 1000


def test_a_command_that_fails_after_its_node_was_tainted_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(1)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    monkeypatch.setattr(commands, "_check_replacements", _fails_once(commands._check_replacements))
    assert world.run(20, until=lambda: any(command.phase == "waiting" for command in world.state.commands()))
    (command,) = world.state.commands()
    world.run(3)
    (after,) = world.state.commands()
    assert after.version > command.version, "it was looked at again"


def _fails_once(usual: Any) -> Any:
    failed = Counter[str]()

    def call(*arguments: Any) -> Any:
        failed["calls"] += 1
        if failed["calls"] == 1:
            raise Unavailable("no answer")
        return usual(*arguments)

    return call


def test_a_look_that_fails_while_another_worker_puts_off_the_next_one_is_taken_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one read the replacement before it was initialized."""
    world, replacements = booting_replacements(80)
    command, name = next(iter(replacements.items()))
    row, claim = world.state.command(command), world.cluster.nodeclaim(name)
    assert row is not None
    assert claim is not None
    world.state.save(msgspec.structs.replace(row, due=world.clock.milliseconds()))
    others = (condition for condition in claim.conditions if condition.type != "Initialized")
    conditions = (*others, Condition("Initialized", "True"))
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=conditions))

    def read(*_: Any) -> Any:
        monkeypatch.undo()
        stored = world.state.command(command)
        assert stored is not None
        due = world.clock.milliseconds() + LONGEST_LOOK_SECONDS * 1000
        world.state.save(msgspec.structs.replace(stored, due=due))
        raise Unavailable("the API server does not answer")

    monkeypatch.setattr(commands, "claims_by_name", read)
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    assert world.run(4, until=lambda: leaving(world) == 1)


def test_of_what_a_user_writes_as_commands_of_a_claim_only_ids_ring_and_few() -> None:
    """The longest would be no key of the state table: it would keep all commands that are read with it."""
    world, replacements = booting_replacements(50)
    command, name = next(iter(replacements.items()))
    claim = world.cluster.nodeclaim(name)
    assert claim is not None
    written = ",".join([" ", "x" * 2000, "command#\x01", command, *(f"{number:016x}" for number in range(15_000))])
    metadata = msgspec.structs.replace(
        claim.metadata, annotations=claim.metadata.annotations | {labels.COMMANDS: written}
    )
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata))
    begun = len(world.effects.log)
    assert world.run(90, until=lambda: leaving(world) == 2)
    ids = {id for effect in world.effects.log[begun:] for id in re.findall(r"lifecycle/command:(\S*)", effect.subject)}
    assert command in ids
    assert {len(id) for id in ids} == {len(command)}
    assert len(ids) <= COMMANDS_TOLD + 1
