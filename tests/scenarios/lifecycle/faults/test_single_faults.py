"""A call of lifecycle fails at some moment while nodes join or go: nothing waits for long, though no schedule rings.

Each world runs twice, without the fault and with it. Nothing is disrupted: for that there is a schedule.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import pytest

from spotwright.errors import ApiError, Conflict, Throttled, Unavailable
from spotwright.model import labels
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell
from tests.campaign.calls import Call, CallFault, Calls, WatchedPorts
from tests.real_forwarder import RealForwarder

SEEDS: Final = 30
# How much later than without the fault everything is as it should be, at most; and where a message came back.
LATE_SECONDS: Final = 60
COME_BACK_SECONDS: Final = 200
VISIBILITY_SECONDS: Final = 180
# Nothing changes any more.
REST_SECONDS: Final = 10
# Calls that do not raise.
PASSED_OVER: Final = frozenset({"record_event"})


class Failure(CallFault):
    """Of one call of lifecycle, when its countdown ends; before or after it has changed something."""

    def __init__(self, rng: Random, begins: int) -> None:
        super().__init__(rng.choice((rng.randint(1, 10), rng.randint(1, 60))), self._counts)
        self.port = rng.choice(("", "", "cluster", "doorbells", "state", "ec2"))
        self.error = rng.choice((Unavailable("no answer"), Throttled("too many requests"), Conflict("modified")))
        self.is_late, self.begins = rng.random() < 0.3, begins
        self.is_armed, self.struck = False, ""

    def _counts(self, call: Call) -> bool:
        if not self.is_armed or call.action in PASSED_OVER or (self.is_late and not call.changes):
            return False
        # A queue knows no precondition, and who changes a row goes on with it.
        has_conflicts = call.port == "cluster" or not isinstance(self.error, Conflict)
        return has_conflicts and self.port in ("", call.port)

    def before(self, call: Call) -> None:
        if not self.is_late:
            self._strike(call)

    def after(self, call: Call, answer: Any) -> None:
        if self.is_late:
            self._strike(call)

    def _strike(self, call: Call) -> None:
        if self.is_reached(call):
            self.struck = f"{call.port}.{call.action}"
            raise self.error


class FaultyWorld(World):
    """Lifecycle's messages come back one by one, as from its handler; EC2 tells of instances that end."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__(forwarder=RealForwarder)
        self.failure, self.came_back, self.second = failure, False, 0
        calls = Calls()
        calls.faults = () if failure is None else (failure,)
        self._watched = WatchedPorts(self.ports, calls)
        self._told = set[tuple[str, str]]()
        self.cluster.put("ec2nodeclasses", builders.nodeclass())
        self.cluster.put("nodepools", builders.nodepool(consolidate_after_seconds=None))

    def _schedules(self) -> None:
        """Nothing but doorbells."""

    def act_outside(self) -> None:
        super().act_outside()
        for instance in self.ec2.all_instances():
            told = instance.id, instance.state
            if instance.state in ("shutting-down", "terminated") and told not in self._told:
                self._told.add(told)
                detail = {"instance-id": instance.id, "state": instance.state}
                self.deliver_event("EC2 Instance State-change Notification", detail)

    def _invoke(self, queue: str, work: Callable[[tuple[Doorbell, ...]], None], bells: tuple[Doorbell, ...]) -> None:
        if queue not in ("lifecycle", "notices"):
            super()._invoke(queue, work, bells)
            return
        failed = step_doorbells(self._watched, bells, now=self.clock.now())
        assert all(isinstance(failure, ApiError) for failure in failed.values())
        self.came_back |= bool(failed)
        self.doorbells.ring(queue, [*failed], delay_seconds=VISIBILITY_SECONDS)


