"""Threads that do one job after the other."""

import threading
from collections.abc import Callable
from queue import SimpleQueue


def start_worker(name: str) -> SimpleQueue[Callable[[], None]]:
    """A thread that does what is put into the queue; jobs must not raise."""
    jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def work() -> None:
        while True:
            jobs.get()()

    threading.Thread(target=work, name=name, daemon=True).start()
    return jobs
