"""The faults of a campaign. A kind is a small class: ``strike`` arms it or lets it happen, once.

Where it acts on a call, it is armed for one of the calls that follow. What lasts ends by itself after a while, and
at the latest when the campaign comes to rest.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.model.cluster_state import ClusterObjects, ClusterStateError
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition
from spotwright.simulation.effects import Crash
from spotwright.simulation.state import DoorbellMessage
from tests.campaign.calls import CHANGES as CHANGES_BY_PORT
from tests.campaign.calls import Call, CallFault
from tests.campaign.load import warn_of_interruption
from tests.campaign.world import CampaignWorld

#: When a fault strikes: at the n-th call of those that are counted.
type Target = tuple[int, Callable[[Call], bool]]

# So many messages are lost, late or doubled at once.
MOST_CHANGED: Final = 30
# A fault that is armed strikes at one of so many calls or changes that follow.
CALLS: Final = 25
CHANGES: Final = 12
# What decides, buys and takes; and every action that changes something, however seldom it is called.
DECISIVE: Final = (("state", "commit"), ("ec2", "create_fleet"), ("ec2", "terminate"), ("cluster", "delete"))
ACTIONS: Final = DECISIVE * 6 + tuple(
    (port, action) for port in sorted(CHANGES_BY_PORT) for action in sorted(CHANGES_BY_PORT[port])
)
# An invocation lasts no longer than a minute.
STALLED_SECONDS: Final = 50


class Killed(CallFault):
    """The process ends before or after a change."""

    def __init__(self, target: Target, *, done: bool) -> None:
        super().__init__(*target)
        self._done, self._now = done, False

    def before(self, call: Call) -> None:
        self._now = self.is_reached(call)
        if self._now and not self._done:
            raise Crash(f"before {call.port}.{call.action}")

    def after(self, call: Call, answer: Any) -> None:
        if self._now:
            raise Crash(f"after {call.port}.{call.action}")


class CallRefused(CallFault):
    """A call, read or change, is not carried out."""

    def __init__(self, target: Target, error: ApiError) -> None:
        super().__init__(*target)
        self._error = error

    def before(self, call: Call) -> None:
        if call.action != "record_event" and self.is_reached(call):
            raise self._error


class AnswerLost(CallFault):
    """A change is made, and whoever made it gets no answer."""

    def after(self, call: Call, answer: Any) -> None:
        if call.action != "record_event" and self.is_reached(call):
            raise Unavailable("no answer", code="Timeout")


class ActsMeanwhile(CallFault):
    """In the middle of an invocation, just before a call, others act."""

    def __init__(self, target: Target, act: Callable[[], None]) -> None:
        super().__init__(*target)
        self._act = act

    def before(self, call: Call) -> None:
        if self.is_reached(call):
            self._act()


def _some_call(rng: Random) -> Target:
    """A call of some kind that changes something, or the n-th call."""
    return _some_change(rng) if rng.random() < 0.5 else (rng.randint(1, CALLS), lambda _: True)


def _some_change(rng: Random) -> Target:
    """A change of some kind, or the n-th change of any."""
    if rng.random() < 0.5:
        return rng.randint(1, CHANGES), lambda call: call.changes
    port, action = rng.choice(ACTIONS)
    return rng.choice((1, 1, 2)), lambda call: call.is_to(port, action)


# Kinds


class Kill:
    name, weight = "handler killed between two effects", 30

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.arm(self.name, Killed(_some_change(rng), done=rng.random() < 0.8))
        return True


class RefuseCall:
    name, weight = "call refused", 12

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        error = rng.choice((Unavailable("no answer", code="Timeout"), Throttled("slow down", code="Throttling")))
        world.arm(self.name, CallRefused(_some_call(rng), error))
        return True


class LoseAnswer:
    name, weight = "answer of a change lost", 12

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.arm(self.name, AnswerLost(*_some_change(rng)))
        return True


class SecondWorker:
    """Another invocation of any function, from its beginning to its end, in the middle of one.

    Half the time the note that a planner is at work is gone: nothing but time may depend on it.
    """

    name, weight = "two workers at the same time", 16

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        other = Random(rng.random())
        world.arm(self.name, ActsMeanwhile(_some_call(rng), lambda: self._work(world, other)))
        return True

    def _work(self, world: CampaignWorld, rng: Random) -> None:
        if rng.random() < 0.5:
            world.state.planners.clear()
        if rng.random() < 0.3 and warn_of_interruption(world, rng):
            world.invoke_interrupt()
            world.invoke_waiting("notices")
        for queue in rng.sample(("lifecycle", "provision", "disrupt", "any"), 2):
            bells = world.bells_for_everything(queue)
            if bells:
                world.invoke_queue(queue, tuple(rng.sample(bells, rng.randint(1, len(bells)))))
            else:
                world.invoke_next(rng)


class SecondPlanner:
    """Two decide from the same state: the other commits just before. The note that a planner is at work is gone."""

    name, weight = "two planners at the same time", 4

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.arm(self.name, ActsMeanwhile((1, lambda call: call.is_to("state", "commit")), lambda: self._plan(world)))
        return True

    def _plan(self, world: CampaignWorld) -> None:
        world.state.planners.clear()
        for queue in ("provision", "disrupt"):
            world.invoke_queue(queue, tuple(world.bells_for_everything(queue)))


class Stall:
    """A handler stands still between two effects, while everything else goes on."""

    name, weight = "handler stands still", 8

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        other = Random(rng.random())
        world.arm(self.name, ActsMeanwhile(_some_call(rng), lambda: self._go_on(world, other)))
        return True

    def _go_on(self, world: CampaignWorld, rng: Random) -> None:
        if rng.random() < 0.1:
            world.lose_table()
        for _ in range(rng.randint(1, STALLED_SECONDS)):
            world.pass_time(1)
            if world.has_work():
                world.invoke_next(rng)


class OutOfTime:
    name, weight = "invocation out of time", 3

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.limit_next_invocation(self.name, seconds=rng.choice((0.0, 9.0, 11.0, 25.0)))
        return True


class LoseMessages:
    name, weight = "messages lost", 8

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        return _change_messages(world, rng, self.name, lambda _: ())


class DoubleMessages:
    name, weight = "messages doubled", 6

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        return _change_messages(
            world, rng, self.name, lambda message: (message, _delayed(message, rng.choice((0, 1, 30, 600))))
        )


class DelayMessages:
    name, weight = "messages late", 6

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        return _change_messages(world, rng, self.name, lambda message: (_delayed(message, rng.randint(5, 900)),))


class ReorderMessages:
    """Whoever waits for a time comes before who could be received now."""

    name, weight = "messages reordered", 4

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        messages = world.doorbells.messages
        if len(messages) < 2:
            return False
        times = [message.at for message in messages]
        rng.shuffle(times)
        world.doorbells.messages = [
            msgspec.structs.replace(message, at=at) for message, at in zip(messages, times, strict=True)
        ]
        world.struck[self.name] += 1
        return True


class LoseNotices:
    name, weight = "messages of EventBridge lost or doubled", 12

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        if not world.notices:
            return False
        notice = rng.choice(world.notices)
        if rng.random() < 0.5:
            world.notices.remove(notice)
        else:
            world.notices.append((notice[0] + rng.randint(0, 60_000), notice[1]))
        world.struck[self.name] += 1
        return True


class LoseTable:
    name, weight = "table lost", 1

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.lose_table()
        world.struck[self.name] += 1
        return True


class Outage:
    """A port that refuses everything for a while."""

    def __init__(self, name: str, port: str, error: ApiError, weight: int) -> None:
        self.name, self.weight = name, weight
        self._port, self._error = port, error

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        if self._port in world.outages:
            return False
        world.outages[self._port] = self._error
        world.later(rng.choice((5, 20, 60, 200)), lambda: world.outages.pop(self._port, None))
        world.struck[self.name] += 1
        return True


class HideNewInstances:
    """EC2 shows an instance some time after its launch."""

    name, weight = "EC2 reads stale", 3

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.ec2.lag_seconds = rng.choice((2.0, 10.0, 40.0))
        world.later(rng.randint(30, 200), lambda: setattr(world.ec2, "lag_seconds", 0.0))
        world.struck[self.name] += 1
        return True


class StopForwarder:
    name, weight = "forwarder gone", 2

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        world.forwarder_runs = False
        world.later(rng.randint(20, 200), lambda: setattr(world, "forwarder_runs", True))
        world.struck[self.name] += 1
        return True


class ShipLate:
    """The cluster state is behind the cluster; sometimes it says so."""

    name, weight = "cluster state late", 6

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        shipped = world.cluster_state
        shipped.lag_seconds = rng.choice((2, 5, 15, 29, 45, 60))
        shipped.stated_lag_seconds = rng.choice((None, 0))
        world.later(rng.randint(30, 300), lambda: self._end(world))
        world.struck[self.name] += 1
        return True

    def _end(self, world: CampaignWorld) -> None:
        world.cluster_state.lag_seconds, world.cluster_state.stated_lag_seconds = 0, None


class ShipNothing:
    """The cluster state cannot be read, or nothing was shipped."""

    name, weight = "cluster state unusable", 3

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        codes = ("CutShort", "OtherSchema", "OtherCluster", "BadResourceVersion", "InTheFuture")
        world.cluster_state.error = ClusterStateError("it cannot be used", code=rng.choice(codes))
        world.later(rng.randint(20, 200), lambda: setattr(world.cluster_state, "error", None))
        world.struck[self.name] += 1
        return True


type Lie = Callable[[ClusterObjects, Random], ClusterObjects]


def _without_pods(objects: ClusterObjects, rng: Random) -> ClusterObjects:
    return msgspec.structs.replace(objects, pods=_some(objects.pods, rng))


def _without_nodes(objects: ClusterObjects, rng: Random) -> ClusterObjects:
    return msgspec.structs.replace(objects, nodes=_some(objects.nodes, rng))


def _without_nodeclaims(objects: ClusterObjects, rng: Random) -> ClusterObjects:
    return msgspec.structs.replace(objects, nodeclaims=_some(objects.nodeclaims, rng))


def _without_budgets_and_limits(objects: ClusterObjects, rng: Random) -> ClusterObjects:
    pools = (msgspec.structs.replace(pool, budgets=(Budget("100%"),), limits={}) for pool in objects.nodepools)
    return msgspec.structs.replace(objects, nodepools=tuple(pools), pod_disruption_budgets=())


def _with_larger_nodes(objects: ClusterObjects, rng: Random) -> ClusterObjects:
    nodes = (
        msgspec.structs.replace(node, allocatable={name: 10 * size for name, size in node.allocatable.items()})
        for node in objects.nodes
    )
    return msgspec.structs.replace(objects, nodes=tuple(nodes))


def _with_everything_consolidatable(objects: ClusterObjects, rng: Random) -> ClusterObjects:
    idle = Condition("Consolidatable", "True")
    claims = (
        msgspec.structs.replace(
            claim, conditions=(*(other for other in claim.conditions if other.type != idle.type), idle)
        )
        for claim in objects.nodeclaims
    )
    return msgspec.structs.replace(objects, nodeclaims=tuple(claims))


LIES: Final[tuple[Lie, ...]] = (
    _without_pods, _without_nodes, _without_nodeclaims, _without_budgets_and_limits, _with_larger_nodes,
    _with_everything_consolidatable,
)  # fmt: skip


def _some[T](objects: tuple[T, ...], rng: Random) -> tuple[T, ...]:
    share = rng.choice((0.2, 0.5, 1.0))
    return tuple(each for each in objects if rng.random() >= share)


class ShipLies:
    """Whoever has the forwarder's credentials ships what is not so."""

    name, weight = "cluster state lies", 4

    def strike(self, world: CampaignWorld, rng: Random) -> bool:
        lie, seed = rng.choice(LIES), rng.random()
        world.cluster_state.lie = lambda objects: lie(objects, Random(seed))
        world.later(rng.randint(20, 200), lambda: setattr(world.cluster_state, "lie", None))
        world.struck[self.name] += 1
        return True


