"""Ceilings of what a cluster launches: a guard against mistakes, of Spotwright as of whoever makes pods.

What was decided is counted by minute, in the row whose version the commit moves on, so that it is counted exactly once.
A plan is cut to what the ceilings leave: nodes for pods of higher priority first, then for older ones; the rest waits.
Every node counts, whatever it is for. Limits of NodePools bound what a cluster has, ceilings how fast it grows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from spotwright.decisions.decision import MAXIMUM_NODES_PER_LAUNCH, Launch, launch_group
from spotwright.model.kubernetes.meta import format_time
from spotwright.model.snapshot import LaunchBound, LaunchedInMinute, Settings, Snapshot
from spotwright.scheduling.plan import Cause, HeldBackNodes, NewNode, Plan, UnplacedPod
from spotwright.scheduling.strategies.priority import PriorityKey, priority_key

LAUNCHES: Final = "MAX_LAUNCHES_PER_MINUTE"
NODES: Final = "MAX_NODES_PER_HOUR"
DOLLARS: Final = "MAX_DOLLARS_PER_HOUR"

HOUR_MINUTES: Final = 60
PICOUSD: Final = 10**12
CODE: Final = "LaunchCeiling"


def launch_bounds(settings: Settings, launched: Iterable[LaunchedInMinute], now: datetime) -> tuple[LaunchBound, ...]:
    """The ceilings that are set, with what is used of them; a setting of 0 is no ceiling.

    ``launched``: what was decided in the last hour. Launches count within a minute of the clock, nodes and their
    prices per hour within sixty minutes. The next minute counts as well: whoever decided may have a faster clock.
    """
    minute = _minute(now)
    hour = [counted for counted in launched if minute - HOUR_MINUTES < counted.minute <= minute + 1]
    oldest = min((counted.minute for counted in hour if counted.nodes), default=minute)
    of_minute = sum(counted.launches for counted in hour if counted.minute >= minute)
    every = (
        LaunchBound(LAUNCHES, settings.max_launches_per_minute, of_minute, _at(minute + 1)),
        LaunchBound(
            NODES, settings.max_nodes_per_hour, sum(counted.nodes for counted in hour), _at(oldest + HOUR_MINUTES)
        ),
        LaunchBound(
            DOLLARS,
            settings.max_dollars_per_hour * PICOUSD,
            sum(counted.price_picousd_per_hour for counted in hour),
            _at(oldest + HOUR_MINUTES),
        ),
    )
    return tuple(bound for bound in every if bound.allowed)


def without_failed(
    launched: Iterable[LaunchedInMinute], failed: Iterable[LaunchedInMinute]
) -> tuple[LaunchedInMinute, ...]:
    """``launched`` without nodes that never came to be; ``failed``: by the minute in which they were decided."""
    nodes: Counter[int] = Counter()
    prices: Counter[int] = Counter()
    for counted in failed:
        nodes[counted.minute] += counted.nodes
        prices[counted.minute] += counted.price_picousd_per_hour
    return tuple(
        LaunchedInMinute(
            counted.minute,
            counted.launches,
            max(0, counted.nodes - nodes[counted.minute]),
            max(0, counted.price_picousd_per_hour - prices[counted.minute]),
        )
        for counted in launched
    )


def count_launches(
    launched: Iterable[LaunchedInMinute], launches: Sequence[Launch], now: datetime
) -> tuple[LaunchedInMinute, ...]:
    """``launched`` with these launches, without what is older than an hour; oldest first, at most sixty minutes."""
    minute = _minute(now)
    kept = {counted.minute: counted for counted in launched if minute - HOUR_MINUTES < counted.minute}
    before = kept.get(minute, LaunchedInMinute(minute))
    kept[minute] = LaunchedInMinute(
        minute,
        before.launches + len(launches),
        before.nodes + sum(len(launch.claims) for launch in launches),
        before.price_picousd_per_hour
        + sum(len(launch.claims) * launch.node.price_picousd_per_hour for launch in launches),
    )
    return tuple(kept[number] for number in sorted(kept)[-HOUR_MINUTES:])


def keep_within(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan with as many of its new nodes as ``snapshot.launch_bounds`` leave; the pods of the others wait."""
    if all(_most(plan, bound.setting) <= bound.allowed - bound.used for bound in snapshot.launch_bounds):
        return plan
    held_back = _divide(plan.new_nodes, snapshot)
    pods = snapshot.pods_by_key()
    waiting = tuple(
        UnplacedPod(pod, (_reason(node, bound),), (Cause(CODE, (node.nodepool,), {"setting": bound.setting}),))
        for node, bound in ((plan.new_nodes[number], bound) for number, bound in held_back.items())
        for pod in node.pods
        if pod in pods
    )
    return msgspec.structs.replace(
        plan,
        new_nodes=tuple(node for number, node in enumerate(plan.new_nodes) if number not in held_back),
        unschedulable_pods=(*plan.unschedulable_pods, *waiting),
        lower_bound_picousd_per_hour=0 if held_back else plan.lower_bound_picousd_per_hour,
        is_cheapest=plan.is_cheapest and not held_back,
        nodes_held_back=_by_nodepool(plan.new_nodes, held_back),
    )


