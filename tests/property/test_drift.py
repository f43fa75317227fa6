"""Laws of drift: what was made just now does not drift, and only what nodes are made of makes them drift by hash."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spotwright.aws.nodeclass import hashes
from spotwright.disruption.nodeclaim_drift import nodeclaim_drift
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.drift import Drift, DriftReason
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import (
    BlockDeviceMapping,
    CapacityReservationSelectorTerm,
    ConnectionTracking,
    CPUOptions,
    EC2NodeClass,
    MetadataOptions,
    NetworkInterface,
    PlacementGroup,
    PlacementGroupSelector,
    SecurityGroup,
    SelectorTerm,
)
from spotwright.model.karpenter.nodepool import Budget, NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings
from spotwright.simulation import builders as objects
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.unit.aws import samples

NAMES = ("m5.large", "c6g.xlarge", "c5d.2xlarge", "t3a.large", "g4dn.xlarge")
GROUP = PlacementGroup("pg-1", "spread-out", "partition", 3)
READY = (objects.READY,)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
# A law about a whole cluster takes its time.
WORLDS = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])

INSTANCE = labels.INSTANCE_PREFIX
demands = st.lists(
    st.sampled_from(
        (
            NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", ("spot", "on-demand")),
            NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", ("on-demand",)),
            NodeSelectorRequirement(labels.ARCH, "In", ("arm64",)),
            NodeSelectorRequirement(labels.ARCH, "NotIn", ("arm64",)),
            NodeSelectorRequirement(INSTANCE + "category", "In", ("c", "m", "t")),
            NodeSelectorRequirement(INSTANCE + "cpu", "Gt", ("3",)),
            NodeSelectorRequirement(INSTANCE + "generation", "Gte", ("5",)),
            NodeSelectorRequirement(INSTANCE + "local-nvme", "DoesNotExist"),
            NodeSelectorRequirement(INSTANCE + "local-nvme", "Exists"),
            NodeSelectorRequirement(INSTANCE + "gpu-count", "NotIn", ("1",)),
            NodeSelectorRequirement(labels.ZONE, "NotIn", (samples.ZONES[0],)),
            NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 2),
            NodeSelectorRequirement("team", "In", ("a", "b")),
            NodeSelectorRequirement("team", "Exists"),
            NodeSelectorRequirement("rank", "Gt", ("3",)),
            NodeSelectorRequirement("colour", "NotIn", ("red",)),
            NodeSelectorRequirement("colour", "DoesNotExist"),
        )
    ),
    unique=True,
    max_size=4,
).map(tuple)

templates = st.fixed_dictionaries(
    {
        "requirements": demands,
        "labels": st.sampled_from(({}, {"shop": "a"})),
        "annotations": st.sampled_from(({}, {"note": "b"})),
        "taints": st.sampled_from(((), (Taint("dedicated", "NoSchedule", "gpu"),))),
        "startup_taints": st.sampled_from(((), (Taint("starting", "NoExecute"),))),
        "expire_after_seconds": st.sampled_from((None, 720 * 3600)),
        "termination_grace_period_seconds": st.sampled_from((None, 60)),
    }
)
machines = st.fixed_dictionaries(
    {
        "security_groups": st.sampled_from(
            ((SecurityGroup("sg-1"),), (SecurityGroup("sg-1"), SecurityGroup("sg-0"))),
        ),
        "grouped": st.booleans(),
        "user_data": st.sampled_from(("", "echo hello")),
    }
)


@WORLDS
@given(templates, machines, st.booleans())
def test_a_claim_made_of_a_pool_and_a_class_just_now_does_not_drift(
    template: dict[str, Any], machine: dict[str, Any], static: bool
) -> None:
    group = {"placement_group": GROUP, "placement_group_selector": PlacementGroupSelector(id=GROUP.id)}
    rest = {key: value for key, value in machine.items() if key != "grouped"}
    like = samples.nodeclass(conditions=READY, **rest, **(group if machine["grouped"] else {}))
    world = World(Catalog({"": samples.types(*NAMES, of=like)}))
    world.ec2.partitions = {GROUP.id: GROUP.partition_count}
    world.settings = Settings(feature_gates=("ReservedCapacity", "StaticCapacity"))
    world.cluster.put("ec2nodeclasses", stamped(like))
    world.cluster.put("nodepools", stamped_pool(objects.nodepool(**template, replicas=1 if static else None)))
    if not static:
        world.deploy(objects.pod("inflate", tolerations=(Toleration(operator="Exists"),)), 1)
    world.run(40)
    # Some requirements leave nothing to buy.
    assume(world.claims())
    assert all(claim.is_condition_true("Launched") for claim in world.claims())
    # So old that a type which is not sold would count as gone.
    world.clock.advance(2 * 3600)
    lifecycle(world.ports, [Doorbell(objects.CLUSTER, "drift")], now=world.clock.now())
    assert [condition for claim in world.claims() if (condition := find_condition(claim.conditions, "Drifted"))] == []


def stamped(nodeclass: EC2NodeClass) -> EC2NodeClass:
    digest = hashes.nodeclass_hash(nodeclass, objects.FACTS.certificate_authority)
    kept = {labels.EC2NODECLASS_HASH: digest, labels.EC2NODECLASS_HASH_VERSION: hashes.NODECLASS_VERSION}
    return msgspec.structs.replace(nodeclass, metadata=ObjectMeta("default", annotations=kept))


def stamped_pool(nodepool: NodePool) -> NodePool:
    kept = {labels.NODEPOOL_HASH: hashes.nodepool_hash(nodepool), labels.NODEPOOL_HASH_VERSION: hashes.NODEPOOL_VERSION}
    return msgspec.structs.replace(nodepool, metadata=ObjectMeta("default", annotations=kept))


def reason(pool: NodePool, nodeclass: EC2NodeClass, *, made_of: tuple[NodePool, EC2NodeClass]) -> DriftReason | None:
    """Why a claim drifts now that carries the hashes of what it was ``made_of``."""
    annotations = {key: value for one in made_of for key, value in one.metadata.annotations.items()}
    known = {labels.NODEPOOL: "default", labels.INSTANCE_TYPE: "m5.large"}
    about = ObjectMeta("claim", creation_timestamp=NOW, labels=known, annotations=annotations)
    claim = NodeClaim(about, pool.node_class_ref, conditions=(Condition("Launched", "True"),))
    found = nodeclaim_drift(claim, pool, nodeclass, {}, None, feature_gates=(), now=NOW)
    return found.reason if isinstance(found, Drift) else None


TERM = (SelectorTerm(id="x-1"),)
# Fields by name → values other than those that a new pool or class has.
OF_BEHAVIOUR: dict[str, list[Any]] = {
    "limits": [{}, {"cpu": 8000}],
    "weight": [7],
    "replicas": [0, 3],
    "consolidation_policy": ["WhenEmpty"],
    "consolidate_after_seconds": [None, 60],
    "budgets": [(), (Budget("0"),)],
}
OF_TEMPLATES: dict[str, list[Any]] = {
    "labels": [{"shop": "z"}],
    "annotations": [{"note": "z"}],
    "taints": [(Taint("other", "NoExecute"),)],
    "startup_taints": [(Taint("other", "NoExecute"),)],
    "expire_after_seconds": [3600],
    "termination_grace_period_seconds": [7],
    "node_class_ref": [NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "other")],
}
DYNAMIC: dict[str, list[Any]] = {
    "subnet_selector_terms": [TERM],
    "security_group_selector_terms": [TERM],
    "capacity_reservation_selector_terms": [(CapacityReservationSelectorTerm(id="cr-1"),)],
    "ip_prefix_count": [1],
    "subnets": [()],
    "amis": [()],
}
STATIC: dict[str, list[Any]] = {
    "user_data": ["echo again"],
    "role": ["another"],
    "tags": [{"team": "a"}],
    "kubelet": [{"maxPods": 9}],
    "block_device_mappings": [(BlockDeviceMapping("/dev/xvda", volume_size="9Gi"),)],
    "metadata_options": [MetadataOptions(http_tokens="optional")],
    "detailed_monitoring": [True],
    "associate_public_ip_address": [True],
    "instance_store_policy": ["RAID0"],
    "context": ["ctx"],
    "placement_group_selector": [PlacementGroupSelector(name="far")],
    "network_interfaces": [(NetworkInterface(0, 0),)],
    "connection_tracking": [ConnectionTracking(udp_timeout=45)],
    "cpu_options": [CPUOptions("enabled")],
    "ami_selector_terms": [(SelectorTerm(alias="bottlerocket@latest"),)],
}


def some_of(fields: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """At least one of the fields, with another value."""
    drawn = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in fields.items()})
    return drawn.filter(bool)


def pool_of(template: dict[str, Any]) -> NodePool:
    return objects.nodepool(**template | {"requirements": ()})


@given(templates, some_of(OF_BEHAVIOUR), some_of(DYNAMIC))
def test_what_is_no_part_of_a_node_drifts_none_by_hash(
    template: dict[str, Any], behaviour: dict[str, Any], dynamic: dict[str, Any]
) -> None:
    pool, like = pool_of(template), samples.nodeclass()
    changed = msgspec.structs.replace(pool, **behaviour), msgspec.structs.replace(like, **dynamic)
    now = stamped_pool(changed[0]), stamped(changed[1])
    assert reason(*now, made_of=(stamped_pool(pool), stamped(like))) is None


@given(templates, some_of(OF_TEMPLATES), some_of(DYNAMIC | STATIC))
def test_every_change_of_a_template_drifts(
    template: dict[str, Any], change: dict[str, Any], other: dict[str, Any]
) -> None:
    pool, like = pool_of(template), samples.nodeclass()
    changed = stamped_pool(msgspec.structs.replace(pool, **change))
    like_now = stamped(msgspec.structs.replace(like, **other))
    assert reason(changed, like_now, made_of=(stamped_pool(pool), stamped(like))) == DriftReason.NODEPOOL


@given(some_of(STATIC), some_of(OF_BEHAVIOUR))
def test_every_change_of_what_a_class_makes_of_an_instance_drifts(
    change: dict[str, Any], behaviour: dict[str, Any]
) -> None:
    pool, like = pool_of({}), samples.nodeclass()
    now = stamped_pool(msgspec.structs.replace(pool, **behaviour)), stamped(msgspec.structs.replace(like, **change))
    assert reason(*now, made_of=(stamped_pool(pool), stamped(like))) == DriftReason.NODECLASS
