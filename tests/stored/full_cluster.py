"""A cluster in which every field of a snapshot is stated somewhere, and the decisions that are made for it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from spotwright.adapters.kubernetes.codecs.capacity_buffer import ObjectLookup, decode_capacity_buffer
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim
from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass
from spotwright.adapters.kubernetes.codecs.nodeoverlay import decode_nodeoverlay
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool
from spotwright.adapters.kubernetes.codecs.objects import decode_metadata
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from spotwright.aws.instance_types import catalog_codec
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.price_file import PriceFile
from spotwright.disruption import breaker
from spotwright.model.ec2.fleet import FleetError
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.settings import RawSettings, decision_settings
from spotwright.simulation.cluster import Namespace
from spotwright.simulation.state import FakeBlobs
from spotwright.simulation.world import World
from spotwright.workflows.account import offering_health_store, rate_limits
from spotwright.workflows.catalog import instance_types
from spotwright.workflows.catalog.instance_types import CatalogInputs
from spotwright.workflows.interrupt import interrupt
from spotwright.workflows.provision.workflow import provision
from tests.stored.recorded import read_catalogs_from
from tests.unit.aws import samples

type Json = Mapping[str, Any]

MANIFESTS: Final = Path(__file__).with_name("full_cluster.yaml")
# Between them EC2 describes every property of an instance type that is kept.
INSTANCE_TYPES: Final = (
    "c5.large", "m5.large", "m5.xlarge", "t4g.small", "g4dn.12xlarge", "inf1.24xlarge", "c7i.12xlarge",
)  # fmt: skip
SETTINGS: Final[RawSettings] = {
    "FEATURE_GATES": "CapacityBuffer=true,NodeOverlay=true,StaticCapacity=true",
    "LARGEST_NODE_SHARE": 90,
    "LARGEST_ZONE_SHARE": 80,
    "BREAKER_PERCENT": 40,
}
LATER_SETTINGS: Final[RawSettings] = {
    "PREFERENCE_POLICY": "Ignore",
    "MIN_VALUES_POLICY": "BestEffort",
    "FOLLOWER_SELECTORS": "app=agent",
    "WORK_UNITS": 40_000,
    "FOLLOW_PLAN": "Off",
}
# Kind → its plural, and what reads it.
_READERS: Final[Mapping[str, tuple[str, Callable[[Json], Any]]]] = {
    "Namespace": ("namespaces", lambda obj: Namespace(decode_metadata(obj))),
    "NodePool": ("nodepools", decode_nodepool),
    "EC2NodeClass": ("ec2nodeclasses", decode_nodeclass),
    "NodeOverlay": ("nodeoverlays", decode_nodeoverlay),
    "Node": ("nodes", decode_node),
    "NodeClaim": ("nodeclaims", decode_nodeclaim),
    "DaemonSet": ("daemonsets", decode_daemonset),
    "PodDisruptionBudget": ("poddisruptionbudgets", decode_pod_disruption_budget),
    "StorageClass": ("storageclasses", decode_storage_class),
    "PersistentVolume": ("persistentvolumes", decode_persistent_volume),
    "PersistentVolumeClaim": ("persistentvolumeclaims", decode_persistent_volume_claim),
    "CSINode": ("csinodes", decode_csi_node),
    "Pod": ("pods", decode_pod),
}


def build(events: Sequence[Json]) -> World:
    """The cluster after two decisions that nobody acted on, and after these messages of EventBridge. It is paused."""
    world = _apply_manifests()
    provision(world.ports, clock=world.clock.now)
    world.clock.advance(20)
    world.settings = decision_settings({**SETTINGS, **LATER_SETTINGS})
    _learn_about_ec2(world)
    _add_pods(world)
    provision(world.ports, clock=world.clock.now)
    _stop(world)
    for event in events:
        interrupt({world.cluster.name: world.ports}, world.ec2, event, now=world.clock.now())
    return world


def _add_pods(world: World) -> None:
    """Two pods like the pod ``on-demand``."""
    (model,) = (pod for pod in world.cluster.all("pods") if pod.metadata.name == "on-demand")
    for name in ("late-0", "late-1"):
        metadata = msgspec.structs.replace(model.metadata, name=name, uid=name)
        world.cluster.put("pods", msgspec.structs.replace(model, metadata=metadata))


def _learn_about_ec2(world: World) -> None:
    """What EC2's answers say of offerings, quotas, subnets, reservations and the pace of calls."""
    now_ms, zone = world.clock.milliseconds(), samples.ZONES[0]
    no_capacity = "InsufficientInstanceCapacity"
    errors = (
        FleetError(no_capacity, "none left", "c5.large", zone, "on-demand"),
        FleetError("VcpuLimitExceeded", "quota", "m5.xlarge", zone, "spot"),
        FleetError("InsufficientFreeAddressesInSubnet", "full", "c5.large", zone, "spot", "subnet-a"),
    )
    for _ in range(2):
        offering_health_store.record_fleet_response(
            world.state, (), errors, now_ms=now_ms, cpu_millicores={"m5.xlarge": 4000}
        )
    in_group = (FleetError(no_capacity, "none left", "m5.large", zone, "spot"),)
    offering_health_store.record_fleet_response(
        world.state, (), in_group, now_ms=now_ms, cpu_millicores={}, scope="pg-1"
    )
    offering_health_store.record_interruption(world.state, "m5.large", zone, now_ms=now_ms)
    offering_health_store.record_reservation_use(world.state, "cr-2", 1, now_ms=now_ms)
    rate_limits.acquire(world.state, rate_limits.CREATE_FLEET, caller="", now=world.clock.now())
    rate_limits.slow_down(world.state, rate_limits.CREATE_FLEET, now=world.clock.now())


