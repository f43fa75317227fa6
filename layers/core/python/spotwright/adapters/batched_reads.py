"""Single objects that threads read at the same moment are read by one call.

The steps of an invocation ask for one instance each, side by side, and what an account may ask of EC2 is counted in
calls, however many instances one is about.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Final


class BatchedReads[Key, Answer]:
    """``read``: the answer for each of some keys, or why there is none; what it raises is the failure of all of them.

    One call is under way at a time: who asks meanwhile waits for the next one, which is about all that are waiting. So
    nobody waits for others to ask, and no answer is older than its question.
    """

    def __init__(self, read: Callable[[Sequence[Key]], Mapping[Key, Answer | Exception]]) -> None:
        self._read: Final = read
        self._waiting: dict[Key, Future[Answer]] = {}
        self._asking: Final = Lock()
        self._reading: Final = Lock()

    def __call__(self, key: Key) -> Answer:
        with self._asking:
            answer = self._waiting.setdefault(key, Future())
        with self._reading:
            if not answer.done():
                self._read_waiting()
        return answer.result()

    def _read_waiting(self) -> None:
        with self._asking:
            batch, self._waiting = self._waiting, {}
        try:
            found = self._read(tuple(batch))
            for key, answer in batch.items():
                _settle(answer, found[key])
        except BaseException as failure:  # noqa: BLE001 - raised to all who wait, this one included
            for answer in batch.values():
                if not answer.done():
                    answer.set_exception(failure)


def _settle[Answer](asked: Future[Answer], answer: Answer | Exception) -> None:
    if isinstance(answer, Exception):
        asked.set_exception(answer)
    else:
        asked.set_result(answer)
