"""Existing Nodes are read before pods are sure of a place there."""

import msgspec
import pytest

from spotwright.decisions.decide import decide
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.simulation import builders
from spotwright.workflows.planning import confirmation, time_budget
from spotwright.workflows.planning.confirmation import decide_on_read_nodes
from spotwright.workflows.planning.overlay import MAXIMUM_READS, BehindError
from spotwright.workflows.planning.snapshot import gather_live
from tests.scenarios.lifecycle.conftest import fresh_world


def test_the_labels_of_running_pods_are_those_that_were_read() -> None:
    """By them a pod keeps others away from its node, whatever a cluster state says of it."""
    world = fresh_world()
    world.deploy(builders.pod("web", cpu_millicores=100), 1)
    assert world.run(240, until=lambda: len(world.running_pods()) == 1)
    away = PodAffinityTerm(labels.HOSTNAME, (NodeSelectorRequirement("app", Operator.IN, ("web",)),), ("default",))
    world.cluster.put("pods", builders.pod("loner", cpu_millicores=100, pod_anti_affinity=(away,), unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    lie = msgspec.structs.replace(
        true,
        pods=tuple(
            msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels={}))
            if pod.node_name
            else pod
            for pod in true.pods
        ),
    )
    catalog = world.ports.catalogs.read(true.catalog_key)
    assert decide_on_read_nodes(lie, catalog, world.ports, ())[1].existing_nodes, "it would go beside the other"
    snapshot, plan = decide_on_read_nodes(lie, catalog, world.ports, {"default/loner"})
    assert snapshot.pods == true.pods
    assert [node.pods for node in plan.new_nodes] == [("default/loner",)]


def test_a_claim_without_a_node_has_its_room_once_however_often_it_is_shown() -> None:
    world = fresh_world()
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: bool(world.claims()) and bool(world.claims()[0].provider_id))
    asking = builders.pod("two", cpu_millicores=1000, unschedulable=True)
    pods = tuple(
        msgspec.structs.replace(asking, metadata=msgspec.structs.replace(asking.metadata, name=name, uid=name))
        for name in ("one", "two")
    )
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    lie = msgspec.structs.replace(true, pods=pods, nodes=(), nodeclaims=true.nodeclaims * 2)
    catalog = world.ports.catalogs.read(true.catalog_key)
    trusted = decide_on_read_nodes(lie, catalog, world.ports, ())[1]
    assert [len(node.pods) for node in trusted.existing_nodes] == [1, 1]
    snapshot, plan = decide_on_read_nodes(lie, catalog, world.ports, {"default/one", "default/two"})
    assert len(snapshot.nodeclaims) == 1
    assert [len(node.pods) for node in plan.existing_nodes] == [1]


def test_of_hundreds_of_nodes_those_that_take_pods_are_read_by_name() -> None:
    """A wave of notices moves pods to many Nodes; the cluster may have ten times as many, with all of their pods."""
    world, number = fresh_world(), MAXIMUM_READS + 5
    world.deploy(builders.pod("fills", cpu_millicores=1800), number)
    assert world.run(240, until=lambda: len(world.running_pods()) == number)
    away = PodAffinityTerm(labels.HOSTNAME, (NodeSelectorRequirement("app", Operator.IN, ("web",)),), ("default",))
    for place in range(number):
        pod = builders.pod(f"web-{place}", cpu_millicores=10, pod_anti_affinity=(away,), unschedulable=True)
        world.cluster.put("pods", pod)
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    moving = frozenset(pod.key for pod in true.pods if not pod.node_name)
    before = world.effects.reads.copy()
    _, plan = decide_on_read_nodes(true, world.ports.catalogs.read(true.catalog_key), world.ports, moving)
    assert len(plan.existing_nodes) == number
    assert {what: world.effects.reads["cluster", what] - before["cluster", what] for what in ("nodes", "pods")} == {
        "nodes": 0, "pods": 0,
    }  # fmt: skip


