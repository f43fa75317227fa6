"""What users and EC2 do to a cluster during a campaign. Each function says whether there was anything to act on."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, ScheduledEvent, StatusCheck
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.karpenter.repair_policies import REPAIR_POLICIES
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.state import MAXIMUM_MESSAGE_BYTES, DoorbellMessage
from spotwright.workflows.ports.doorbells import Doorbell
from tests.campaign.world import CampaignWorld

APPS: Final = ("web", "api", "queue", "cache", "batch")
CPU_MILLICORES: Final = (200, 400, 900, 1500, 3500)
LARGEST_DEPLOYMENT: Final = 8
# More nodes of each NodePool than any budget here allows to go at once.
WIDE_DEPLOYMENT: Final = 12
# Names that Kubernetes still takes, so that rows and messages become as large as they can.
LONGEST_NAME: Final = 200
# Values of a requirement: a launch's row has 190 KB, 350 KB, or more than the 400 KB that the table takes.
MANY_VALUES: Final = (3_000, 5_500, 5_500, 8_000)
RACK: Final = "example.com/rack"
# A condition of the node monitoring agent.
SICK: Final = "AcceleratedHardwareReady"

# What Spotwright alone writes on a NodeClaim.
OURS: Final = (
    labels.LAUNCH, labels.DECISION, labels.EXPECTED_NODE, labels.PODS_SEEN,
)  # fmt: skip

type Event = Callable[[CampaignWorld, Random], bool]


# Users


def scale_deployment(world: CampaignWorld, rng: Random) -> bool:
    app = rng.choice(APPS)
    template = builders.pod(
        app, cpu_millicores=rng.choice(CPU_MILLICORES), labels={"app": app}, termination_grace_period_seconds=10
    )
    world.deploy(template, rng.randint(0, LARGEST_DEPLOYMENT))
    return True


def deploy_many(world: CampaignWorld, rng: Random) -> bool:
    """A burst of small pods with the longest names, which are gone after some minutes."""
    app = "x" * LONGEST_NAME
    world.deploy(builders.pod(app, cpu_millicores=100, memory_bytes=builders.GIB // 16, labels={"app": "many"}), 40)
    world.later(rng.randint(60, 300), lambda: world.deploy(builders.pod(app), 0))
    return True


def empty_many_nodes(world: CampaignWorld, rng: Random) -> bool:
    """A Deployment whose pods have a node each, and which is gone after some minutes: all of its nodes are empty."""
    template = builders.pod(
        "wide", cpu_millicores=1_100, labels={"app": "wide"}, host_ports=(HostPort(8080),),
        termination_grace_period_seconds=10,
    )  # fmt: skip
    world.deploy(template, WIDE_DEPLOYMENT)
    world.later(rng.randint(60, 300), lambda: world.deploy(template, 0))
    return True


def delete_pod(world: CampaignWorld, rng: Random) -> bool:
    pods = world.running_pods()
    if not pods:
        return False
    world.cluster.delete("pods", rng.choice(pods).metadata)
    return True


def recreate_named_pod(world: CampaignWorld, rng: Random) -> bool:
    """A pod of a StatefulSet: another pod comes under its name."""
    name = f"db-{rng.randint(0, 2)}"
    world.cluster.remove("pods", f"default/{name}")
    world.cluster.put("pods", builders.pod(name, cpu_millicores=700, labels={"app": "db"}))
    return True


def change_pod_disruption_budget(world: CampaignWorld, rng: Random) -> bool:
    app = rng.choice(APPS)
    size = (
        {"min_available": rng.choice((0, 1, "50%"))} if rng.random() < 0.5 else {"max_unavailable": rng.choice((0, 1))}
    )
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget(app, app, **size))
    return True


def change_budget(world: CampaignWorld, rng: Random) -> bool:
    pool = rng.choice(world.cluster.all("nodepools"))
    world.cluster.update("nodepools", pool.name, budgets=(Budget(rng.choice("0123")),))
    return True


def change_limit(world: CampaignWorld, rng: Random) -> bool:
    if world.cluster.find("nodepools", "limited") is None:
        return False
    world.cluster.update("nodepools", "limited", limits={"cpu": rng.choice((4_000, 16_000, 24_000))})
    return True


def widen_nodepool(world: CampaignWorld, rng: Random) -> bool:
    """A NodePool gets a requirement of thousands of values for some minutes: rows of its launches are as large."""
    pool = rng.choice(world.cluster.all("nodepools"))
    racks = tuple(f"rack-{number:055}" for number in range(rng.choice(MANY_VALUES)))
    wide = (NodeSelectorRequirement(RACK, Operator.IN, racks),)
    world.cluster.update("nodepools", pool.name, requirements=wide)
    world.later(rng.randint(30, 300), lambda: _narrow(world, pool.name))
    return True


def _narrow(world: CampaignWorld, pool: str) -> None:
    if world.cluster.find("nodepools", pool) is not None:
        world.cluster.update("nodepools", pool, requirements=())


def forge_message(world: CampaignWorld, rng: Random) -> bool:
    """Whoever may write to a queue writes as much as SQS takes."""
    queue, kind = rng.choice((("lifecycle", "claim"), ("lifecycle", "launch"), ("provision", "pods")))
    bell = Doorbell(world.cluster.name, kind)
    key = "x" * (MAXIMUM_MESSAGE_BYTES - len(msgspec.json.encode(bell)))
    forged = DoorbellMessage(queue, msgspec.structs.replace(bell, key=key), world.clock.milliseconds())
    world.doorbells.messages.extend([forged] * rng.randint(1, 5))
    return True


def delete_nodeclaim(world: CampaignWorld, rng: Random) -> bool:
    claims = world.claims()
    if not claims:
        return False
    world.cluster.delete("nodeclaims", rng.choice(claims).metadata)
    return True


def tear_out_nodeclaim(world: CampaignWorld, rng: Random) -> bool:
    """Somebody takes a NodeClaim's finalizer away and deletes it: its instance is left. Mostly one that is launched."""
    claims = world.claims()
    if not claims:
        return False
    claim = rng.choice(tuple(claim for claim in claims if not claim.provider_id) or claims)
    world.torn_out.add(instance_id(claim.provider_id))
    world.cluster.remove("nodeclaims", claim.name)
    return True


