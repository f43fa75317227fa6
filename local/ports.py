"""TCP ports of 127.0.0.1 that no other stack of this machine takes, for as long as they are held."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

# Below the range from which the kernel serves outgoing connections, so that none of them gets in between.
FIRST, LAST = 20000, 32000
LOCKS = Path(tempfile.gettempdir()) / f"spotwright-ports-{os.getuid()}"


class Ports:
    """Holds a lock file per port until `close` or the end of this process."""

    def __init__(self) -> None:
        LOCKS.mkdir(mode=0o700, exist_ok=True)
        self._locks: list[IO[str]] = []

    def take(self) -> int:
        """A free port. Raises OSError when there is none."""
        start = random.randrange(FIRST, LAST)
        for offset in range(LAST - FIRST):
            port = FIRST + (start - FIRST + offset) % (LAST - FIRST)
            if self._lock(port):
                return port
        raise OSError(f"no free port between {FIRST} and {LAST}")

    def close(self) -> None:
        """Give every port back."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def _lock(self, port: int) -> bool:
        lock = (LOCKS / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        if not _is_free(port):
            lock.close()
            return False
        self._locks.append(lock)
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