def unsettled(world: World) -> Iterator[str]:
    """What is not as it should be."""
    nodes = {node.name: node for node in world.cluster.all("nodes")}
    used = {pod.node_name for pod in world.cluster.all("pods")}
    for claim in world.claims():
        if claim.metadata.deletion_timestamp is not None:
            yield f"NodeClaim {claim.name} is being deleted"
        elif claim.node_name not in nodes or not claim.is_condition_true("Initialized"):
            yield f"NodeClaim {claim.name} is not initialized"
        elif labels.INSTANCE_TAGGED not in claim.metadata.annotations:
            yield f"the instance of NodeClaim {claim.name} has no tags"
        elif claim.node_name in used and labels.PODS_SEEN not in claim.metadata.annotations:
            yield f"the pods of NodeClaim {claim.name} were not seen"
    for node in nodes.values():
        if node.metadata.deletion_timestamp is not None:
            yield f"Node {node.name} is being deleted"
        if any(taint.key in (labels.DISRUPTED, labels.HELD, labels.UNREGISTERED) for taint in node.taints):
            yield f"Node {node.name} is closed"
    for pod in world.cluster.all("pods"):
        if pod.node_name not in nodes or pod.metadata.deletion_timestamp is not None:
            yield f"pod {pod.key} waits, or stops"
    owned = {claim.provider_id.rpartition("/")[2] for claim in world.claims()}
    for instance in world.ec2.live_instances():
        if instance.id not in owned:
            yield f"instance {instance.id} has no NodeClaim"


def delete_node(world: World, rng: Random) -> None:
    nodes = world.cluster.all("nodes")
    if nodes:
        world.cluster.delete_node(rng.choice(nodes))


def delete_claim(world: World, rng: Random) -> None:
    claims = world.claims()
    if claims:
        world.cluster.delete("nodeclaims", rng.choice(claims).metadata)


def delete_pod(world: World, rng: Random) -> None:
    pods = world.cluster.all("pods")
    if pods:
        world.cluster.delete("pods", rng.choice(pods).metadata)


def edit_pool(world: World, rng: Random) -> None:
    world.cluster.update("nodepools", "default", weight=rng.randint(1, 9))


def scale(world: World, rng: Random) -> None:
    ((template, _),) = world._replicas.values()
    world.deploy(template, rng.randint(0, 5))


ACTIONS: Final = (delete_node, delete_claim, delete_pod, edit_pool, scale)


def settles_at(seed: int, *, fails: bool) -> tuple[FaultyWorld, int]:
    """The world, and the second from which it is as it should be."""
    rng = Random(f"single fault {seed}")
    acts = sorted(rng.choices(range(1, 120), k=rng.randint(1, 2)))
    failure = Failure(rng, begins=max(0, rng.choice((rng.randint(0, 60), acts[0] + rng.randint(-5, 40)))))
    world = FaultyWorld(failure if fails else None)
    world.kubelets.boot_seconds, world.kubelets.ready_seconds = rng.choice((15, 18, 23, 31)), rng.choice((0, 1, 3, 8))
    world.kubelets.stop_seconds = rng.choice((0, 2, 7, 20))
    pod = builders.pod("inflate", cpu_millicores=rng.choice((1800, 900)), termination_grace_period_seconds=60)
    world.deploy(pod, rng.randint(1, 3))
    chosen = {second: rng.choice(ACTIONS) for second in acts}
    struck_at = settled_since = 0
    while world.second < max(acts[-1], struck_at, failure.begins) + 400:
        failure.is_armed = world.second >= failure.begins
        if world.second in chosen:
            chosen[world.second](world, Random(f"{seed} {world.second}"))
        world.run(1)
        world.second += 1
        struck_at = struck_at or (world.second if failure.struck else 0)
        if world.second <= acts[-1] or any(True for _ in unsettled(world)):
            settled_since = world.second
        if world.second - max(settled_since, failure.begins) >= REST_SECONDS and world.second > acts[-1]:
            return world, max(settled_since, struck_at)
    return world, world.second


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_call_that_fails_once_makes_nothing_late(seed: int) -> None:
    _, usual = settles_at(seed, fails=False)
    world, settled = settles_at(seed, fails=True)
    assert not list(unsettled(world))
    assert world.failure is not None
    bound = COME_BACK_SECONDS if world.came_back else LATE_SECONDS
    assert settled - usual <= bound, f"{world.failure.struck} failed with {world.failure.error!r}"
