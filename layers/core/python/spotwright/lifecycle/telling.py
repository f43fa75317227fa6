"""How often the same Event is told again.

Source: the dedupe timeouts of Karpenter v1.14 (``pkg/events`` and each controller's ``events.go``); the message counts
as part of what is told, so that news is never held back.
"""

from datetime import timedelta
from typing import Final

_QUIET: Final = {
    "FailedScheduling": timedelta(minutes=5),
    "Unconsolidatable": timedelta(minutes=15),
    "NodeRepairBlocked": timedelta(minutes=15),
    "NoCompatibleInstanceTypes": timedelta(minutes=1),
}
_USUALLY: Final = timedelta(minutes=2)


def quiet(reason: str) -> timedelta:
    """How long an Event that was told is not told again of the same object."""
    return _QUIET.get(reason, _USUALLY)
