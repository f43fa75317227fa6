"""Pods without rules on the nodes there are, before any node is bought for them."""

from collections.abc import Sequence

from spotwright.scheduling.capacity.capacity_indexes import RequestIndex
from spotwright.scheduling.capacity.existing_nodes import ExistingNode, NodeAdmission
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.packing.bins import Bin, FillOrder, Items, fill_bin


def fill_existing_nodes(existing_nodes: Sequence[ExistingNode], pending_classes: Sequence[PendingClass]) -> int:
    """Fill node after node so that its resources run out together; the units of work it took."""
    placeable = [pending_class for pending_class in pending_classes if pending_class.can_be_placed]
    if not placeable or not existing_nodes:
        return 0
    items = Items([pending_class.size for pending_class in placeable])
    counts = [len(pending_class.pod_keys) for pending_class in placeable]
    least = tuple([min(amounts) for amounts in zip(*items.sizes, strict=True)])
    request_index, admission = RequestIndex(items.sizes), NodeAdmission(placeable)
    work_units = 0
    for existing_node in existing_nodes:
        if existing_node.fits(least):
            classes = request_index.classes_that_fit(existing_node.free_capacity)
            classes &= admission.admitted_classes(existing_node.state_node)
            work_units += _fill(existing_node, placeable, items, counts, classes)
    return work_units


def _fill(
    existing_node: ExistingNode,
    pending_classes: Sequence[PendingClass],
    items: Items,
    counts: list[int],
    classes: int,
) -> int:
    order = FillOrder(items, existing_node.free_capacity, {j for j in iterate_bits(classes) if counts[j]})
    if not order:
        return len(pending_classes)
    node = Bin(existing_node.free_capacity)
    work_units = fill_bin(node, order, items, counts)
    for j, count in sorted(node.counts.items()):
        existing_node.take_pods(pending_classes[j], count)
        counts[j] -= count
    return work_units


def fill_existing_nodes_largest_first(
    existing_nodes: Sequence[ExistingNode], pending_classes: Sequence[PendingClass]
) -> int:
    """Put the largest pods on the first nodes that can take them, then smaller pods; the units of work it took.

    A node's resources run out less evenly than with ``fill_existing_nodes``, but small pods do not keep a large one
    out.
    """
    placeable = [pending_class for pending_class in pending_classes if pending_class.can_be_placed]
    admission = NodeAdmission(placeable)
    for j, pending_class in enumerate(placeable):
        for existing_node in existing_nodes:
            if (
                pending_class.pod_keys
                and existing_node.fits(pending_class.size)
                and admission.admitted_classes(existing_node.state_node) >> j & 1
            ):
                sizes = zip(existing_node.free_capacity, pending_class.size, strict=True)
                existing_node.take_pods(pending_class, min(free // size for free, size in sizes if size))
    return len(placeable) * len(existing_nodes)
