"""Which evictions count for the hour: those decided, proposed and under way, each once."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from spotwright.decisions.decision import EMPTY, UNDERUTILIZED, Decision, Disruption, encode_decision
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.workflows.disrupt.eviction_limit import EvictionLimit, read_eviction_limit
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.rows import ClusterRow, CommandRow, epoch_ms

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Stored:
    """The state and the bodies of decisions, as far as the limit reads them."""

    rows: list[CommandRow]
    decided: list[Disruption] = field(default_factory=list)

    def cluster(self) -> ClusterRow:
        return msgspec.structs.replace(ClusterRow("c"), pending_decisions=("decided",) if self.decided else ())

    def commands(self, *, created_after: int) -> list[CommandRow]:
        open_ones = ("proposed", "planned", "waiting")
        return [row for row in self.rows if row.created > created_after or row.phase in open_ones]

    def get(self, key: str) -> bytes:
        decision = Decision(key, "disrupt", "c", 1, NOW, "s", "c", "d", stored_disruptions=tuple(self.decided))
        return encode_decision(decision)


@dataclass
class Ports:
    state: Stored
    blobs: Stored


def row(
    id: str, evictions: int, phase: str = "done", *, minutes_ago: int = 10, reason: str = UNDERUTILIZED
) -> CommandRow:
    created = epoch_ms(NOW - timedelta(minutes=minutes_ago))
    return CommandRow(id, "c", "d", reason, ("n",), evictions=evictions, phase=phase, created=created)


def decided(id: str, evictions: int, reason: str = UNDERUTILIZED) -> Disruption:
    return Disruption(id, reason, ("n",), {}, evictions=evictions)


def used(stored: Stored, *, but: str = "", per_hour: int = 10) -> int:
    snapshot = Snapshot("c", NOW, settings=Settings(max_evictions_per_hour=per_hour))
    limit = read_eviction_limit(cast("ProvisionPorts", Ports(stored, stored)), snapshot, but=but)
    assert limit.per_hour == per_hour
    return limit.used


@pytest.mark.parametrize(
    ("rows", "counted"),
    [
        ([row("a", 3), row("b", 2)], 5),
        ([row("a", 3), row("given-up", 2, "aborted")], 3),
        ([row("a", 3), row("last-hour", 2, minutes_ago=61)], 3),
        ([row("a", 3), row("goes-on", 2, "waiting", minutes_ago=61)], 5),
        ([row("a", 3), row("drifted", 2, reason=EMPTY)], 3),
        ([row("a", 3), row("proposal", 2, "proposed")], 5),
    ],
)
def test_evictions_for_price_count_that_were_begun_within_the_hour_or_go_on(
    rows: list[CommandRow], counted: int
) -> None:
    assert used(Stored(rows)) == counted


def test_the_proposal_that_is_looked_at_does_not_count_against_itself() -> None:
    assert used(Stored([row("a", 3), row("proposal", 2, "proposed")]), but="proposal") == 3


def test_what_is_committed_counts_before_its_commands_are_written_and_once_with_them() -> None:
    assert used(Stored([], [decided("a", 3), decided("b", 2), decided("empty", 4, EMPTY)])) == 5
    assert used(Stored([row("a", 3)], [decided("a", 3), decided("b", 2)])) == 5


def test_without_the_setting_nothing_is_read() -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was read")

    stored = Stored([])
    stored.commands = stored.cluster = fail  # type: ignore[method-assign]
    assert used(stored, per_hour=0) == 0


def test_what_is_left_and_what_is_said() -> None:
    assert EvictionLimit().left is None
    assert EvictionLimit().describe(3) == ""
    assert EvictionLimit(4, 1).left == 3
    assert EvictionLimit(4, 9).left == 0
    assert EvictionLimit(4, 1).describe(2) == "3 evictions of 4 within the hour (setting MAX_EVICTIONS_PER_HOUR)"
