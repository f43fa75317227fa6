"""What it cost and how long each hop took, computed from the timeline."""

from statistics import median
from typing import Any

from local.demo.run import DemoRun
from local.demo.timeline_entry import TimelineEntry


def summary(run: DemoRun) -> str:
    """Nodes bought, dollars per hour, seconds per hop, seconds per step."""
    entries = sorted(run.timeline.entries, key=lambda entry: entry.at)
    lines = [*_bought(entries), "", "seconds per hop (median, slowest)", *_hops(entries), "", "seconds per step"]
    return "\n".join([*lines, *(f"  {spent}  {title}" for title, spent in run.durations.items())])


def _bought(entries: list[TimelineEntry]) -> list[str]:
    decided = [launch for e in entries if e.source == "decision" for launch in e.data.get("launches") or ()]
    nodes = sum(len(launch["claims"]) for launch in decided)
    price = sum(len(launch["claims"]) * launch["node"]["price_picousd_per_hour"] for launch in decided) / 10**12
    fleets = sum(e.event == "CreateFleet" and not e.data.get("error") for e in entries)
    return [f"{nodes} nodes decided, {fleets} CreateFleet calls, ${price:.4f} per hour had all run at once"]


def _hops(entries: list[TimelineEntry]) -> list[str]:
    """From each decision: how old the oldest pod's wait was, then the claims' own steps."""
    spans: dict[str, list[float]] = {}
    for entry in entries:
        if entry.source == "decision":
            for launch in entry.data.get("launches") or ():
                _span(spans, entry, launch, entries)
    return [f"  {median(some):6.2f} {max(some):6.2f}  {name}" for name, some in spans.items()]


def _span(
    spans: dict[str, list[float]], decision: TimelineEntry, launch: dict[str, Any], entries: list[TimelineEntry]
) -> None:
    pods, claims = set(launch["node"]["pods"]), set(launch["claims"])

    def first(source: str, what: str, subjects: set[str] | None, after: float) -> float | None:
        found = (
            e.at for e in entries
            if e.source == source and e.event == what and e.at >= after and (subjects is None or e.subject in subjects)
        )  # fmt: skip
        return next(found, None)

    before = [e for e in entries if e.source == "pods" and e.subject in pods and e.at <= decision.at + 1]
    # An interruption decides for pods that run: those waited for nothing.
    running = {e.subject for e in before if e.event == "Running"}
    pending = [e.at for e in before if e.event == "Pending" and e.subject not in running]
    steps = [
        ("pod pending → decision", max(pending, default=None), decision.at),
        ("decision → CreateFleet", decision.at, first("aws", "CreateFleet", None, decision.at)),
        ("decision → Launched", decision.at, first("nodeclaims", "Launched", claims, decision.at)),
        ("decision → Registered", decision.at, first("nodeclaims", "Registered", claims, decision.at)),
        ("decision → Initialized", decision.at, first("nodeclaims", "Initialized", claims, decision.at)),
        ("decision → first pod Running", decision.at, first("pods", "Running", pods, decision.at)),
    ]
    for name, start, end in steps:
        if start is not None and end is not None:
            spans.setdefault(name, []).append(max(0.0, end - start))
