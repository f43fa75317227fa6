"""What threads ask for at the same moment is asked for by one call.

The steps of an invocation ask for one instance each, side by side, and what an account may ask of EC2 is counted in
calls, however many instances one is about. The same goes for rows that they read, or would write one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock, RLock
from typing import Final


class BatchedCalls[Question, Answer]:
    """``ask``: the answer to each of some questions, or why there is none; what it raises is the failure of all.
    Questions that are equal have one answer.

    One call is under way at a time: who asks meanwhile waits for the next one, which is about all that are waiting, in
    the order in which they came. So nobody waits for others to ask, and no answer is older than its question. A
    question that is asked while its own thread makes a call is answered by a call of its own; ``ask`` may not wait for
    another thread that asks.
    """

    def __init__(self, ask: Callable[[Sequence[Question]], Mapping[Question, Answer | Exception]]) -> None:
        self._ask: Final = ask
        self._waiting: dict[Question, Future[Answer]] = {}
        self._joining: Final = Lock()
        self._asking: Final = RLock()

    def __call__(self, question: Question) -> Answer:
        with self._joining:
            answer = self._waiting.setdefault(question, Future())
        with self._asking:
            if not answer.done():
                self._ask_waiting()
        return answer.result()

    def _ask_waiting(self) -> None:
        with self._joining:
            batch, self._waiting = self._waiting, {}
        try:
            found = self._ask(tuple(batch))
            for question, answer in batch.items():
                _settle(answer, found[question])
        except BaseException as failure:  # noqa: BLE001 - raised to all who wait, this one included
            for answer in batch.values():
                if not answer.done():
                    answer.set_exception(failure)


def _settle[Answer](asked: Future[Answer], answer: Answer | Exception) -> None:
    if isinstance(answer, Exception):
        asked.set_exception(answer)
    else:
        asked.set_result(answer)
