"""The simulated cluster of a campaign: its functions are invoked one by one, each with the faults meant for it."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Final

import msgspec

from spotwright import sqs_batch
from spotwright.errors import ApiError, InvalidRequest
from spotwright.model.snapshot import NODE_REPAIR, RESERVED_CAPACITY, Settings
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.state import DoorbellMessage
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell
from tests.campaign.calls import CallFault, Calls, WatchedPorts
from tests.real_forwarder import RealForwarder

# SQS hands at most so many messages to an invocation here, and hands those of a failed one out again after so long.
BATCH: Final = 10
VISIBILITY: Final = timedelta(seconds=180)
CATALOG_KEY: Final = "catalogs/given"
# Plans of this size need no search; what is tried here is not the planner.
WORK_UNITS: Final = 500
MESSAGE_REFUSED: Final = "message as long as SQS takes, refused"

type Work = Callable[[], object]


class CampaignWorld(World):
    """``invocations``: how they ended, by function and end. ``notices``: EventBridge's messages for ``interrupt``.

    ``struck``: how often each kind of fault took effect; ``met``: how often what is named in ``limits.MET`` was met.
    ``errors``: what ended an invocation and is no answer of an
    API. ``table_lost_at``: epoch milliseconds, 0 = never. ``torn_out``: instances whose NodeClaim somebody removed
    without its finalizer; nobody drains them, as in Karpenter.
    """

    def __init__(self) -> None:
        super().__init__(forwarder=RealForwarder)
        self.calls = Calls()
        self.ports = WatchedPorts(self.ports, self.calls)
        self.settings = Settings(work_units=WORK_UNITS, feature_gates=(NODE_REPAIR, RESERVED_CAPACITY))
        self.cluster_state.lag_seconds = 0
        self.invocations: Counter[tuple[str, str]] = Counter()
        self.errors: list[Exception] = []
        self.notices: list[tuple[int, Work]] = []
        self.struck: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self._armed: list[tuple[str, CallFault]] = []
        self._next_seconds: tuple[str, float] | None = None
        self.table_lost_at = 0
        self.torn_out: set[str] = set()
        self._later: list[tuple[int, Work]] = []
        self._set_up()

    def _set_up(self) -> None:
        self.cluster.put("ec2nodeclasses", builders.nodeclass())
        self.cluster.put("nodepools", builders.nodepool(consolidate_after_seconds=30))
        self.cluster.put(
            "nodepools",
            builders.nodepool(
                "limited", weight=10, limits={"cpu": 16_000}, termination_grace_period_seconds=300,
                consolidate_after_seconds=0,
            ),
        )  # fmt: skip

    # Time

    def pass_time(self, seconds: int) -> None:
        """Machines, controllers and schedules go on; no function is invoked."""
        for _ in range(seconds):
            self.pass_second()
            now = self.clock.milliseconds()
            due = [work for at, work in self._later if at <= now]
            self._later = [(at, work) for at, work in self._later if at > now]
            for work in due:
                work()
            self.act_outside()

    def later(self, seconds: int, work: Work) -> None:
        """Do something after so many seconds, or when the campaign comes to rest."""
        self._later.append((self.clock.milliseconds() + seconds * 1000, work))

    def end_everything_that_lasts(self) -> None:
        waiting, self._later = self._later, []
        for _, work in waiting:
            work()
        self._armed.clear()
        self._next_seconds = None

    # Faults

    def arm(self, name: str, fault: CallFault) -> None:
        """The fault acts on a call of the invocations that follow, when its countdown ends."""
        self._armed.append((name, fault))

    def limit_next_invocation(self, name: str, *, seconds: float) -> None:
        """The next invocation has so many seconds left from its beginning to its end."""
        self._next_seconds = (name, seconds)

    def lose_table(self) -> None:
        self.state.clear()
        self.table_lost_at = self.clock.milliseconds()

    def bells_for_everything(self, queue: str) -> list[Doorbell]:
        """A doorbell for everything that a function may be woken for."""
        name = self.cluster.name
        rows = [(kind, key) for kind, _, key in (key.partition("#") for key in self.state.rows)]
        match queue:
            case "provision":
                return [Doorbell(name, "pods")]
            case "disrupt":
                return [
                    Doorbell(name, "evaluate"),
                    *(Doorbell(name, "validate", row.id) for row in self.state.commands()),
                ]
            case "lifecycle":
                return [
                    *(Doorbell(name, kind) for kind in ("decision", "nodepools", "repair")),
                    *(Doorbell(name, kind, key) for kind, key in rows),
                    *(Doorbell(name, "claim", claim.name) for claim in self.claims()),
                    *(Doorbell(name, "node", node.name) for node in self.cluster.all("nodes")),
                ]
        return []

    # Invocations

    def ready(self) -> tuple[DoorbellMessage, ...]:
        """Messages that can be received now, as they stand in their queues."""
        now = self.clock.milliseconds()
        return tuple(message for message in self.doorbells.messages if message.at <= now)

    def has_work(self) -> bool:
        now = self.clock.milliseconds()
        return bool(self.ready()) or any(at <= now for at, _ in self.notices)

    def invoke_next(self, rng: Random) -> None:
        """Invoke a function whose queue holds messages with some of them, in any order."""
        now = self.clock.milliseconds()
        notices = [notice for notice in self.notices if notice[0] <= now]
        queues = sorted({message.queue for message in self.ready()})
        if notices and rng.random() < 1 / (len(queues) + 1):
            notice = rng.choice(notices)
            self.notices.remove(notice)
            self._invoke_interrupt(notice[1])
        elif queues:
            queue = rng.choice(queues)
            self.invoke_queue(queue, self._receive(queue, rng))

    def invoke_interrupt(self) -> None:
        """EventBridge delivers everything that it holds."""
        for notice in tuple(self.notices):
            self.notices.remove(notice)
            self._invoke_interrupt(notice[1])

    def invoke_waiting(self, queue: str) -> None:
        """Invoke a function with all messages that its queue holds now."""
        self.invoke_queue(queue, self.doorbells.receive(queue))

    def _receive(self, queue: str, rng: Random) -> tuple[Doorbell, ...]:
        """Standard queues keep no order."""
        ready = [message for message in self.ready() if message.queue == queue]
        taken = rng.sample(ready, min(BATCH, len(ready)))
        for message in taken:
            self.doorbells.messages.remove(message)
        return tuple(message.doorbell for message in taken)

    def _is_accepted(self, bell: Doorbell) -> bool:
        """Whether the handler takes the message; one that is none is set aside by SQS when it was refused often."""
        try:
            sqs_batch.parse_doorbell(
                msgspec.json.encode(bell).decode(), kinds=(bell.kind,), clusters=(self.cluster.name,)
            )
        except InvalidRequest:
            self.met[MESSAGE_REFUSED] += 1
            return False
        return True

    def invoke_queue(self, queue: str, messages: tuple[Doorbell, ...]) -> None:
        bells = tuple(filter(self._is_accepted, messages))
        if not bells:
            return
        if queue == "catalog":
            self._read_catalog()
            return
        failed: list[Doorbell] = []
        if not self._run(queue, lambda: self._work(queue, bells, failed)):
            at = self.clock.milliseconds() + int(VISIBILITY.total_seconds() * 1000)
            self.doorbells.messages.extend(DoorbellMessage(queue, bell, at) for bell in failed or bells)

    def _work(self, queue: str, bells: tuple[Doorbell, ...], failed: list[Doorbell]) -> None:
        """As the handlers: ``lifecycle`` says which doorbells failed, and only their messages come back."""
        if queue not in ("lifecycle", "notices"):
            self.functions()[queue](bells)
            return
        failures = step_doorbells(self.ports, bells, now=self.clock.now(), seconds_left=self.seconds_left)
        failed.extend(failures)
        for failure in failures.values():
            raise failure

    def _read_catalog(self) -> None:
        """The function ``catalog``, as far as others need it: a lost table gets its key again."""
        self.invocations["catalog", "done"] += 1
        if not self.state.current_catalog_key and "state" not in self.outages:
            self.state.set_catalog_key(CATALOG_KEY, self.clock.milliseconds())

    def _invoke_interrupt(self, work: Work) -> None:
        if not self._run("interrupt", work):
            self.notices.append((self.clock.milliseconds() + int(VISIBILITY.total_seconds() * 1000), work))

    def _run(self, function: str, work: Work) -> bool:
        """Whether the invocation came to its end, so that its messages are deleted."""
        armed, self._armed = self._armed, []
        outer = self.calls.faults, self.seconds_left
        self.calls.faults = tuple(fault for _, fault in armed)
        self._begin_seconds()
        try:
            end = self._end_of(work)
        finally:
            self.calls.faults, self.seconds_left = outer
        self.struck.update(name for name, fault in armed if fault.has_struck)
        self._armed += [(name, fault) for name, fault in armed if not fault.has_struck]
        self.invocations[function, end] += 1
        return end == "done"

    def _end_of(self, work: Work) -> str:
        try:
            work()
        except Crash:
            return "killed"
        except ApiError:
            return "failed"
        except Exception as error:  # noqa: BLE001 whatever it is, it is a defect, and is reported
            self.errors.append(error)
            return "broken"
        return "done"

    def _begin_seconds(self) -> None:
        """The time that is left goes by with each question for it."""
        self.seconds_left = None
        if self._next_seconds is not None:
            name, seconds = self._next_seconds
            self._next_seconds = None
            self.struck[name] += 1
            left = iter((seconds, seconds))
            self.seconds_left = lambda: next(left, 0.0)
