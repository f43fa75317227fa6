"""Pods are packed on nodes that are given, where the search finds a way."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.node_filling import NodeFilling
from spotwright.scheduling.packing.problem import PackingProblem
from tests.property.plans import LAWS
from tests.unit.scheduling.builders import GIB, TYPES, pool, snapshot

type Size = tuple[int, int]
"""Millicores and MiB of a pod."""

# What the cheapest type with so much has for pods.
CPU, MEMORY = 4000, 32 * 1024


@cache
def index() -> OfferingIndex:
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": tuple(TYPES)}))
    return OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))


def node() -> int:
    """The cheapest offering with that much room."""
    room = index().by_capacity.with_room((CPU, MEMORY * GIB // 1024, 1))
    return (room & -room).bit_length() - 1


def filled(
    pods: dict[Size, int], caps: Sequence[int], node_count: int, most_ejections: int = 50
) -> list[dict[int, int]] | None:
    constraints = [
        HostConstraint(selecting_terms=[j], term_caps=[(j, cap)], avoided_terms=[], host_ports=[]) if cap else None
        for j, cap in enumerate(caps)
    ]
    problem = PackingProblem(
        index(),
        Items([(cpu, memory * GIB // 1024, 1) for cpu, memory in pods]),
        [index().all_offerings] * len(pods),
        [-1] * len(pods),
        UndeterminedLabels(index(), ()),
        constraints,
    )
    return NodeFilling(
        problem, dict(enumerate(pods.values())), [node()] * node_count, most_ejections=most_ejections
    ).fill()


def test_pods_that_fill_nodes_to_the_last_core_and_byte_eject_each_other_until_all_have_a_place() -> None:
    """No order of filling, and no pods that change places, find the only way to share these pods among three nodes."""
    gib = {(200, 5), (2100, 18), (1700, 9), (400, 5), (200, 1), (1500, 6), (1900, 20), (2100, 15), (1600, 15), (300, 2)}
    pods = {(cpu, memory * 1024): 1 for cpu, memory in sorted(gib)}
    pods_by_node = filled(pods, [0] * len(pods), 3)
    assert pods_by_node is not None
    assert [used(pods, on_node) for on_node in pods_by_node] == [(CPU, MEMORY)] * 3


def test_a_pod_gets_its_place_where_two_others_change_theirs() -> None:
    """Each node is all but full: no pod can move to the other without one that comes back."""
    gib = {(200, 19), (1000, 17), (1100, 3), (1900, 3), (1900, 10), (1900, 12)}
    pods = {(cpu, memory * 1024): 1 for cpu, memory in sorted(gib)}
    pods_by_node = filled(pods, [0] * len(pods), 2, most_ejections=0)
    assert pods_by_node is not None
    assert [used(pods, on_node) for on_node in pods_by_node] == [(CPU, MEMORY)] * 2


def used(pods: dict[Size, int], on_node: dict[int, int]) -> Size:
    sizes = list(pods)
    return sum(sizes[j][0] * n for j, n in on_node.items()), sum(sizes[j][1] * n for j, n in on_node.items())


@LAWS
@given(
    st.dictionaries(
        st.tuples(st.integers(1, 25).map((100).__mul__), st.integers(1, 20).map((1024).__mul__)),
        st.tuples(st.integers(1, 4), st.integers(0, 2)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 5),
)
def test_every_pod_is_on_a_node_that_may_hold_it(classes: dict[Size, tuple[int, int]], node_count: int) -> None:
    """``classes``: by size, how many pods, and how many of them a host may hold (0 = any number)."""
    pods, caps = {size: count for size, (count, _) in classes.items()}, [cap for _, cap in classes.values()]
    pods_by_node = filled(pods, caps, node_count)
    if pods_by_node is not None:
        assert sum(map(Counter, pods_by_node), Counter[int]()) == dict(enumerate(pods.values()))
        for on_node in pods_by_node:
            cpu, memory = used(pods, on_node)
            assert cpu <= CPU
            assert memory <= MEMORY
            assert all(n <= (caps[j] or n) for j, n in on_node.items())


@st.composite
def parts(draw: st.DrawFn) -> tuple[int, ...]:
    """A node's cpu in parts of 100m, and its memory in as many of a GiB: sizes of pods that fill it."""
    count = draw(st.integers(2, 6))
    ends = st.sets(st.integers(1, CPU // 100 - 1), min_size=count - 1, max_size=count - 1)
    memory_ends = st.sets(st.integers(1, MEMORY // 1024 - 1), min_size=count - 1, max_size=count - 1)
    cuts = [[0, *sorted(draw(ends)), CPU // 100], [0, *sorted(draw(memory_ends)), MEMORY // 1024]]
    cpu, memory = ([(b - a) for a, b in pairwise(points)] for points in cuts)
    return tuple(100_000 * c + m for c, m in zip(cpu, memory, strict=True))


@LAWS
@given(st.lists(parts(), min_size=2, max_size=4), st.integers(0, 2), st.sampled_from((1, 3, 50)))
def test_where_nodes_are_all_but_full_no_pod_is_forgotten(
    nodes: list[tuple[int, ...]], too_many: int, most_ejections: int
) -> None:
    """``nodes``: sizes of pods that fill each to the last core and byte; ``too_many``: further pods, for none."""
    sizes = Counter((size // 100_000 * 100, size % 100_000 * 1024) for node in nodes for size in node)
    pods = dict(sizes) | ({(100, 1023): too_many} if too_many else {})
    pods_by_node = filled(pods, [0] * len(pods), len(nodes), most_ejections)
    if pods_by_node is not None:
        assert not too_many
        assert sum(map(Counter, pods_by_node), Counter[int]()) == dict(enumerate(pods.values()))
        assert [used(pods, on_node) for on_node in pods_by_node] == [(CPU, MEMORY)] * len(nodes)