def take_over(world: CampaignWorld, rng: Random) -> bool:
    """A node that Karpenter made comes into our hands: nothing names a launch or a decision, nor its instance's id."""
    promised = {row.claim for row in world.state.nominations() if row.phase in ("promised", "nominated")}
    claims = [
        claim for claim in world.claims() if claim.is_condition_true("Initialized") and claim.name not in promised
    ]
    if not claims:
        return False
    claim = rng.choice(claims)
    instance = world.ec2.instances.get(instance_id(claim.provider_id))
    if instance is not None:
        tags = {key: value for key, value in instance.tags.items() if key != labels.LAUNCH_TAG}
        world.ec2.instances[instance.id] = msgspec.structs.replace(instance, tags=tags)
    annotations = {key: value for key, value in claim.metadata.annotations.items() if key not in OURS}
    named = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    about = msgspec.structs.replace(claim.metadata, annotations=annotations, labels=named)
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=about))
    return True


def delete_node(world: CampaignWorld, rng: Random) -> bool:
    nodes = world.cluster.all("nodes")
    if not nodes:
        return False
    world.cluster.delete_node(rng.choice(nodes))
    return True


def make_nodeclass_unready(world: CampaignWorld, rng: Random) -> bool:
    unready = Condition("Ready", "False", "SubnetsNotFound", observed_generation=1)
    world.cluster.update("ec2nodeclasses", "default", conditions=(unready,))
    world.later(
        rng.randint(10, 120), lambda: world.cluster.update("ec2nodeclasses", "default", conditions=(builders.READY,))
    )
    return True


def remove_and_restore_nodepool(world: CampaignWorld, rng: Random) -> bool:
    """A pool is deleted and applied again: its nodes stay, as nobody deletes them here."""
    pool = world.cluster.find("nodepools", "limited")
    if pool is None:
        return False
    world.cluster.remove("nodepools", "limited")
    again = msgspec.structs.replace(pool, metadata=ObjectMeta("limited"), requirements=())
    world.later(rng.randint(5, 60), lambda: world.cluster.put("nodepools", again))
    return True


# EC2


def _notify(world: CampaignWorld, rng: Random, detail_type: str, detail: Mapping[str, Any]) -> None:
    at = world.clock.milliseconds() + rng.randint(0, 5) * 1000
    world.notices.append((at, lambda: world.deliver_event(detail_type, detail)))


def _an_instance(world: CampaignWorld, rng: Random) -> Instance | None:
    instances = world.ec2.live_instances()
    return rng.choice(instances) if instances else None


def warn_of_interruption(world: CampaignWorld, rng: Random) -> bool:
    instance = _an_instance(world, rng)
    if instance is None:
        return False
    detail = {"instance-id": instance.id, "instance-action": "terminate"}
    _notify(world, rng, "EC2 Spot Instance Interruption Warning", detail)
    world.ec2.stop(instance.id, after_seconds=120)
    return True


