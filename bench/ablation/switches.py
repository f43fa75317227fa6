"""Strategies and constants of the planner's search, each with what replaces it while it is switched off."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from spotwright.scheduling.packing import greedy, search
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.strategies import best_placement


@dataclass(frozen=True)
class Switch:
    """``owner``: the module or class that has the attribute; ``does``: what the planner does with it."""

    owner: object
    attribute: str
    replacement: object
    does: str

    @property
    def name(self) -> str:
        return f"{getattr(self.owner, '__name__', '').rpartition('.')[2]}.{self.attribute}"


SWITCHES: Final = (
    Switch(search, "pack_exactly", lambda *_: None, "Few or equal pods are packed at the least cost there is."),
    Switch(search, "NODE_SIZE_BOUNDS_MILLICORES", (48_000,), "Nodes of up to 48, 96, 24 and 12 cpu are tried."),
    Switch(
        search, "replace_nodes", lambda *_: None, "Nodes are replaced by cheaper ones that cover their pods in sum."
    ),
    Switch(
        search,
        "pack_by_patterns",
        lambda *_: None,
        "Nodes are chosen with their pods where hosts decide, or classes are few.",
    ),
    Switch(GreedyPacker, "fractional_cost", lambda _: 0.0, "A bound that cannot be cheaper is not tried."),
    Switch(greedy, "_GOOD_ENOUGH", 1.0, "An offering within 1 % of the best possible is taken at once."),
    Switch(
        GreedyPacker, "_needed_nodes", lambda *_: 1.0, "Lookahead: a node is worth what it saves on the other pods."
    ),
    Switch(
        GreedyPacker,
        "_urgent_classes",
        lambda *_: [],
        "Pods of which hosts hold few go first where they need many hosts.",
    ),
    Switch(GreedyPacker, "_class_needing_most_hosts", lambda _: (-1, 1), "Hosts have a price like other resources."),
    Switch(
        GreedyPacker,
        "_offering_for_most_pods",
        lambda _, offerings: offerings[0],
        "A node gets the zone that most pods need.",
    ),
    Switch(
        GreedyPacker,
        "_cheapest_equivalent",
        lambda _, node: node.offering,
        "A filled node gets the cheapest type for it.",
    ),
    Switch(greedy, "_STALE", 0, "Classes without pods are dropped from the order in which nodes are filled."),
    Switch(best_placement, "_FEW_PODS", 0, "Up to 64 pods are placed in other orders too."),
    Switch(best_placement, "_MAX_SEQUENTIAL_CLASSES", 0, "Classes that found no node are placed pod by pod."),
    Switch(best_placement, "_MAX_RETRIES", 0, "Unplaced pods go first in another attempt."),
)


@contextmanager
def switched_off(switch: Switch | None) -> Iterator[None]:
    if switch is None:
        yield
        return
    before = getattr(switch.owner, switch.attribute)
    setattr(switch.owner, switch.attribute, switch.replacement)
    try:
        yield
    finally:
        setattr(switch.owner, switch.attribute, before)