def test_more_nodes_than_a_list_is_worth_are_not_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "MAXIMUM_TAKING", 0)
    world = fresh_world()
    world.deploy(builders.pod("fills", cpu_millicores=1800), 1)
    assert world.run(240, until=lambda: len(world.running_pods()) == 1)
    world.cluster.put("pods", builders.pod("web", cpu_millicores=10, unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    catalog = world.ports.catalogs.read(true.catalog_key)
    with pytest.raises(BehindError, match="1 Nodes take pods"):
        decide_on_read_nodes(true, catalog, world.ports, {"default/web"})


def test_pods_whose_nodes_are_never_as_shown_may_wait_and_keep_no_others_from_their_nodes() -> None:
    """While hundreds of nodes join, each round would find another that has been taken since."""
    world, number = fresh_world(), confirmation.ROUNDS + 2
    world.deploy(builders.pod("fills", cpu_millicores=1800), number)
    assert world.run(240, until=lambda: len(world.running_pods()) == number)
    world.cluster.put("pods", builders.pod("late", cpu_millicores=1500, unschedulable=True))
    world.cluster.put("pods", builders.pod("large", cpu_millicores=3700, unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    lie = msgspec.structs.replace(true, pods=tuple(pod for pod in true.pods if not pod.node_name))
    catalog = world.ports.catalogs.read(true.catalog_key)
    with pytest.raises(BehindError, match="not as it shows"):
        decide_on_read_nodes(lie, catalog, world.ports, {"default/late"})
    before = world.effects.reads.copy()
    _, plan = decide_on_read_nodes(lie, catalog, world.ports, {"default/late"}, may_wait=True)
    assert [node.pods for node in plan.existing_nodes] == [("default/late",)]
    assert [node.pods for node in plan.new_nodes] == [("default/large",)]
    assert world.effects.reads["cluster", "node"] - before["cluster", "node"] == confirmation.ROUNDS


def test_what_is_planned_again_is_what_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan may take all the time that was left before it."""
    world, number = fresh_world(), 3
    world.deploy(builders.pod("fills", cpu_millicores=1800), number)
    assert world.run(240, until=lambda: len(world.running_pods()) == number)
    world.cluster.put("pods", builders.pod("late", cpu_millicores=1500, unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    lie = msgspec.structs.replace(true, pods=tuple(pod for pod in true.pods if not pod.node_name))
    left, units, usual = iter((20.0, 18.0, 15.0, 12.0)), list[int](), decide

    def decide_and_note(snapshot: Snapshot, catalog: Catalog) -> Plan:
        units.append(snapshot.settings.work_units)
        return usual(snapshot, catalog)

    def fit(snapshot: Snapshot) -> Snapshot:
        return time_budget.fit(snapshot, lambda: next(left))[0]

    monkeypatch.setattr(confirmation, "decide", decide_and_note)
    catalog = world.ports.catalogs.read(true.catalog_key)
    decide_on_read_nodes(fit(lie), catalog, world.ports, {"default/late"}, may_wait=True, fit=fit)
    assert len(units) == confirmation.ROUNDS + 1
    assert units == sorted(units, reverse=True)
    assert len(set(units)) == len(units)


def test_nodes_that_are_as_they_are_shown_are_planned_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second plan takes as much time as the first, while EC2 takes nodes back."""
    world = fresh_world()
    world.deploy(builders.pod("fills", cpu_millicores=1800), 1)
    assert world.run(240, until=lambda: len(world.running_pods()) == 1)
    world.cluster.put("pods", builders.pod("web", cpu_millicores=10, unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    plans, usual = list[Plan](), decide

    def decide_and_note(snapshot: Snapshot, catalog: Catalog) -> Plan:
        plans.append(usual(snapshot, catalog))
        return plans[-1]

    monkeypatch.setattr(confirmation, "decide", decide_and_note)
    catalog = world.ports.catalogs.read(true.catalog_key)
    snapshot, plan = decide_on_read_nodes(true, catalog, world.ports, {"default/web"})
    assert [node.pods for node in plan.existing_nodes] == [("default/web",)]
    assert len(plans) == 1
    assert snapshot is true


def test_nodes_of_a_stored_snapshot_are_all_of_one_type() -> None:
    """A Node that was read by name says nothing there that a list does not say."""
    world = fresh_world()
    world.deploy(builders.pod("fills", cpu_millicores=1800), 1)
    assert world.run(240, until=lambda: len(world.running_pods()) == 1)
    world.cluster.put("pods", builders.pod("web", cpu_millicores=10, unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    lie = msgspec.structs.replace(true, pods=tuple(pod for pod in true.pods if not pod.node_name))
    catalog = world.ports.catalogs.read(true.catalog_key)
    snapshot, _ = decide_on_read_nodes(lie, catalog, world.ports, {"default/web"})
    assert snapshot.pods == true.pods
    assert b"volume_attachments" not in msgspec.json.encode(snapshot)
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def test_the_last_round_may_find_a_node_that_is_as_it_is_shown() -> None:
    """All other nodes are not; a list would show the same."""
    world, number = fresh_world(), confirmation.ROUNDS
    world.deploy(builders.pod("fills", cpu_millicores=1800), number)
    assert world.run(240, until=lambda: len(world.running_pods()) == number)
    world.cluster.put("pods", builders.pod("late", cpu_millicores=1500, unschedulable=True))
    true = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    hidden = msgspec.structs.replace(true, pods=tuple(pod for pod in true.pods if not pod.node_name))
    catalog, shown, tried = world.ports.catalogs.read(true.catalog_key), true.pods, list[str]()
    while len(tried) < number:
        name = decide(hidden, catalog).existing_nodes[0].name
        tried.append(name)
        there = tuple(pod for pod in shown if pod.node_name == name)
        hidden = msgspec.structs.replace(hidden, pods=(*hidden.pods, *there))
    last = tried[-1]
    for pod in world.running_pods():
        if pod.node_name == last:
            world.cluster.delete("pods", pod.metadata, grace_seconds=0)
    lie = msgspec.structs.replace(true, pods=tuple(pod for pod in true.pods if not pod.node_name))
    _, plan = decide_on_read_nodes(lie, catalog, world.ports, {"default/late"})
    assert [(node.name, node.pods) for node in plan.existing_nodes] == [(last, ("default/late",))]
