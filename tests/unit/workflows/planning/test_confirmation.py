"""Existing Nodes are read before pods are sure of a place there."""

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.workflows.planning.confirmation import decide_on_read_nodes
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
