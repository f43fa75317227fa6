"""Pods of StatefulSets, each with claims of its own, planned as groups: as legal, and as good, as one by one."""

from random import Random

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.plan import Plan
from tests.property.plans import LAWS, clusters, left, planned, unlimited
from tests.unit.scheduling.builders import TYPES, ZONES, pod, snapshot, zone_is

EBS = "ebs.csi.aws.com"
CLASSES = (
    StorageClass(ObjectMeta("waits"), EBS, waits_for_first_consumer=True),
    StorageClass(ObjectMeta("zonal"), EBS, waits_for_first_consumer=True, allowed_topologies=((zone_is("z1", "z2"),),)),
)
VOLUMES = tuple(PersistentVolume(ObjectMeta(f"pv-{zone}"), ((zone_is(zone),),), EBS) for zone in ZONES)
KINDS = ("none", "waits", "zonal", "bound", "two", "shared")


def claims_of(one: Pod, number: int, kind: str) -> tuple[PersistentVolumeClaim, ...]:
    """What a pod of a StatefulSet of this kind uses."""
    name = one.metadata.name
    match kind:
        case "waits" | "zonal":
            return (PersistentVolumeClaim(ObjectMeta(f"data-{name}", "default"), storage_class_name=kind),)
        case "bound":
            volume = VOLUMES[number % len(VOLUMES)].metadata.name
            return (
                PersistentVolumeClaim(
                    ObjectMeta(f"data-{name}", "default"), volume, bind_completed=True, phase="Bound"
                ),
            )
        case "two":
            return tuple(
                PersistentVolumeClaim(ObjectMeta(f"{of}-{name}", "default"), storage_class_name="waits")
                for of in ("a", "b")
            )
        case "shared":
            return (
                PersistentVolumeClaim(
                    ObjectMeta(f"data-{one.metadata.labels['app']}", "default"), storage_class_name="zonal"
                ),
            )
    return ()


@st.composite
def stateful(draw: st.DrawFn) -> Snapshot:
    """A cluster whose deployments have volumes, of one kind each, and whose nodes can attach a few.

    Pods that must be near others have no volumes that are bound in several zones: of these only those of one zone can
    be placed, and of which is decided by who comes first.
    """
    cluster = unlimited(draw(clusters))
    kinds: dict[str, str] = {}
    pods: list[Pod] = []
    claims: dict[str, PersistentVolumeClaim] = {}
    for number, one in enumerate(cluster.pods):
        app = one.metadata.labels["app"]
        if app not in kinds:
            kinds[app] = draw(st.sampled_from([kind for kind in KINDS if kind != "bound" or not one.pod_affinity]))
        volume_claims = claims_of(one, number, kinds[app])
        claims |= {volume_claim.metadata.key: volume_claim for volume_claim in volume_claims}
        pods.append(
            msgspec.structs.replace(
                one, volume_claim_names=tuple(volume_claim.metadata.name for volume_claim in volume_claims)
            )
        )
    nodes = tuple(CSINode(node.metadata, {EBS: draw(st.integers(0, 3))}) for node in cluster.nodes)
    storage = Storage(tuple(claims.values()), VOLUMES, CLASSES, nodes)
    return msgspec.structs.replace(cluster, pods=tuple(pods), storage=storage)


def one_by_one(cluster: Snapshot) -> Plan:
    """The plan in which every claim tells its pod from all others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VolumeTopology, "anonymize_claims", lambda self, pods, every: list(pods))
        return planned(cluster)


@LAWS
@given(stateful())
def test_a_group_leaves_as_many_pods_as_its_pods_alone_would(cluster: Snapshot) -> None:
    assert left(planned(cluster)) == left(one_by_one(cluster))


@LAWS
@given(stateful())
def test_groups_cost_at_most_one_small_node_more_than_single_pods(cluster: Snapshot) -> None:
    grouped, single = planned(cluster), one_by_one(cluster)
    assume(left(grouped) == left(single))
    dearest = max(offering.price_picousd_per_hour for type_ in TYPES for offering in type_.offerings)
    assert grouped.price_picousd_per_hour <= single.price_picousd_per_hour + dearest


@LAWS
@given(stateful())
def test_volumes_are_attached_where_they_are_and_no_more_than_a_node_takes(cluster: Snapshot) -> None:
    plan = planned(cluster)
    pods = {one.key: one for one in cluster.pods}
    claims = {volume_claim.metadata.name: volume_claim for volume_claim in cluster.storage.persistent_volume_claims}
    zones = {f"pv-{zone}": {zone} for zone in ZONES}

    def allowed(key: str) -> list[set[str]]:
        volume_claims = (claims[name] for name in pods[key].volume_claim_names)
        return [
            zones.get(
                volume_claim.volume_name, {"z1", "z2"} if volume_claim.storage_class_name == "zonal" else set(ZONES)
            )
            for volume_claim in volume_claims
        ]

    for new in plan.new_nodes:
        assert all(set(new.zones) <= each for key in new.pods for each in allowed(key))
    limits = {csi_node.metadata.name: csi_node.attachable_volumes[EBS] for csi_node in cluster.storage.csi_nodes}
    for existing in plan.existing_nodes:
        assert all("z1" in each for key in existing.pods for each in allowed(key))
        assert len({name for key in existing.pods for name in pods[key].volume_claim_names}) <= limits[existing.name]


@LAWS
@given(stateful(), st.randoms(use_true_random=False))
def test_the_order_of_pods_and_claims_means_nothing(cluster: Snapshot, random: Random) -> None:
    pods, claims = list(cluster.pods), list(cluster.storage.persistent_volume_claims)
    random.shuffle(pods)
    random.shuffle(claims)
    storage = msgspec.structs.replace(cluster.storage, persistent_volume_claims=tuple(claims))
    assert planned(msgspec.structs.replace(cluster, pods=tuple(pods), storage=storage)) == planned(cluster)


def test_thousands_of_pods_with_claims_of_their_own_are_one_class() -> None:
    claims = tuple(
        PersistentVolumeClaim(ObjectMeta(f"data-{n}", "default"), storage_class_name="waits") for n in range(2000)
    )
    pods = tuple(pod(f"db-{n}", cpu=1, volume_claim_names=(f"data-{n}",)) for n in range(2000))
    plan = planned(snapshot(*pods, storage=Storage(claims, storage_classes=CLASSES)))
    assert not plan.unschedulable_pods
    assert plan.work_units < 100_000