FAULTS: Final = (
    Kill(),
    RefuseCall(),
    LoseAnswer(),
    SecondWorker(),
    SecondPlanner(),
    Stall(),
    OutOfTime(),
    LoseMessages(),
    DoubleMessages(),
    DelayMessages(),
    ReorderMessages(),
    LoseNotices(),
    LoseTable(),
    Outage("API server away", "cluster", Unavailable("no answer", code="Unreachable"), 3),
    Outage("EC2 throttled", "ec2", Throttled("too many requests", code="RequestLimitExceeded"), 3),
    Outage("table away", "state", Unavailable("no answer", code="InternalServerError"), 2),
    Outage("bucket away", "blobs", Unavailable("no answer", code="InternalError"), 2),
    Outage("queues away", "doorbells", Unavailable("no answer", code="InternalError"), 2),
    HideNewInstances(),
    StopForwarder(),
    ShipLate(),
    ShipNothing(),
    ShipLies(),
)


def _change_messages(
    world: CampaignWorld, rng: Random, name: str, change: Callable[[DoorbellMessage], tuple[DoorbellMessage, ...]]
) -> bool:
    """Each message in the queues is chosen with a probability of its own strike."""
    share = rng.choice((0.1, 0.5, 1.0))
    after: list[DoorbellMessage] = []
    changed = 0
    for message in world.doorbells.messages:
        chosen = rng.random() < share and changed < MOST_CHANGED
        changed += chosen
        after.extend(change(message) if chosen else (message,))
    world.doorbells.messages = after
    world.struck[name] += changed
    return changed > 0


def _delayed(message: DoorbellMessage, seconds: int) -> DoorbellMessage:
    return msgspec.structs.replace(message, at=message.at + seconds * 1000)
