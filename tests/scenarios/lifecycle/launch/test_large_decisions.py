"""Decisions with thousands of pods and nodes: rows stay small, and what cannot be stored keeps nothing else."""

import re
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import Decision, Disruption, Launch, encode_decision, group_into_launches
from spotwright.errors import InvalidRequest, Unavailable
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.scheduling.plan import NewNode, Plan
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.state import MAXIMUM_ITEM_BYTES
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.commands import COMMANDS_TOLD
from spotwright.workflows.lifecycle.launch.decisions import act_on_decisions
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.rows import LaunchRow, NominationRow

# The longest names that Kubernetes takes: of a namespace, a pod, a NodePool.
NAMESPACE, POD, POOL = "n" * 63, "p" * 247, "q" * 253
RACK = "example.com/rack"
UID = "00000000-0000-0000-0000-000000000000"


def pods(count: int, start: int = 0) -> tuple[str, ...]:
    return tuple(f"{NAMESPACE}/{POD}{number:06}" for number in range(start, start + count))


def node(*of: str, **fields: Any) -> NewNode:
    types = tuple(f"m7gd-flex.{number}xlarge" for number in range(600))
    made = NewNode(
        nodepool=POOL, nodeclass=POOL, pods=of, instance_types=types,
        requirements=(NodeSelectorRequirement("node.kubernetes.io/instance-type", Operator.IN, types),),
        labels={}, taints=(), startup_taints=(), requests={"cpu": 1}, price_picousd_per_hour=1, capacity_type="spot",
        zones=("a",), relaxed_preferences=of,
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


def commit(world: World, id: str, *launches: Launch) -> None:
    row = world.state.cluster()
    decision = Decision(
        id, "provision", world.cluster.name, row.version, world.clock.now(), "", "", "", launches=launches
    )
    world.state.commit(expected_version=row.version, key=world.blobs.put("decisions", encode_decision(decision)))


def act(world: World, seconds_left: SecondsLeft = None) -> list[LaunchRow]:
    """Act on what is committed without buying; the launches that would be bought."""
    bought: list[LaunchRow] = []
    act_on_decisions(world.ports, now=world.clock.now(), buy=bought.append, seconds_left=seconds_left)
    return bought


def size(row: LaunchRow | NominationRow) -> int:
    return len(msgspec.json.encode(row))


def test_rows_of_a_hundred_thousand_pods_stay_below_the_limit_until_every_node_is_there(world: World) -> None:
    """Names are as long as Kubernetes allows, and nodes hold as many pods as their limit allows."""
    nodes = tuple(node(*pods(250, start=250 * number)) for number in range(400))
    waiting = dict.fromkeys((pod for made in nodes for pod in made.pods), UID)
    commit(world, "d", *group_into_launches("d", Plan(new_nodes=nodes), waiting))
    act(world)
    rows = world.state.launches()
    assert [len(row.claims) for row in rows] == [100, 100, 100, 100]
    assert len({name for row in rows for name in row.claims}) == 400
    nominations = world.state.nominations()
    assert {key for row in nominations for key in row.pods} == waiting.keys()
    for row in rows:
        instances = dict.fromkeys(row.claims, "i-0123456789abcdef0")
        grown = msgspec.structs.replace(
            row, uids=dict.fromkeys(row.claims, UID), instances=instances, request="x" * 100_000
        )
        assert size(grown) < MAXIMUM_ITEM_BYTES / 2
    assert max(map(size, nominations)) < MAXIMUM_ITEM_BYTES / 2


def test_a_row_keeps_few_of_the_commands_that_wait_for_its_claims(world: World) -> None:
    """Pods of 500 nodes go to each of a hundred new ones."""
    (launch,) = group_into_launches("d", Plan(new_nodes=tuple(node(pod) for pod in pods(100))), {})
    disruptions = tuple(
        Disruption(f"{number:016x}", "Interrupted", (f"old-{number}",), {}, launch.claims, deadline=1)
        for number in range(500)
    )
    row = world.state.cluster()
    decision = Decision(
        "d", "interrupt", world.cluster.name, row.version, world.clock.now(), "", "", "", launches=(launch,),
        stored_disruptions=disruptions,
    )  # fmt: skip
    world.state.commit(expected_version=row.version, key=world.blobs.put("decisions", encode_decision(decision)))
    act(world)
    (stored,) = world.state.launches()
    assert {len(ids) for ids in stored.commands.values()} == {COMMANDS_TOLD}
    assert size(stored) < MAXIMUM_ITEM_BYTES / 2


@pytest.mark.parametrize("faults", [0, 1], ids=["", "NodePools cannot be read"])
def test_a_launch_that_cannot_be_stored_is_set_aside_and_later_ones_go_on(
    world: World, faults: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A NodePool may be larger than a row."""
    world.effects.inject(Fault("cluster", "nodepool", Unavailable("no answer"), times=faults))
    huge = NodeSelectorRequirement(RACK, Operator.IN, tuple(f"rack-{n:060}" for n in range(8000)))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    commit(world, "large", Launch("large", ("default-large",), node("default/a", requirements=(huge,))))
    commit(world, "small", Launch("small", ("default-small",), node("default/b", nodepool="default")))
    act(world)
    rows = world.state.launches()
    assert [row.id for row in rows] == ["small"]
    assert not world.state.cluster().pending_decisions
    assert [message.at for message in world.doorbells.messages_of("provision", "pods")]
    assert "state table refused row, set aside" in caplog.text
    assert world.run(200, until=lambda: len(world.running_pods()) == 2)


def test_a_nodepool_says_that_a_launch_is_too_large_to_be_stored(world: World) -> None:
    """Nothing but a log line did, again and again, while its pods were told of one NodeClaim after the other."""
    racks = tuple(f"rack-{n:055}" for n in range(8000))
    world.cluster.update("nodepools", "default", requirements=(NodeSelectorRequirement(RACK, Operator.IN, racks),))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    world.run(130)
    assert not world.claims()
    (told,) = {
        (event.kind, event.name, event.message) for event in world.cluster.events if event.reason == "LaunchNotStored"
    }
    assert told[:2] == ("nodepools", "default")
    assert re.fullmatch(r"1 node cannot be launched: the state table takes 400 KB .* this one of 5\d\d KB", told[2])
    world.cluster.update("nodepools", "default", requirements=())
    assert world.run(240, until=lambda: len(world.running_pods()) == 1)


def test_a_launch_that_is_refused_for_something_else_than_its_size_is_not_said_to_be_too_large(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would find anything to change in the NodePool."""
    world.effects.inject(Fault("state", "create", InvalidRequest("no such index", code="ValidationException")))
    commit(world, "small", Launch("small", ("default-small",), node("default/b", nodepool="default")))
    act(world)
    assert "state table refused row, set aside" in caplog.text
    assert not world.cluster.events


def test_a_nomination_that_cannot_be_stored_keeps_neither_its_launch_nor_others(world: World) -> None:
    waiting = dict.fromkeys(pods(2000), UID)
    launches = group_into_launches(
        "d", Plan(new_nodes=(node(*waiting), node("default/a"))), waiting | {"default/a": UID}
    )
    commit(world, "d", *launches)
    (row,) = act(world)
    assert len(row.claims) == 2
    assert [nomination.pods for nomination in world.state.nominations()] == [{"default/a": UID}]


def nominations(world: World, since: int = 0) -> list[str]:
    """Nominations that were created, alone or together."""
    keys = (key for effect in world.effects.log[since:] for key in effect.subject.split(" ") if effect.port == "state")
    return [key for key in keys if key.startswith("nomination#")]


def test_acting_on_a_decision_goes_on_where_it_stopped_and_buys_first(world: World) -> None:
    """Time ends after the first of three launches: all three are rung for, and the next invocation does the rest."""
    nodes = tuple(node(*pods(2, start=2 * number)) for number in range(250))
    waiting = dict.fromkeys((pod for made in nodes for pod in made.pods), UID)
    commit(world, "d", *group_into_launches("d", Plan(new_nodes=nodes), waiting))
    left = iter((60.0, 3.0))
    (first,) = act(world, seconds_left=lambda: next(left))
    rung = {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "launch")}
    assert {first.id, *rung} == {row.id for row in world.state.launches()}
    assert len(world.state.nominations()) == 100
    assert world.state.cluster().pending_decisions
    assert [message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "decision")] == ["d"]
    begun = len(world.effects.log)
    act(world)
    assert len(world.state.nominations()) == 250
    assert len(nominations(world, begun)) == 150, "what was written before is not tried again"
    assert not world.state.cluster().pending_decisions


