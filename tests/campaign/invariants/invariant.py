"""What an invariant is, and what several of them look at."""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from spotwright.decisions.decision import DRIFTED, REBALANCED, SCHEDULED_CHANGE, UNDERUTILIZED
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.workflows.ports.rows import CommandRow
from tests.campaign.calls import Watcher
from tests.campaign.world import CampaignWorld

# A change of a budget or limit binds what is decided afterwards, and a decision is carried out within this time.
CARRIED_OUT_MS: Final = 15 * 60 * 1000
# A launch that was under way when the table was lost may be bought again (ARCHITECTURE.md) within this time.
TABLE_LOSS_MS: Final = 15 * 60 * 1000
# Reasons of budgets for which nodes with pods go, and all reasons for which nodes go by choice.
WITH_PODS: Final = (DRIFTED, UNDERUTILIZED)
BY_CHOICE: Final = ("Empty", *WITH_PODS, REBALANCED, SCHEDULED_CHANGE)


class Violation(msgspec.Struct, frozen=True):
    """An invariant that did not hold, and how."""

    invariant: str
    details: str


class Invariant(Watcher):
    """``checked``: how often it was looked at; ``violations``: what was found."""

    name = ""

    def __init__(self, world: CampaignWorld) -> None:
        self.world = world
        self.checked = 0
        self.violations: list[Violation] = []

    def after_step(self) -> None:
        """After every step."""

    def unsettled(self) -> Iterator[str]:
        """At rest: what is not as it should be yet."""
        yield from ()

    def fail(self, details: str) -> None:
        self.violations.append(Violation(self.name, details))

    def now_ms(self) -> int:
        return self.world.clock.milliseconds()

    def is_table_lost(self) -> bool:
        """Whether the table was lost lately."""
        return self.world.table_lost_at > 0 and self.now_ms() - self.world.table_lost_at < TABLE_LOSS_MS


def is_disrupted_by_choice(world: CampaignWorld, claim: NodeClaim, reasons: Collection[str] = BY_CHOICE) -> bool:
    """Whether a command takes the claim's node because it is empty, has drifted, or costs too much."""
    return any(
        isinstance(row, CommandRow)
        and row.phase == "waiting"
        and row.reason in reasons
        and claim.name in row.candidates
        for row in world.state.rows.values()
    )


def live(world: CampaignWorld) -> tuple[Instance, ...]:
    return world.ec2.live_instances()


def remember(values: deque[tuple[int, int]], value: int, now: int) -> None:
    """Keep the newest value, older ones until CARRIED_OUT_MS after they were replaced. An entry: last seen, value."""
    if values and values[-1][1] == value:
        values[-1] = (now, value)
    else:
        values.append((now, value))
    while values[0][0] < now - CARRIED_OUT_MS:
        values.popleft()
