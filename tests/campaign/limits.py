"""How often a campaign met a limit of AWS, and a cluster state that was behind the cluster."""

from typing import Any, Final

import msgspec

from spotwright.errors import InvalidRequest
from spotwright.simulation.state import MAXIMUM_ITEM_BYTES
from tests.campaign.calls import MESSAGES_PER_CALL, Call, Watcher
from tests.campaign.world import MESSAGE_REFUSED, CampaignWorld

ROW_STORED: Final = "row of 200 to 400 KB stored"
ROW_REFUSED: Final = "row of more than 400 KB refused by the table"
CALL_FILLED: Final = "call to SQS with as many messages as it takes"
STATE_AT_ONCE: Final = "cluster state read, not behind the cluster"
STATE_LATE: Final = "cluster state read, 1 to 30 s behind"
STATE_LATER: Final = "cluster state read, more than 30 s behind"
STATE_REFUSED: Final = "cluster state not used"
#: Everything that is counted.
MET: Final = (
    ROW_STORED, ROW_REFUSED, MESSAGE_REFUSED, CALL_FILLED, STATE_AT_ONCE, STATE_LATE, STATE_LATER, STATE_REFUSED,
)  # fmt: skip
FRESH_SECONDS: Final = 30


class Limits(Watcher):
    """Counts in ``world.met``."""

    def __init__(self, world: CampaignWorld) -> None:
        self._world = world
        self.largest_row_bytes = 0

    def after(self, call: Call, answer: Any) -> None:
        if call.is_to("state", "create", "save"):
            size = len(msgspec.json.encode(call.args[0]))
            self.largest_row_bytes = max(self.largest_row_bytes, size)
            self._world.met[ROW_STORED] += size > MAXIMUM_ITEM_BYTES // 2
        elif call.is_to("doorbells", "ring"):
            self._world.met[CALL_FILLED] += len(call.args[1]) == MESSAGES_PER_CALL
        elif call.is_to("cluster_state", "head") and answer is not None:
            stated = (self._world.clock.now() - answer.in_sync).total_seconds()
            self._world.met[STATE_REFUSED] += stated > FRESH_SECONDS
        elif call.is_to("cluster_state", "load"):
            self._world.met[self._lateness(answer)] += 1

    def refused(self, call: Call, error: Exception) -> None:
        if call.is_to("state", "create", "save") and isinstance(error, InvalidRequest):
            self._world.met[ROW_REFUSED] += 1
        elif call.is_to("cluster_state", "head", "load"):
            self._world.met[STATE_REFUSED] += 1

    def _lateness(self, state: Any) -> str:
        """How far the state is behind the cluster, whatever it says."""
        stated = (self._world.clock.now() - state.taken).total_seconds()
        behind = max(stated, self._world.cluster_state.lag_seconds or 0)
        return STATE_AT_ONCE if behind < 1 else STATE_LATE if behind <= FRESH_SECONDS else STATE_LATER