def test_launches_come_before_whatever_else_is_stored_of_a_decision(world: World) -> None:
    nodes = tuple(node(*pods(2, start=2 * number)) for number in range(150))
    waiting = dict.fromkeys((pod for made in nodes for pod in made.pods), UID)
    commit(world, "d", *group_into_launches("d", Plan(new_nodes=nodes), waiting))
    act(world)
    made = [effect.subject.partition("#")[0] for effect in world.effects.select("state", "create")]
    assert made == ["launch"] * 2 + ["nomination"] * 2, "the last of each launch"
    assert len(nominations(world)) == 150
    (rung, *_) = world.effects.select("doorbells", "ring")
    (nominated, *_) = [effect for effect in world.effects.log if effect.subject.startswith("nomination#")]
    assert rung.number < nominated.number


def test_instances_are_bought_before_nominations_are_stored(world: World) -> None:
    nodes = tuple(node(*pods(2, start=2 * number)) for number in range(50))
    waiting = dict.fromkeys((pod for made in nodes for pod in made.pods), UID)
    commit(world, "d", *group_into_launches("d", Plan(new_nodes=nodes), waiting))
    stored: list[int] = []
    act_on_decisions(
        world.ports, now=world.clock.now(), buy=lambda _: stored.append(len(world.effects.select("state", "create")))
    )
    assert stored == [1]
    assert len(world.state.nominations()) == 50