def _stop(world: World) -> None:
    """A user pauses the cluster, its breaker opens, its forwarder lives, and the region is being read."""
    now_ms = world.clock.milliseconds()
    for id, nodes, at in (("first", 5, now_ms), ("second", 50, now_ms + 1000)):
        admission = breaker.admit(world.state.breaker(), id, nodes, total=30, percent=40, now=at)
        world.state.save_breaker(admission.breaker)
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, paused=True)
    world.state.begin_region_read(now_ms, since=0)
    world.state.heartbeat_at = now_ms


def _apply_manifests() -> World:
    objects = yaml.safe_load(MANIFESTS.read_text())["items"]
    stored = World().blobs
    key = _store_catalog(stored, [_count_reservations(obj) for obj in objects if obj["kind"] == "EC2NodeClass"])
    world = World(catalog_codec.decode(stored.bodies[key]))
    world.blobs.bodies.update(stored.bodies)
    world.state.set_catalog_key(key, world.clock.milliseconds())
    read_catalogs_from(world)
    world.settings = decision_settings(SETTINGS)
    for obj in objects:
        if obj["kind"] in _READERS:
            plural, read = _READERS[obj["kind"]]
            world.cluster.put(plural, read(obj))
    lookup = _lookup(objects)
    for buffer in (obj for obj in objects if obj["kind"] == "CapacityBuffer"):
        world.cluster.put("capacitybuffers", decode_capacity_buffer(buffer, lookup))
    return world


def _lookup(objects: list[Json]) -> ObjectLookup:
    by_key = {(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in objects}
    return lambda *key: by_key.get(key)


def _store_catalog(blobs: FakeBlobs, classes: list[EC2NodeClass]) -> str:
    """The key of what EC2 sells to these classes, stored as the function ``catalog`` stores it."""
    region = msgspec.structs.replace(samples.region(*INSTANCE_TYPES), notes=("prices are those of last time",))
    # Type and image → bytes of memory that its nodes have, and when that was last confirmed.
    memory = {"m5.large ami-x86": (7_900 * 2**20, 1_767_600_000)}
    about = CatalogInputs(Overheads(nodeclass_cel=True), frozenset({"apne2-az9"}), PriceFile(), memory)
    source = instance_types.store_region(blobs, region)
    nothing = instance_types.read_catalog(blobs, "")
    return instance_types.store_catalog(blobs, nothing, source=source, region=region, classes=classes, inputs=about)


def _count_reservations(obj: Json) -> EC2NodeClass:
    """The class with three instances left in each reservation: EC2 says how many, the status does not."""
    nodeclass = decode_nodeclass(obj)
    counted = tuple(
        msgspec.structs.replace(reservation, available_instance_count=3)
        for reservation in nodeclass.capacity_reservations
    )
    return msgspec.structs.replace(nodeclass, capacity_reservations=counted)
