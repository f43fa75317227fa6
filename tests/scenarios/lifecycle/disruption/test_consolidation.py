"""Nodes that are larger or more than their pods need: what replaces them, and everything that keeps them."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.disruption import consolidation
from spotwright.disruption.breaker import Batch
from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import SPOT_TO_SPOT_CONSOLIDATION, LaunchedInMinute, Snapshot
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.inputs import abort_proposal, gather_and_plan
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.ports.rows import CommandRow, NoticeRow

SMALL = builders.pod("small", cpu_millicores=800)
ON_DEMAND = builders.capacity_types(labels.ON_DEMAND)
EVERY_NODE = (Budget("100%"),)


def types(world: World) -> Counter[str]:
    """The instance types of claims that stay."""
    return Counter(
        claim.metadata.labels.get(labels.INSTANCE_TYPE, "")
        for claim in world.claims()
        if claim.metadata.deletion_timestamp is None
    )


def all_run(world: World, count: int) -> bool:
    return len(world.running_pods()) == count


def on_large_nodes(world: World, pods: int) -> None:
    """On-demand nodes of the largest type, each with eight small pods."""
    only = (*ON_DEMAND, NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("c5.2xlarge",)))
    world.cluster.update("nodepools", "default", requirements=only, budgets=(Budget("0"),))
    world.deploy(SMALL, pods)
    assert world.run(180, until=lambda: all_run(world, pods))
    # What may be bought from now on; the requirements of pool and nodes agree, so that nothing drifts.
    world.cluster.update("nodepools", "default", requirements=ON_DEMAND, budgets=EVERY_NODE)


def messages(world: World, reason: str) -> list[str]:
    return [event.message for event in world.cluster.events if event.reason == reason]


def disruptions(world: World) -> dict[str, list[str]]:
    """Phases of the commands, by reason."""
    found: dict[str, list[str]] = {}
    for row in commands(world):
        found.setdefault(row.reason, []).append(row.phase)
    return found


def test_a_node_too_large_is_replaced_with_a_smaller_one_before_it_goes(world: World) -> None:
    on_large_nodes(world, 8)
    (before,) = world.claims()
    world.deploy(SMALL, 2)
    launched_first = []

    def is_replaced() -> bool:
        names = {claim.name for claim in world.claims()}
        if before.name in names and len(names) > 1:
            launched_first.append(names)
        return before.name not in names

    assert world.run(300, until=is_replaced)
    assert launched_first
    assert world.run(60, until=lambda: all_run(world, 2))
    assert types(world) == {"c5.large": 1}
    assert disruptions(world) == {"Underutilized": ["done"]}
    (approved,) = messages(world, "ConsolidationApproved")
    assert approved.startswith("saves $0.2880/h; 2 evictions")
    assert approved.endswith(f"NodeClaim {before.name} is replaced with on-demand c5.large")
    assert "Disrupting NodeClaim: Underutilized" in messages(world, "DisruptionTerminating")


def test_pods_that_fit_on_other_nodes_move_there_and_nothing_is_bought(world: World) -> None:
    on_large_nodes(world, 16)
    world.cluster.update("nodepools", "default", requirements=(*ON_DEMAND, only("c5.2xlarge")))
    assert len(world.claims()) == 2
    launches = len(world.ec2.requests)
    world.deploy(SMALL, 7)
    assert world.run(300, until=lambda: len(world.claims()) == 1)
    assert world.run(60, until=lambda: all_run(world, 7))
    assert len(world.ec2.requests) == launches


@pytest.mark.usefixtures("pods_differ")
def test_each_node_is_a_command_that_waits_for_the_new_nodes_of_its_own_pods(world: World) -> None:
    on_large_nodes(world, 24)
    world.cluster.update("nodepools", "default", requirements=(*ON_DEMAND, only("c5.large")))
    world.deploy(SMALL, 9)
    assert world.run(120, until=lambda: len([row for row in commands(world) if row.phase != "proposed"]) > 1)
    rows = [row for row in commands(world) if row.phase != "proposed"]
    assert {len(row.candidates) for row in rows} == {1}
    replacements = {name for row in rows for name in row.replacements}
    assert all(set(row.replacements) <= replacements for row in rows)
    assert world.run(300, until=lambda: set(types(world)) == {"c5.large"})
    assert world.run(60, until=lambda: all_run(world, 9))


def only(name: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, (name,))


def test_the_price_settles_and_nothing_moves_any_more(world: World) -> None:
    """Every step is worth more than it costs, so that there is a last one."""
    on_large_nodes(world, 24)
    world.deploy(SMALL, 5)
    world.run(1200)
    settled, requests = types(world), len(world.ec2.requests)
    assert all_run(world, 5)
    world.run(1800)
    assert (types(world), len(world.ec2.requests)) == (settled, requests)
    assert {phase for phases in disruptions(world).values() for phase in phases} <= {"done", "aborted"}


def test_a_decision_to_consolidate_is_replayed_as_it_was_made(world: World) -> None:
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    assert world.run(300, until=lambda: types(world) == {"c5.large": 1})
    heads = {row.decision for row in commands(world)}
    keys = [key for key in world.blobs.bodies if key.startswith("decisions/")]
    results = [replay(key, blobs=world.ports.blobs, catalogs=world.ports.catalogs) for key in keys]
    ours = [result for result in results if result.decision.id in heads]
    assert ours
    assert all(result.agrees for result in ours)


def commands(world: World) -> list[CommandRow]:
    rows = [world.state.command(key.removeprefix("command#")) for key in world.state.rows if key.startswith("command#")]
    return [row for row in rows if row is not None]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"consolidation_policy": "WhenEmpty"}, 'NodePool "default" has non-empty consolidation disabled'),
        ({"consolidate_after_seconds": None}, 'NodePool "default" has consolidation disabled'),
    ],
)
def test_a_pool_that_does_not_want_it_keeps_its_nodes_and_says_so(
    world: World, fields: dict[str, object], said: str
) -> None:
    on_large_nodes(world, 8)
    world.cluster.update("nodepools", "default", **fields)
    world.deploy(SMALL, 2)
    world.run(300)
    assert types(world) == {"c5.2xlarge": 1}
    assert said in messages(world, "Unconsolidatable")


def test_a_saving_that_does_not_pay_for_its_evictions_is_left(world: World) -> None:
    """Forty tiny pods on m5.large, which on c5.large would be $0.022 cheaper: $0.53 a day for forty evictions."""
    tiny = builders.pod("tiny", cpu_millicores=40, memory_bytes=2**20)
    world.cluster.update("nodepools", "default", requirements=(*ON_DEMAND, only("m5.large")), budgets=(Budget("0"),))
    world.deploy(tiny, 40)
    assert world.run(180, until=lambda: all_run(world, 40))
    world.cluster.update("nodepools", "default", requirements=ON_DEMAND, budgets=EVERY_NODE)
    costly = {labels.POD_DELETION_COST: str(2**27)}
    for pod in world.running_pods():
        about = msgspec.structs.replace(pod.metadata, annotations=costly)
        world.cluster.put("pods", msgspec.structs.replace(pod, metadata=about))
    world.run(300)
    assert types(world) == {"m5.large": 1}
    assert any("so much cheaper that it pays" in message for message in messages(world, "Unconsolidatable"))


def test_a_spot_node_is_replaced_with_a_spot_node_only_behind_its_gate(world: World) -> None:
    world.cluster.update("nodepools", "default", requirements=(only("c5.2xlarge"),), budgets=(Budget("0"),))
    world.deploy(SMALL, 8)
    assert world.run(180, until=lambda: all_run(world, 8))
    world.cluster.update("nodepools", "default", requirements=(), budgets=EVERY_NODE)
    world.deploy(SMALL, 2)
    world.run(240)
    assert types(world) == {"c5.2xlarge": 1}
    disabled = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    assert disabled in messages(world, "Unconsolidatable")
    gates = (*world.settings.feature_gates, SPOT_TO_SPOT_CONSOLIDATION)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=gates)
    world.run(1200)
    assert types(world) == {"c5.2xlarge": 1}
    assert any("requires 15 cheaper instance type options" in text for text in messages(world, "Unconsolidatable"))


def test_a_replacement_that_never_comes_ends_the_command_and_the_node_stays(world: World) -> None:
    on_large_nodes(world, 8)
    (before,) = world.claims()
    world.deploy(SMALL, 2)
    world.kubelets.boot_seconds = 3600.0
    assert world.run(1500, until=lambda: "aborted" in disruptions(world).get("Underutilized", []))
    (claim,) = [claim for claim in world.claims() if claim.name == before.name]
    assert claim.metadata.deletion_timestamp is None
    node = world.cluster.node(claim.node_name)
    assert node is not None
    assert labels.DISRUPTED not in {taint.key for taint in node.taints}
    assert all_run(world, 2)


def test_a_do_not_disrupt_pod_that_comes_within_the_fifteen_seconds_keeps_its_node(world: World) -> None:
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    assert world.run(120, until=lambda: any(row.reason == consolidation.REASON for row in commands(world)))
    pod, *_ = world.running_pods()
    about = msgspec.structs.replace(pod.metadata, annotations={labels.DO_NOT_DISRUPT: "true"})
    world.cluster.put("pods", msgspec.structs.replace(pod, metadata=about))
    world.run(120)
    assert types(world) == {"c5.2xlarge": 1}
    assert set(disruptions(world)["Underutilized"]) == {"aborted"}


def proposed(world: World) -> None:
    """Two small pods on a large node, and a proposal to replace it that is not validated yet."""
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    assert world.run(120, until=lambda: any(row.reason == consolidation.REASON for row in commands(world)))


def pods_need_a_node(world: World) -> None:
    waiting = builders.pod("late-0", cpu_millicores=7000)
    world.cluster.put("pods", msgspec.structs.replace(waiting, unschedulable=True))


def a_notice_comes(world: World) -> None:
    (instance,) = world.ec2.live_instances()
    world.state.create(
        NoticeRow(instance_id=instance.id, cluster=builders.CLUSTER, kind=NoticeKind.SPOT_INTERRUPTED, created=1)
    )


def another_proposal_has_it(world: World) -> None:
    (claim,) = world.claims()
    row = CommandRow(
        id="other", cluster=builders.CLUSTER, decision="", reason="Empty", candidates=(claim.name,),
        candidate_uids={claim.name: claim.metadata.uid}, phase="proposed",
    )  # fmt: skip
    world.state.create(row)


def the_ceiling_is_reached(world: World) -> None:
    minute = int(world.clock.now().timestamp()) // 60
    world.state.cluster_row = msgspec.structs.replace(
        world.state.cluster_row, launched=(LaunchedInMinute(minute, 1, world.settings.max_nodes_per_hour),)
    )


def the_breaker_has_nothing_left(world: World) -> None:
    at = int(world.clock.now().timestamp() * 1000)
    world.state.save_breaker(msgspec.structs.replace(world.state.breaker(), batches=(Batch("others", at, 20, 1),)))


def the_evictions_of_the_hour_are_taken(world: World) -> None:
    """Other nodes took the evictions of this hour meanwhile."""
    world.settings = msgspec.structs.replace(world.settings, max_evictions_per_hour=3)
    row = CommandRow(
        id="other", cluster=builders.CLUSTER, decision="", reason=consolidation.REASON, candidates=("another",),
        evictions=2, phase="done", created=int(world.clock.now().timestamp() * 1000),
    )  # fmt: skip
    world.state.create(row)


@pytest.mark.parametrize(
    ("happen", "why"),
    [
        (pods_need_a_node, "1 node is needed for pending pods first"),
        (a_notice_comes, "1 node is needed for pending pods first"),
        (another_proposal_has_it, "another disruption or an interruption notice holds the node"),
        (the_ceiling_is_reached, "pod default/small-"),
        (the_breaker_has_nothing_left, "the breaker admits no more nodes now (setting BREAKER_PERCENT)"),
        (the_evictions_of_the_hour_are_taken, "no more than 1 eviction may be made for the sake of price now: "),
    ],
)
def test_what_happens_within_the_fifteen_seconds_counts_and_is_told(
    world: World, happen: Callable[[World], None], why: str
) -> None:
    proposed(world)
    (row,) = [row for row in commands(world) if row.phase == "proposed"]
    happen(world)
    later = datetime.fromtimestamp(row.created / 1000, UTC) + timedelta(seconds=16)
    result = validate(world.ports, row.id, clock=lambda: later)
    assert result.committed == ()
    assert not world.state.cluster_row.pending_decisions
    assert [found.phase for found in commands(world) if found.id == row.id] == ["aborted"]
    (rejected,) = messages(world, "ConsolidationRejected")
    assert f"is replaced with on-demand c5.large, reason: {why}" in rejected
    assert rejected.endswith(" (savings: $0.2880/h)")


def test_a_candidate_that_a_user_deletes_costs_no_second_node(world: World) -> None:
    """Its replacement is empty for a moment, and is removed as such; nobody is planned for it then."""
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    assert world.run(200, until=lambda: any(row.phase == "waiting" for row in commands(world)))
    (old, *_) = [claim for claim in world.claims() if claim.metadata.labels.get(labels.INSTANCE_TYPE) == "c5.2xlarge"]
    bought = len(world.ec2.all_instances())
    world.cluster.delete("nodeclaims", old.metadata)
    world.run(600)
    assert len(world.ec2.all_instances()) - bought <= 1
    assert all_run(world, 2)


def test_a_node_that_is_decided_to_go_takes_no_pods_of_others(world: World) -> None:
    """Also before it is tainted; an empty one only those of nodes that would go."""
    on_large_nodes(world, 16)
    (_, second) = world.claims()
    for reason in ("Empty", "Drifted", "Underutilized"):
        row = CommandRow(
            id=reason, cluster=builders.CLUSTER, decision="", reason=reason, candidates=(second.name,),
            candidate_uids={second.name: second.metadata.uid}, phase="planned",
        )  # fmt: skip
        world.state.create(row)
        snapshot, _, _ = gather_and_plan(world.ports, gather_live, world.clock.now(), None)
        assert leaving(snapshot) == [second.name], reason
        snapshot = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
        assert leaving(snapshot) == ([] if reason == "Empty" else [second.name]), reason
        stored = world.state.command(reason)
        assert stored is not None
        world.state.save(msgspec.structs.replace(stored, phase="aborted"))
        snapshot, _, _ = gather_and_plan(world.ports, gather_live, world.clock.now(), None)
        assert leaving(snapshot) == []


def leaving(snapshot: Snapshot) -> list[str]:
    return [claim.name for claim in snapshot.nodeclaims if claim.metadata.deletion_timestamp is not None]


def test_budgets_bound_how_many_nodes_are_consolidated_at_once(world: World) -> None:
    on_large_nodes(world, 32)
    world.cluster.update("nodepools", "default", budgets=(Budget("1"),))
    world.deploy(SMALL, 8)
    most = 0
    for _ in range(900):
        world.run(1)
        # One whose instance terminates counts for no budget any more.
        claims = [claim for claim in world.claims() if not claim.is_condition_true("InstanceTerminating")]
        nodes = [world.cluster.node(claim.node_name) for claim in claims if claim.node_name]
        leaving = [node for node in nodes if node and any(taint.key == labels.DISRUPTED for taint in node.taints)]
        most = max(most, len(leaving))
    assert most == 1
    assert len(types(world)) == 1
    assert all_run(world, 8)


def evictions_of_hour(world: World) -> int:
    return sum(row.evictions for row in commands(world) if row.phase != "aborted")


def test_no_more_pods_are_evicted_for_price_than_the_setting_allows_in_an_hour(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, max_evictions_per_hour=4)
    large = (*ON_DEMAND, only("c5.2xlarge"))
    world.cluster.update("nodepools", "default", requirements=large, budgets=(Budget("0"),))
    apps = [builders.pod(name, cpu_millicores=800) for name in ("first", "second", "third", "fourth")]
    for number, app in enumerate(apps, start=1):
        world.deploy(app, 8)
        assert world.run(180, until=partial(all_run, world, 8 * number))
    world.cluster.update("nodepools", "default", requirements=ON_DEMAND, budgets=EVERY_NODE)
    for app in apps:
        world.deploy(app, 3)
    world.run(3000)
    used = evictions_of_hour(world)
    assert 0 < used <= 4
    assert set(types(world)) == {"c5.2xlarge"}
    approved = messages(world, "ConsolidationApproved")
    assert approved[-1].endswith(f"; {used} evictions of 4 within the hour (setting MAX_EVICTIONS_PER_HOUR)")
    assert any(
        message.endswith("may be made for the sake of price now: setting MAX_EVICTIONS_PER_HOUR is 4")
        for message in messages(world, "Unconsolidatable")
    )
    assert world.run(3600, until=lambda: types(world)["c5.large"] > 0)
    assert world.run(60, until=lambda: all_run(world, 12))


def test_two_minutes_of_an_api_server_that_fails_lose_nothing(world: World) -> None:
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    world.run(20)
    world.effects.inject(Fault("cluster", "*", Unavailable("the API server does not answer"), times=40))
    world.run(600)
    assert types(world) == {"c5.large": 1}
    assert all_run(world, 2)


def test_a_doorbell_that_comes_twice_does_not_give_up_what_was_committed(world: World) -> None:
    """Its nodes are being bought: without the command they would run beside those that they replace."""
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    assert world.run(120, until=lambda: any(row.reason == consolidation.REASON for row in commands(world)))
    (proposal,) = (row.id for row in commands(world) if row.reason == consolidation.REASON)
    later = world.clock.now() + timedelta(seconds=16)
    assert validate(world.ports, proposal, clock=lambda: later).committed
    validate(world.ports, proposal, clock=lambda: later + timedelta(seconds=1))
    assert disruptions(world)["Underutilized"] == ["proposed"]
    assert messages(world, "ConsolidationRejected") == []
    assert world.run(300, until=lambda: types(world) == {"c5.large": 1})
    assert disruptions(world)["Underutilized"] == ["done"]


def test_a_proposal_that_is_committed_while_another_worker_gives_it_up_is_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    assert world.run(120, until=lambda: any(row.reason == consolidation.REASON for row in commands(world)))
    (proposal,) = (row for row in commands(world) if row.reason == consolidation.REASON)
    later = world.clock.now() + timedelta(seconds=16)
    save = world.state.save

    def commit_before(row: CommandRow) -> CommandRow:
        monkeypatch.undo()
        assert validate(world.ports, proposal.id, clock=lambda: later).committed
        return save(row)

    monkeypatch.setattr(world.state, "save", commit_before)
    assert abort_proposal(world.ports, proposal)
    assert disruptions(world)["Underutilized"] == ["aborted"]
    assert world.run(300, until=lambda: types(world) == {"c5.large": 1})
    assert disruptions(world)["Underutilized"] == ["done"]
    assert len(world.ec2.all_instances()) == 2
