"""Calls of DynamoDB one after the other: moto looks at a condition and then writes, and counts on nobody in between."""

import threading

from local.aws.emulator import Emulator


class TableLock:
    """Held by whoever reads or writes the tables. See `Emulator.component`."""

    def __init__(self, _emulator: Emulator) -> None:
        self.held = threading.RLock()
