"""Pods with claims on volumes: their node is bought where the volume is, or may be."""

import pytest

from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.cluster import Namespace
from spotwright.simulation.volume_provisioner import unbound_claim
from spotwright.simulation.world import World

EBS = "ebs.csi.aws.com"


def zones(*names: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(labels.ZONE, Operator.IN, names)


def zonal_class(world: World, *names: str, waits: bool = True) -> None:
    world.cluster.put("storageclasses", StorageClass(ObjectMeta("zonal"), EBS, waits, ((zones(*names),),)))


def with_claims(name: str, *claims: str) -> Pod:
    return builders.pod(name, volume_claim_names=claims)


def home(world: World, pod: str) -> str:
    """The zone of the node that runs the pod."""
    (found,) = [one for one in world.running_pods() if one.key == f"default/{pod}"]
    node = world.cluster.node(found.node_name)
    assert node is not None
    return str(node.metadata.labels[labels.ZONE])


@pytest.mark.parametrize("zone", builders.ZONES)
def test_a_claim_that_waits_for_its_first_pod_gets_a_node_in_a_zone_its_class_allows(world: World, zone: str) -> None:
    zonal_class(world, zone)
    world.cluster.put("persistentvolumeclaims", unbound_claim("data", "zonal"))
    world.cluster.put("pods", with_claims("db", "data"))
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    assert home(world, "db") == zone
    assert world.cluster.storage().persistent_volume_claims[0].bind_completed


@pytest.mark.parametrize("zone", builders.ZONES)
def test_a_bound_volume_draws_the_node_into_its_zone(world: World, zone: str) -> None:
    world.cluster.put("persistentvolumes", PersistentVolume(ObjectMeta("pv-1"), ((zones(zone),),), EBS))
    claim = PersistentVolumeClaim(
        ObjectMeta("data", namespace="default"), "pv-1", "zonal", bind_completed=True, phase="Bound"
    )
    world.cluster.put("persistentvolumeclaims", claim)
    world.cluster.put("pods", with_claims("db", "data"))
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    assert home(world, "db") == zone


def test_a_pod_comes_back_to_its_volume_after_its_node_is_gone(world: World) -> None:
    zonal_class(world, *builders.ZONES[1:])
    world.cluster.put("persistentvolumeclaims", unbound_claim("data", "zonal"))
    world.deploy(with_claims("db", "data"), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    (before,) = world.running_pods()
    zone = home(world, before.metadata.name)
    world.cluster.delete("nodeclaims", world.claims()[0].metadata)
    assert world.run(180, until=lambda: [pod for pod in world.running_pods() if pod.key != before.key] != [])
    assert home(world, world.running_pods()[0].metadata.name) == zone


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (None, "PersistentVolumeClaim data does not exist"),
        (unbound_claim("data", "unknown"), "StorageClass unknown does not exist"),
        (unbound_claim("data", "zonal"), "waits for StorageClass zonal"),
    ],
)
def test_a_claim_that_nothing_can_bind_buys_nothing_and_is_told(
    world: World, claim: PersistentVolumeClaim | None, why: str
) -> None:
    zonal_class(world, builders.ZONES[0], waits=False)
    if claim is not None:
        world.cluster.put("persistentvolumeclaims", claim)
    world.cluster.put("pods", with_claims("db", "data"))
    world.run(60)
    assert not world.ec2.all_instances()
    told = [event.message for event in world.cluster.events if event.reason == "FailedScheduling"]
    assert told
    assert why in told[0]


def test_pods_of_namespaces_chosen_by_their_labels_draw_others_near(world: World) -> None:
    world.cluster.put("namespaces", Namespace(ObjectMeta("shop", labels={"team": "a"})))
    zone = builders.ZONES[2]
    there = builders.pod("front", namespace="shop", cpu_millicores=1800, node_selector={labels.ZONE: zone})
    world.cluster.put("pods", there)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    fronts = (NodeSelectorRequirement("app", Operator.IN, ("front",)),)
    near = PodAffinityTerm(
        labels.ZONE, fronts, namespace_selector=(NodeSelectorRequirement("team", Operator.IN, ("a",)),)
    )
    world.cluster.put("pods", builders.pod("db", cpu_millicores=1800, pod_affinity=(near,)))
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    assert home(world, "db") == zone