def recommend_rebalance(world: CampaignWorld, rng: Random) -> bool:
    """EC2 recommends to leave an instance; or, a storm, all of its type, or all there are."""
    chosen = _an_instance(world, rng)
    if chosen is None:
        return False
    storm = rng.choice(("none", "type", "all"))
    for instance in world.ec2.live_instances():
        if instance == chosen or storm == "all" or (storm, instance.instance_type) == ("type", chosen.instance_type):
            _notify(world, rng, "EC2 Instance Rebalance Recommendation", {"instance-id": instance.id})
    return True


def terminate_instance(world: CampaignWorld, rng: Random) -> bool:
    """Somebody ends an instance; half the time nobody is told."""
    instance = _an_instance(world, rng)
    if instance is None:
        return False
    world.ec2.stop(instance.id, after_seconds=0)
    if rng.random() < 0.5:
        detail = {"instance-id": instance.id, "state": rng.choice(("shutting-down", "terminated"))}
        _notify(world, rng, "EC2 Instance State-change Notification", detail)
    return True


def break_instance(world: CampaignWorld, rng: Random) -> bool:
    """An instance whose kubelet stops, or never comes up."""
    instance = _an_instance(world, rng)
    if instance is None:
        return False
    world.kubelets.broken_instances.add(instance.id)
    world.later(rng.randint(30, 900), lambda: world.kubelets.broken_instances.discard(instance.id))
    return True


def fall_ill(world: CampaignWorld, rng: Random) -> bool:
    """The node monitoring agent finds what it tolerates for a minute yet, of one Node or several; it may clear."""
    nodes = [node for node in world.cluster.all("nodes") if node.is_ready]
    if not nodes:
        return False
    toleration = next(policy.toleration for policy in REPAIR_POLICIES if policy.condition == SICK)
    for node in rng.sample(nodes, min(len(nodes), rng.choice((1, 1, 2, 5)))):
        since = world.clock.seconds() - toleration + timedelta(seconds=rng.randint(0, 45))
        _report(world, node.name, Condition(SICK, "False", "Found", last_transition_time=since))
        world.later(rng.randint(60, 900), partial(_recover, world, node.name))
    return True


def _recover(world: CampaignWorld, node: str) -> None:
    _report(world, node, Condition(SICK, "True", "Cleared", last_transition_time=world.clock.seconds()))


def _report(world: CampaignWorld, name: str, condition: Condition) -> None:
    node = world.cluster.find("nodes", name)
    if node is not None:
        others = tuple(other for other in node.conditions if other.type != condition.type)
        world.cluster.update("nodes", name, conditions=(*others, condition))


def impair_instance(world: CampaignWorld, rng: Random) -> bool:
    """EC2 calls an instance impaired, for less or more than is tolerated, and perhaps has an event in store for it."""
    instance = _an_instance(world, rng)
    if instance is None:
        return False
    impairments = tuple(
        Impairment(check, world.clock.seconds()) for check in rng.sample(tuple(StatusCheck), rng.choice((0, 1, 1, 2)))
    )
    events = (ScheduledEvent("instance-retirement"),) if not impairments else ()
    world.ec2.statuses[instance.id] = InstanceStatus(instance.id, impairments, events)
    world.later(rng.randint(30, 900), lambda: world.ec2.statuses.pop(instance.id, None))
    return True


def take_capacity(world: CampaignWorld, rng: Random) -> bool:
    pool = (
        rng.choice(("spot", "on-demand", "*")),
        rng.choice(("m5.large", "m5.xlarge", "c5.large", "c5.2xlarge", "*")),
        rng.choice((*builders.ZONES, "*")),
    )
    world.ec2.capacity[pool] = rng.choice((0, 0, 1))
    world.later(rng.randint(30, 600), lambda: world.ec2.capacity.pop(pool, None))
    return True


def boot_slowly(world: CampaignWorld, rng: Random) -> bool:
    world.kubelets.boot_seconds = rng.choice((20.0, 60.0, 200.0))
    world.later(300, lambda: setattr(world.kubelets, "boot_seconds", 20.0))
    return True


#: How often each happens, compared with the others.
EVENTS: Final[Mapping[Event, int]] = {
    scale_deployment: 20,
    delete_pod: 6,
    recreate_named_pod: 4,
    change_pod_disruption_budget: 4,
    delete_nodeclaim: 4,
    warn_of_interruption: 6,
    terminate_instance: 4,
    take_capacity: 4,
    delete_node: 2,
    tear_out_nodeclaim: 2,
    take_over: 2,
    widen_nodepool: 2,
    forge_message: 1,
    change_budget: 2,
    change_limit: 2,
    recommend_rebalance: 1,
    break_instance: 2,
    fall_ill: 8,
    impair_instance: 4,
    boot_slowly: 1,
    make_nodeclass_unready: 1,
    remove_and_restore_nodepool: 1,
    deploy_many: 1,
    empty_many_nodes: 2,
}