def test_what_another_invocation_has_begun_is_not_begun_again_and_keeps_no_later_launch(world: World) -> None:
    """Two decisions at the same time: the second is acted on while the first one's CreateFleet takes its seconds."""
    bought: list[str] = []

    def commit_node(number: int) -> None:
        made = (node(*pods(2, start=2 * number)),)
        waiting = dict.fromkeys(made[0].pods, UID)
        commit(world, f"d{number}", *group_into_launches(f"d{number}", Plan(new_nodes=made), waiting))

    def buy(row: LaunchRow) -> None:
        bought.append(row.decision)
        if row.decision == "d0":
            commit_node(1)
            act_on_decisions(world.ports, now=world.clock.now(), buy=buy)

    commit_node(0)
    act_on_decisions(world.ports, now=world.clock.now(), buy=buy)
    assert bought == ["d0", "d1"]
    (again,) = world.doorbells.messages_of("lifecycle", "launch")
    assert again.at - world.clock.milliseconds() >= 5_000
    launch = world.state.launch(again.doorbell.key)
    assert launch is not None
    assert launch.decision == "d0"


def test_a_launch_that_fails_keeps_no_decision_waiting(world: World) -> None:
    def fail(_: LaunchRow) -> None:
        raise ValueError("not foreseen")

    for number in range(2):
        made = (node(*pods(2, start=2 * number)),)
        waiting = dict.fromkeys(made[0].pods, UID)
        commit(world, f"d{number}", *group_into_launches(f"d{number}", Plan(new_nodes=made), waiting))
    with pytest.raises(ValueError, match="not foreseen"):
        act_on_decisions(world.ports, now=world.clock.now(), buy=fail)
    assert not world.state.cluster().pending_decisions
    assert len(world.state.launches()) == len(world.state.nominations()) == 2
    assert {row.due for row in world.state.launches()} != {0}


def test_what_is_history_holds_neither_pods_nor_requests(world: World) -> None:
    """Finished rows stay for a day, and every plan passes over them."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(200, until=lambda: len(world.running_pods()) == 3)
    world.run(200)
    assert {row.phase for row in world.state.rows.values()} == {"done"}
    assert all(not row.pods for row in world.state.rows.values() if isinstance(row, NominationRow))
    assert [row.request for row in world.state.rows.values() if isinstance(row, LaunchRow)] == [""]


def test_the_instances_of_a_launch_of_an_earlier_version_are_written_in_several_passes(world: World) -> None:
    """Such a launch may have more than a hundred nodes."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 5)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spotwright.workflows.lifecycle.launch.assignment.CLAIMS_AT_ONCE", 2)
        assert world.run(200, until=lambda: len(world.running_pods()) == 5)
    assert len(world.ec2.all_instances()) == 5