def _most(plan: Plan, setting: str) -> int:
    """What the plan needs of a ceiling at most: as many launches as nodes, if no two are equal."""
    return plan.price_picousd_per_hour if setting == DOLLARS else len(plan.new_nodes)


def _divide(nodes: Sequence[NewNode], snapshot: Snapshot) -> dict[int, LaunchBound]:
    """The numbers of the nodes that are not launched, each with the ceiling that holds it back.

    After the first node for which there is no room nothing is launched any more, so that it is the first one next time.
    A node that costs more than the whole ceiling allows holds no other one back.
    """
    left = {bound.setting: bound.allowed - bound.used for bound in snapshot.launch_bounds}
    equal: Counter[bytes] = Counter()
    held_back: dict[int, LaunchBound] = {}
    full: LaunchBound | None = None
    for number in _in_order(nodes, snapshot):
        node, group = nodes[number], launch_group(nodes[number])
        begins_launch = equal[group] % MAXIMUM_NODES_PER_LAUNCH == 0
        needs = {LAUNCHES: int(begins_launch), NODES: 1, DOLLARS: node.price_picousd_per_hour}
        too_large = [bound for bound in snapshot.launch_bounds if needs[bound.setting] > bound.allowed]
        lacking = [bound for bound in snapshot.launch_bounds if needs[bound.setting] > left[bound.setting]]
        if too_large:
            held_back[number] = too_large[0]
        elif full is not None or lacking:
            full = full or lacking[0]
            held_back[number] = full
        else:
            equal[group] += 1
            left = {setting: amount - needs[setting] for setting, amount in left.items()}
    return held_back


def _in_order(nodes: Sequence[NewNode], snapshot: Snapshot) -> list[int]:
    """The numbers of the nodes: those with the most urgent pods first, those for no pod last."""
    pods = snapshot.pods_by_key()

    def urgency(number: int) -> tuple[bool, PriorityKey | tuple[()], int]:
        known = [priority_key(pods[key]) for key in nodes[number].pods if key in pods]
        return (not known, min(known) if known else (), number)

    return sorted(range(len(nodes)), key=urgency)


def _by_nodepool(nodes: Sequence[NewNode], held_back: Mapping[int, LaunchBound]) -> tuple[HeldBackNodes, ...]:
    """One entry for each NodePool, with the ceiling of its first node."""
    counts: Counter[str] = Counter()
    first: dict[str, tuple[NewNode, LaunchBound]] = {}
    for number, bound in held_back.items():
        node = nodes[number]
        counts[node.nodepool] += 1
        first.setdefault(node.nodepool, (node, bound))
    return tuple(
        HeldBackNodes(nodepool, counts[nodepool], bound.setting, _reason(node, bound), bound.resumes_at)
        for nodepool, (node, bound) in sorted(first.items())
    )


def _reason(node: NewNode, bound: LaunchBound) -> str:
    if bound.setting == DOLLARS and node.price_picousd_per_hour > bound.allowed:
        return (
            f"a node for it costs {_dollars(node.price_picousd_per_hour)} per hour, and setting {DOLLARS} allows new"
            f" nodes for {_dollars(bound.allowed)} per hour within an hour: raise the setting"
        )
    until = format_time(bound.resumes_at)
    match bound.setting:
        case "MAX_LAUNCHES_PER_MINUTE":
            allowed = f"{bound.allowed} new launches a minute, and none is left"
        case "MAX_NODES_PER_HOUR":
            allowed = f"{bound.allowed} new nodes within an hour, and none is left"
        case _:
            allowed = f"new nodes for {_dollars(bound.allowed)} per hour within an hour, and too little of it is left"
    return f"setting {bound.setting} allows {allowed}: more are launched from {until} on"


def _dollars(picousd: int) -> str:
    return f"${picousd / PICOUSD:,.2f}"


def _minute(now: datetime) -> int:
    return int(now.timestamp()) // 60


def _at(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)
