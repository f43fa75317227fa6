"""The timeline as people read it."""

import sys
import threading
import time

from local.demo.timeline_entry import TimelineEntry

COLOURS = {"decision": "36", "aws": "33", "pods": "32", "nodeclaims": "35", "nodes": "34", "events": "90"}


class Printer:
    """Lines with seconds since the start; sections; failures."""

    def __init__(self) -> None:
        self.start = time.time()
        self._lock = threading.Lock()
        self._colour = sys.stdout.isatty()

    def section(self, title: str) -> None:
        self._line(f"\n── {title} " + "─" * max(0, 100 - len(title)), "1")

    def say(self, text: str) -> None:
        self._line(f"{self._clock(time.time())}  {text}", "")

    def block(self, text: str) -> None:
        self._line("\n".join("          " + line for line in text.rstrip().splitlines()), "")

    def entry(self, entry: TimelineEntry) -> None:
        text = entry.text if len(entry.text) < 400 else entry.text[:400] + " …"
        self._line(f"{self._clock(entry.at)}  {entry.source:<10} {text}", COLOURS.get(entry.source, ""))
        if entry.source == "decision":
            for launch in entry.data.get("launches") or ():
                claims = ", ".join(launch["claims"])
                self._line(f"          {'':<10}   {claims}: {launch['node']['reason']}", COLOURS["decision"])

    def _clock(self, at: float) -> str:
        return f"{at - self.start:8.1f}"

    def _line(self, text: str, colour: str) -> None:
        with self._lock:
            print(f"\033[{colour}m{text}\033[0m" if colour and self._colour else text, flush=True)
