"""Rows of the state table that are written a hundred at a time, and each alone where that is refused.

An interruption of two hundred nodes writes a command, a notice and a nomination for each of them, for which nobody
should wait six hundred calls long.
"""

from collections.abc import Callable, Sequence
from itertools import batched

from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.rows import Row
from spotwright.workflows.ports.state import ROWS_TOGETHER


def write_rows[R: Row](
    together: Callable[[Sequence[R]], bool], alone: Callable[[R], object], rows: Sequence[R]
) -> None:
    """Write each row once. ``together``: of a StatePort; ``alone``: what is done with each row that it left out."""
    batches = list(batched(rows, ROWS_TOGETHER, strict=False))
    # A transaction costs twice what a single write does.
    written = in_parallel(lambda batch: len(batch) > 1 and together(batch), batches)
    in_parallel(
        alone, [row for batch, is_written in zip(batches, written, strict=True) if not is_written for row in batch]
    )
