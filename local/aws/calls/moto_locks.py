"""Calls that moto answers one after the other: it looks at a condition and then writes, and goes through rows and tags
while others add some."""

import threading
from contextlib import AbstractContextManager, nullcontext

# None of their calls waits for anything, as SQS's do.
SERVICES = ("dynamodb", "ec2", "iam", "lambda")


class MotoLocks:
    """A lock for each of these services. See `Emulator.component`."""

    def __init__(self, _emulator: object) -> None:
        self._locks = {service: threading.RLock() for service in SERVICES}

    def alone(self, service: str) -> AbstractContextManager[object]:
        """Nobody else is in moto's part for the service meanwhile."""
        return self._locks.get(service) or nullcontext()
