"""Steps of a claim, node, launch, notice or command read objects by name or by selector, never everything there is."""

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import interruptions
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.planning import snapshot
from spotwright.workflows.ports.doorbells import Doorbell

# Reads whose answers grow with the cluster.
LISTS = frozenset(
    {
        ("cluster", "pods"), ("cluster", "nodes"), ("cluster", "nodeclaims"), ("cluster", "storage"),
        ("ec2", "instances_of_cluster"),
    }
)  # fmt: skip
# These are steps of a whole cluster.
WHOLE = frozenset({"nodepools", "drift"})


class ListsSeen:
    """Counts the lists that lifecycle reads, kind by kind of its doorbells."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: Counter[str] = Counter()
        self.lists: Counter[tuple[str, str, str]] = Counter()
        self._world = world
        monkeypatch.setattr("spotwright.simulation.world.lifecycle", self._lifecycle)

    def _lifecycle(self, ports: object, bells: tuple[Doorbell, ...], **arguments: object) -> None:
        for bell in bells:
            before = self._world.effects.reads.copy()
            lifecycle(ports, [bell], **arguments)  # type: ignore[arg-type]
            self.steps[bell.kind] += 1
            for port, action in LISTS:
                read = self._world.effects.reads[port, action] - before[port, action]
                if read and bell.kind not in WHOLE:
                    self.lists[bell.kind, port, action] += read


def test_no_step_of_one_object_reads_a_list(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the launch to the end: some claims are deleted, a Node is deleted, and volumes are waited for."""
    seen = ListsSeen(world, monkeypatch)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 4)
    assert world.run(120, until=lambda: len(world.running_pods()) == 4)
    world.run(60)
    deleted, without_node, _, _ = world.claims()
    world.cluster.attachments[deleted.node_name] = ("pv-1",)
    world.cluster.delete("nodeclaims", deleted.metadata)
    node = world.cluster.node(without_node.node_name)
    assert node is not None
    world.cluster.delete_node(node)
    world.run(60)
    world.cluster.attachments.clear()
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    assert world.run(600, until=lambda: len(world.claims()) == 2)
    assert {"decision", "launch", "claim", "node", "command"} <= seen.steps.keys()
    assert not seen.lists


def test_claims_are_not_looked_for_by_label_while_their_nodes_become_ready(world: World) -> None:
    """For each such list the API server looks at every claim there is."""
    world.kubelets.ready_seconds = 3600
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(120, until=lambda: sum(claim.is_condition_true("Registered") for claim in world.claims()) == 3)
    before = world.effects.reads["cluster", "nodeclaims_of_instances"]
    bells = [Doorbell(world.ports.cluster.name, "node", claim.node_name) for claim in world.claims()]
    lifecycle(world.ports, bells, now=world.clock.now())
    assert world.effects.reads["cluster", "nodeclaims_of_instances"] == before


def test_a_notice_lists_only_to_plan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim is found by the label of the instance; the plan for its pods sees the whole cluster once."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(120, until=lambda: len(world.running_pods()) == 3)
    world.run(60)
    listed = _Called()
    monkeypatch.setattr("spotwright.workflows.lifecycle.interruption_decisions.gather", listed.around(snapshot.gather))
    seen = ListsSeen(world, monkeypatch)
    world.interrupt_spot(instance_id(world.claims()[0].provider_id))
    world.run(5)
    assert world.run(300, until=lambda: len(world.running_pods()) == 3 and len(world.claims()) == 3)
    assert seen.steps["notice"] > 1
    assert seen.lists["notice", "cluster", "nodeclaims"] == listed.calls > 0
    assert ("notice", "ec2", "instances_of_cluster") not in seen.lists


class _Called:
    """Counts the calls of a function."""

    calls = 0

    def around[**P, R](self, function: Callable[P, R]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self.calls += 1
            return function(*args, **kwargs)

        return call


def test_a_notice_of_another_clusters_instance_lists_nothing(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    ours = world.ec2.instances[instance_id(claim.provider_id)]
    theirs = msgspec.structs.replace(ours, id="i-0000000000000dead", tags={labels.CLUSTER_NAME_TAG: "another"})
    world.ec2.add_instance(theirs, like=ours.id)
    world.effects.inject(Fault("ec2", "instances_by_id", Unavailable("EC2 does not answer"), times=1))
    world.deliver_event("EC2 Spot Instance Interruption Warning", {"instance-id": theirs.id, "instance-action": "stop"})
    # For so long further notices are waited for.
    world.clock.advance(1)
    before = world.effects.reads.copy()
    interruptions.step_notices(world.ports, [theirs.id], now=world.clock.now())
    notice = world.state.notice(theirs.id)
    assert notice is not None
    assert notice.phase == "done"
    assert not any(world.effects.reads[read] > before[read] for read in LISTS)


def test_a_notice_finds_a_claim_without_the_label_of_its_instance(world: World) -> None:
    """Karpenter launched it, and no step of it came yet."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    _without_label(world, claim)
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(300, until=lambda: claim.name not in {left.name for left in world.claims()})
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)


@pytest.mark.parametrize("tags", [{f"kubernetes.io/cluster/{builders.CLUSTER}": "owned"}, {}])
def test_a_terminated_instance_of_an_older_karpenter_ends_its_claim(world: World, tags: dict[str, str]) -> None:
    """It set another tag than today's, and EC2 may have taken all tags off by now."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    _without_label(world, claim)
    id = instance_id(claim.provider_id)
    world.ec2.instances[id] = msgspec.structs.replace(world.ec2.instances[id], state="terminated", tags=tags)
    world.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": "terminated"})
    interruptions.step_notices(world.ports, [id], now=world.clock.now())
    assert [left.name for left in world.claims() if left.metadata.deletion_timestamp is None] == []


def test_a_step_labels_a_claim_with_its_instance(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    _without_label(world, claim)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    (labeled,) = world.claims()
    assert labeled.metadata.labels[labels.INSTANCE_ID] == instance_id(claim.provider_id)


def _without_label(world: World, claim: NodeClaim) -> None:
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    kept = {key: value for key, value in current.metadata.labels.items() if key != labels.INSTANCE_ID}
    metadata = msgspec.structs.replace(current.metadata, labels=kept)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current, metadata=metadata))


@pytest.mark.parametrize("forwarder", [True, False])
def test_a_node_that_joins_under_another_name_is_registered(world: World, forwarder: bool) -> None:
    """An AMI may name nodes otherwise; without a forwarder the node is looked for a minute after the launch."""
    world.forwarder_runs = forwarder
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: bool(world.claims() and world.claims()[0].provider_id))
    (claim,) = world.claims()
    other = {**claim.metadata.annotations, labels.EXPECTED_NODE: "another-name"}
    metadata = msgspec.structs.replace(claim.metadata, annotations=other)
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata))
    assert world.run(150, until=lambda: len(world.running_pods()) == 1)
    assert world.claims()[0].is_condition_true("Registered")


def test_a_volume_that_detaches_is_waited_for_although_the_node_no_longer_shows_it(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    world.forget_deployments()
    (claim,) = world.claims()
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(2)
    world.cluster.detaching.add("pv-1")
    world.run(60)
    assert world.ec2.live_instances()
    world.cluster.attachments.clear()
    assert world.run(90, until=lambda: not world.claims())
