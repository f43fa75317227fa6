"""What a campaign tried and checked, as text."""

from collections.abc import Iterable, Iterator, Mapping

from tests.campaign.episode import Result


def report(result: Result) -> str:
    """Every kind of event and fault with how often it happened, every invariant with how often it was checked."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    hours, minutes = divmod(result.seconds // 60, 60)
    yield f"{result.steps:,} steps, {hours} h {minutes} min in the cluster's time"
    yield f"longest until everything had ended once faults stopped: {result.longest_rest_seconds} s"
    yield f"largest row: {result.largest_row_bytes:,} bytes; most messages waiting: {result.most_messages}"
    yield from _table("Faults", result.faults)
    yield from _table("Load and EC2", result.events)
    ends = {f"{function}: {end}": count for (function, end), count in result.invocations.items()}
    yield from _table("Limits met, and how late the cluster state was", result.met)
    yield from _table("Invocations", ends)
    yield from _table("Invariants, how often checked", result.checks)


def _table(title: str, counts: Mapping[str, int]) -> Iterable[str]:
    yield f"\n{title}"
    for name, count in sorted(counts.items()):
        yield f"  {name:<70} {count:>9,}"
