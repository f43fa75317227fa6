"""EC2 takes many nodes back within a second: taints, replacements, and whether every pod moves in time."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench.lifecycle.life import Life, Object
from bench.scale.call_log import CallLog, asked_at
from bench.scale.figures import Measured

_FLEETS_GOAL: Final = 3
_AT_ONCE: Final = 8
_DISRUPTED: Final = "karpenter.sh/disrupted"


def notice(life: Life, number: int, taken_after_seconds: int) -> Iterator[Measured]:
    """From EC2's notices for so many of the nodes until every pod runs elsewhere. EC2 takes an instance
    ``taken_after_seconds`` after its notice.
    """
    concerned = life.claims()[:number]
    if not concerned:
        return
    names = {claim["status"]["nodeName"] for claim in concerned}
    pods = len(life.running())
    calls = CallLog(life.stack.logs / "aws-calls.jsonl")
    begun = time.time()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda claim: _interrupt(life, claim, taken_after_seconds), concerned))
    told = time.time()
    yield life.measured("notices: seconds from the first to the last", told - begun)
    life.until(lambda: names <= _closed(life, names), "the taints of nodes that EC2 takes back")
    cordoned = time.time()

    def not_elsewhere() -> int:
        return pods - sum(pod["spec"]["nodeName"] not in names for pod in life.running())

    def has_moved_or_ended() -> bool:
        return not not_elsewhere() or time.time() - begun >= taken_after_seconds

    life.until(has_moved_or_ended, "EC2 to take its instances")
    late = not_elsewhere()
    life.until(lambda: not not_elsewhere(), "all pods to run elsewhere")
    moved = time.time()
    fleets = [asked_at(call) for call in calls.fleets()]
    yield life.measured("notices: seconds from the last to the last taint", cordoned - told)
    yield life.measured("notices: seconds from the last to the last CreateFleet", max(fleets, default=told) - told)
    yield life.measured("notices: CreateFleet", len(fleets), _FLEETS_GOAL)
    yield life.measured("notices: seconds until every pod runs elsewhere", moved - begun, taken_after_seconds)
    yield life.measured("notices: pods not elsewhere when EC2 takes the first instance", late, 0)


def _interrupt(life: Life, claim: Object, taken_after_seconds: int) -> None:
    instance = claim["status"]["providerID"].rpartition("/")[2]
    life.stack.control("POST", "/_local/interrupt", {"instanceId": instance, "seconds": taken_after_seconds})


def _closed(life: Life, names: set[str]) -> set[str]:
    """Those of the nodes that have the taint, or are gone."""
    nodes: dict[str, Object] = {node["metadata"]["name"]: node for node in life.api.get("/api/v1/nodes")["items"]}
    return {name for name in names if name not in nodes or _is_closed(nodes[name])}


def _is_closed(node: Object) -> bool:
    return any(taint["key"] == _DISRUPTED for taint in node["spec"].get("taints") or ())
