"""Roll-outs: a canary goes first, its NodePool says how far it is, and stops when new nodes or their pods fail."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, find_condition
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.evaluate import CANARY_SECONDS
from spotwright.workflows.disrupt.workflow import disrupt
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.disruption.edits import edit, look, stamp

NO_CONSOLIDATION = Budget("0", reasons=("Underutilized",))


def with_nodes(world: World, count: int, budget: str) -> None:
    """So many nodes with a pod each, which only drift disrupts."""
    world.cluster.update("nodepools", "default", budgets=(Budget(budget), NO_CONSOLIDATION))
    stamp(world)
    look(world, "nodepools")
    world.deploy(builders.pod("inflate", cpu_millicores=5000), count)
    assert world.run(180, until=lambda: len(world.running_pods()) == count == len(world.claims()))
    world.run(30)


def relabel(world: World, team: str = "b") -> None:
    edit(world, "nodepools", labels={"team": team})
    look(world, "nodepools")


def teams(world: World) -> list[str]:
    return sorted(claim.metadata.labels.get("team", "") for claim in world.claims())


def disrupted(world: World) -> list[NodeClaim]:
    """As budgets count them."""
    return [
        claim
        for claim in world.claims()
        if claim.is_condition_true("DisruptionReason") and not claim.is_condition_true("InstanceTerminating")
    ]


def told(world: World) -> Condition:
    """What the NodePool says of its roll-out."""
    (pool,) = world.cluster.nodepools()
    return find_condition(pool.conditions, "DriftProgressing") or Condition("DriftProgressing", "", "")


def watch(world: World, seconds: int, until: Callable[[], bool], most: int) -> bool:
    """Let time pass; at no moment are more nodes disrupted than ``most``."""
    for _ in range(seconds):
        world.run(1)
        assert len(disrupted(world)) <= most
        if until():
            return True
    return False


@pytest.mark.parametrize("budget", ["2", "100%"])
def test_the_canary_goes_alone_and_then_the_budget_counts(world: World, budget: str) -> None:
    with_nodes(world, 5, budget)
    relabel(world)
    assert watch(world, 180, lambda: told(world).reason == "CanaryInProgress", most=1)
    assert watch(world, 180, lambda: teams(world).count("b") > 1, most=5 if budget == "100%" else 2)
    assert told(world).reason == "ReplacingNodes"
    assert told(world).message == "1 of 5 nodes replaced; zone ap-northeast-2a next"
    assert world.run(900, until=lambda: told(world).reason == "RolloutComplete")
    assert set(teams(world)) == {"b"}
    assert len(world.running_pods()) == 5


def test_the_others_follow_soon_after_the_canary_has_proved_itself(world: World) -> None:
    """It is looked at every ten seconds, in a single chain of doorbells."""
    with_nodes(world, 3, "100%")
    relabel(world)
    assert world.run(180, until=lambda: told(world).reason == "CanaryInProgress")

    def is_ready() -> bool:
        new = {claim.node_name for claim in world.claims() if "team" in claim.metadata.labels}
        return any(pod.is_ready and pod.node_name in new for pod in world.running_pods())

    assert world.run(180, until=is_ready)
    # Just after the schedule has rung.
    if world.clock.now().second > 40:
        world.run(61 - world.clock.now().second)
    assert world.run(25, until=lambda: len(disrupted(world)) == 2)


def test_however_often_a_canary_is_looked_at_one_doorbell_goes_on(world: World) -> None:
    with_nodes(world, 3, "100%")
    relabel(world)
    assert world.run(180, until=lambda: told(world).reason == "CanaryInProgress")
    world.doorbells.messages = [bell for bell in world.doorbells.messages if bell.queue != "disrupt"]
    world.clock.advance(CANARY_SECONDS)
    for _ in range(5):
        tuple(disrupt(world.ports, [Doorbell(world.cluster.name, "evaluate")], clock=world.clock.now))
    assert len(world.doorbells.messages_of("disrupt", "evaluate")) == 1


def keep_pods_unready(world: World) -> None:
    """From now on pods start and are not Ready on nodes of the new template."""
    for pod in world.cluster.all("pods"):
        node = world.cluster.node(pod.node_name) if pod.node_name else None
        if node is not None and node.metadata.labels.get("team") == "b" and pod.is_ready:
            world.cluster.put("pods", msgspec.structs.replace(pod, is_ready=False))


def test_pods_that_do_not_become_ready_stop_the_roll_out_until_they_are(world: World) -> None:
    with_nodes(world, 4, "2")
    relabel(world)
    for _ in range(900):
        world.run(1)
        keep_pods_unready(world)
        assert len(disrupted(world)) <= 1
    assert teams(world) == ["", "", "", "b"]
    condition = told(world)
    assert (condition.status, condition.reason) == ("False", "PodsNotReady")
    assert condition.message.startswith("1 of 4 nodes replaced; stopped: 1 of 1 pods on the new node ")
    assert "are not Ready after 5 minutes (pod default/inflate-" in condition.message
    stopped = [event for event in world.cluster.events if event.reason == "DriftRolloutStopped"]
    assert {event.name for event in stopped} == {"default"}
    for pod in world.running_pods():
        world.cluster.put("pods", msgspec.structs.replace(pod, is_ready=True))
    assert watch(world, 900, lambda: teams(world) == ["b"] * 4, most=2)


def test_a_replacement_that_is_not_initialized_stops_it_and_another_canary_follows(world: World) -> None:
    with_nodes(world, 4, "100%")
    world.kubelets.boot_seconds = 36_000.0
    relabel(world)
    assert watch(world, 900, lambda: told(world).status == "False", most=1)
    condition = told(world)
    assert condition.reason == "ReplacementNotInitialized"
    assert condition.message.startswith("0 of 4 nodes replaced; stopped: the replacement default-")
    assert "Another canary is tried at " in condition.message
    assert not disrupted(world)
    assert all(labels.DISRUPTED not in {taint.key for taint in node.taints} for node in world.cluster.nodes())
    launched = len(world.effects.select("cluster", "create_nodeclaim"))
    assert not watch(world, 12 * 60, lambda: bool(disrupted(world)), most=0)
    assert len(world.effects.select("cluster", "create_nodeclaim")) == launched
    world.kubelets.boot_seconds = 20.0
    assert watch(world, 5 * 60, lambda: len(disrupted(world)) == 1, most=1)
    assert watch(world, 900, lambda: teams(world) == ["b"] * 4, most=4)


def resume(world: World) -> None:
    """`spotwright resume` forgets what failed."""
    for row in world.state.commands(created_after=0):
        world.state.save(msgspec.structs.replace(row, failed=0))


@pytest.mark.parametrize("joins", [False, True])
def test_resuming_tries_another_canary_at_once(world: World, joins: bool) -> None:
    """The replacement that failed is still there, and no pod is planned for it."""
    with_nodes(world, 3, "100%")
    if joins:
        # Nobody takes this taint away.
        edit(world, "nodepools", startup_taints=(Taint("network.example.com/starting", "NoExecute"),))
    else:
        world.kubelets.boot_seconds = 36_000.0
    relabel(world)
    assert world.run(900, until=lambda: told(world).status == "False")
    failed = {claim.name for claim in world.claims() if not claim.is_condition_true("Initialized")}
    resume(world)
    assert watch(world, 75, lambda: len(disrupted(world)) == 1, most=1)
    assert failed < {claim.name for claim in world.claims() if not claim.is_condition_true("Initialized")}


def test_a_canary_that_failed_and_was_deleted_is_no_obstacle(world: World) -> None:
    with_nodes(world, 3, "100%")
    world.kubelets.boot_seconds = 36_000.0
    relabel(world)
    assert world.run(900, until=lambda: told(world).status == "False")
    (failed,) = [claim for claim in world.claims() if not claim.is_condition_true("Initialized")]
    world.cluster.delete("nodeclaims", failed.metadata)
    world.kubelets.boot_seconds = 20.0
    resume(world)
    assert watch(world, 75, lambda: len(disrupted(world)) == 1, most=1)
    assert watch(world, 900, lambda: teams(world) == ["b"] * 3, most=3)


def test_another_template_is_another_roll_out(world: World) -> None:
    """A stop is about what was tried, and nothing else."""
    with_nodes(world, 3, "100%")
    world.kubelets.boot_seconds = 36_000.0
    relabel(world)
    assert world.run(900, until=lambda: told(world).status == "False")
    world.kubelets.boot_seconds = 20.0
    relabel(world, "c")
    assert world.run(120, until=lambda: len(disrupted(world)) == 1)
    assert world.run(900, until=lambda: teams(world) == ["c"] * 3)


def test_a_nodepool_may_do_without_a_canary(world: World) -> None:
    with_nodes(world, 4, "100%")
    world.cluster.update("nodepools", "default", annotations={labels.DRIFT_ROLLOUT: "Off"})
    relabel(world)
    assert world.run(120, until=lambda: len(disrupted(world)) == 4)
    assert told(world).status == ""


def test_a_pause_stops_between_nodes_and_in_the_middle_of_one(world: World) -> None:
    """A node that waits for its replacement loses its taint; the roll-out goes on when the pause has ended."""
    with_nodes(world, 3, "1")
    relabel(world)
    assert world.run(120, until=lambda: len(disrupted(world)) == 1)
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, disruption_paused=True)
    assert world.run(16, until=lambda: not disrupted(world))
    assert all(labels.DISRUPTED not in {taint.key for taint in node.taints} for node in world.cluster.nodes())
    assert not watch(world, 600, lambda: teams(world).count("") < 3, most=0)
    said = told(world)
    assert (said.status, said.reason) == ("False", "DisruptionPaused")
    assert said.message == "0 of 3 nodes replaced; disruption is paused; `spotwright resume` ends it"
    world.deploy(builders.pod("other", cpu_millicores=5000), 2)
    assert world.run(120, until=lambda: len(world.running_pods()) == 5)
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, disruption_paused=False)
    assert watch(world, 900, lambda: "" not in teams(world), most=1)
    assert told(world).status == "True"


@pytest.mark.parametrize("protected", ["nodes", "pods"])
def test_a_node_that_is_protected_after_the_decision_is_kept(world: World, protected: str) -> None:
    """What was committed and not begun is dropped, with its reason."""
    with_nodes(world, 1, "1")
    (claim,), (pod,) = world.claims(), world.running_pods()
    usual = world.state.commit

    def commit(**fields: Any) -> None:
        usual(**fields)
        name = claim.node_name if protected == "nodes" else pod.key
        world.cluster.update(protected, name, annotations={labels.DO_NOT_DISRUPT: "true"})

    setattr(world.state, "commit", commit)  # noqa: B010 a method
    relabel(world)
    # The replacement that was bought stays empty, and goes.
    assert not world.run(300, until=lambda: claim.name in {going.name for going in disrupted(world)})
    assert claim.name in {staying.name for staying in world.claims()}
    said = [event.message for event in world.cluster.events if event.reason == "DisruptionBlocked"]
    assert any("karpenter.sh/do-not-disrupt annotation" in message for message in said)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    assert labels.DISRUPTED not in {taint.key for taint in node.taints}


def test_nodes_whose_pods_fit_elsewhere_need_no_canary(world: World) -> None:
    """No new node is made, so none can prove itself."""
    with_nodes(world, 3, "2")
    world.cluster.put("nodes", builders.unmanaged_node("room"))
    relabel(world)
    assert world.run(120, until=lambda: len(disrupted(world)) == 2)


def test_pods_that_are_ready_nowhere_are_no_reason_to_stop(world: World) -> None:
    with_nodes(world, 3, "1")
    relabel(world)
    for _ in range(1500):
        world.run(1)
        for pod in world.running_pods():
            if pod.is_ready:
                world.cluster.put("pods", msgspec.structs.replace(pod, is_ready=False))
        if teams(world) == ["b", "b", "b"]:
            break
    assert teams(world) == ["b", "b", "b"]


def test_an_image_is_rolled_out_over_ten_nodes_two_at_a_time_though_a_replacement_fails(world: World) -> None:
    """The fourth new node never joins: nothing stays tainted, no budget is exceeded, all are replaced in the end."""
    with_nodes(world, 10, "2")
    (image,) = world.cluster.nodeclasses()[0].amis
    new = msgspec.structs.replace(image, id="ami-new")
    world.cluster.update("ec2nodeclasses", "default", amis=(new,))
    look(world)
    before = {instance.id for instance in world.ec2.live_instances()}
    stops, launched = 0, list[str]()
    for _ in range(3 * 3600):
        world.run(1)
        launched += sorted({instance.id for instance in world.ec2.live_instances()} - before - set(launched))
        world.kubelets.broken_instances |= set(launched[3:4])
        assert len(disrupted(world)) <= 2
        assert len(world.running_pods()) >= 8
        if told(world).status == "False" and not disrupted(world):
            stops += 1
            tainted = {node.name for node in world.cluster.nodes() if labels.DISRUPTED in {t.key for t in node.taints}}
            assert tainted <= {c.node_name for c in world.claims() if c.metadata.deletion_timestamp is not None}
        if {claim.image_id for claim in world.claims()} == {"ami-new"}:
            break
    assert stops > 0
    assert {claim.image_id for claim in world.claims()} == {"ami-new"}
    assert world.run(300, until=lambda: told(world).reason == "RolloutComplete" and len(world.running_pods()) == 10)


def with_two_nodepools(world: World) -> None:
    """Four nodes of one NodePool and one of another, which goes before it, of the same class; then a new image."""
    with_nodes(world, 4, "100%")
    (first,) = world.cluster.nodepools()
    metadata = msgspec.structs.replace(first.metadata, name="second", uid="second")
    world.cluster.put("nodepools", msgspec.structs.replace(first, metadata=metadata, weight=10))
    stamp(world)
    look(world, "nodepools")
    world.deploy(builders.pod("more", cpu_millicores=5000), 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 5)
    world.run(30)
    assert sorted(claim.nodepool for claim in world.claims()) == [*["default"] * 4, "second"]
    (image,) = world.cluster.nodeclasses()[0].amis
    world.cluster.update("ec2nodeclasses", "default", amis=(msgspec.structs.replace(image, id="ami-new"),))
    look(world)


def on_new_image(world: World) -> set[str]:
    """Names of nodes."""
    return {claim.node_name for claim in world.claims() if claim.image_id == "ami-new" and claim.node_name}


def test_nodes_of_which_the_pods_go_to_another_nodepool_wait_for_its_canary_too(world: World) -> None:
    """Else all of them go at once, to an image on which nothing has run yet."""
    with_two_nodepools(world)

    def is_one_proven() -> bool:
        return not on_new_image(world).isdisjoint(pod.node_name for pod in world.running_pods() if pod.is_ready)

    assert watch(world, 300, is_one_proven, most=2)
    assert watch(world, 900, lambda: {claim.image_id for claim in world.claims()} == {"ami-new"}, most=5)
    assert {claim.nodepool for claim in world.claims()} == {"second"}


def test_nodes_of_which_the_pods_go_to_another_nodepool_stop_with_it(world: World) -> None:
    with_two_nodepools(world)
    for _ in range(1200):
        world.run(1)
        for pod in world.running_pods():
            if pod.is_ready and pod.node_name in on_new_image(world):
                world.cluster.put("pods", msgspec.structs.replace(pod, is_ready=False))
    assert len(on_new_image(world)) <= 2
    assert sum(pod.is_ready for pod in world.running_pods()) >= 3
    said = {event.message for event in world.cluster.events if event.reason == "DisruptionBlocked"}
    assert any("pods would go to new nodes of NodePool second: stopped: 1 of 1 pods" in message for message in said)
