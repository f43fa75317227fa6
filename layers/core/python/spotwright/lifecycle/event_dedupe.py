"""How often the same Event is told again.

Source: the dedupe timeouts of Karpenter v1.14 (``pkg/events`` and each controller's ``events.go``); the message counts
as part of what is told, so that news is never held back.
"""

from datetime import timedelta
from typing import Final

_WINDOWS: Final = {
    "FailedScheduling": timedelta(minutes=5),
    "Unconsolidatable": timedelta(minutes=15),
    "NodeRepairBlocked": timedelta(minutes=15),
    "NoCompatibleInstanceTypes": timedelta(minutes=1),
}
_DEFAULT_WINDOW: Final = timedelta(minutes=2)


def window(reason: str) -> timedelta:
    """How long an Event that was told is not told again of the same object."""
    return _WINDOWS.get(reason, _DEFAULT_WINDOW)
