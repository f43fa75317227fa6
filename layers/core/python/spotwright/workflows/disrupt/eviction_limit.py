"""How many pods may still be evicted for the sake of price within the hour: the setting MAX_EVICTIONS_PER_HOUR."""

from datetime import timedelta
from typing import Final

import msgspec

from spotwright.decisions.decision import UNDERUTILIZED, decode_decision
from spotwright.model.plurals import counted
from spotwright.model.snapshot import Snapshot
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.rows import epoch_ms

WINDOW: Final = timedelta(hours=1)


class EvictionLimit(msgspec.Struct, frozen=True):
    """``per_hour``: the setting, 0 = any number; ``used``: evictions of the last hour."""

    per_hour: int = 0
    used: int = 0

    @property
    def left(self) -> int | None:
        """None = any number."""
        return max(0, self.per_hour - self.used) if self.per_hour else None

    def describe(self, more: int) -> str:
        """With so many more evictions, in a sentence; "" = there is no limit."""
        if not self.per_hour:
            return ""
        used = counted(self.used + more, "eviction")
        return f"{used} of {self.per_hour} within the hour (setting MAX_EVICTIONS_PER_HOUR)"


def read_eviction_limit(ports: ProvisionPorts, snapshot: Snapshot, *, but: str = "") -> EvictionLimit:
    """Counted are proposals and commands of the last hour, and all that have not ended; none that were given up.

    ``but``: the id of a proposal that does not count.
    """
    per_hour = snapshot.settings.max_evictions_per_hour
    if not per_hour:
        return EvictionLimit()
    since = epoch_ms(snapshot.now - WINDOW)
    evictions = {
        disruption.id: disruption.evictions
        for key in ports.state.cluster().pending_decisions
        for disruption in decode_decision(ports.blobs.get(key)).disruptions
        if disruption.reason == UNDERUTILIZED
    }
    for row in ports.state.commands(created_after=since):
        if row.reason == UNDERUTILIZED and row.phase != "aborted":
            evictions.setdefault(row.id, row.evictions)
    return EvictionLimit(per_hour, sum(number for id, number in evictions.items() if id != but))
