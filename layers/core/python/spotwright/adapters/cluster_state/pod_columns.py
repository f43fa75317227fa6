"""Pods as columns: what equal pods have in common is written once, what differs stands in a column each.

Most pods of a cluster are replicas. A pod class is a pod without the fields of its own; labels, annotations, owners and
node names are tables beside it, since they repeat in other combinations. Decoding makes a single object of what is
written once, which all pods share.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from spotwright.model.kubernetes.meta import ObjectMeta, OwnerReference, ZonedTime
from spotwright.model.kubernetes.pod import Pod

_replace: Final = msgspec.structs.replace


class PodColumns(msgspec.Struct, frozen=True, array_like=True):
    """Tables, then columns with an entry for each pod; a ``…_number`` is a row of a table.

    ``volume_claim_names``: (number of a pod, its claims), for pods that have some.
    """

    labels: tuple[dict[str, str], ...] = ()
    annotations: tuple[dict[str, str], ...] = ()
    owner_references: tuple[tuple[OwnerReference, ...], ...] = ()
    node_names: tuple[str, ...] = ()
    classes: tuple[Pod, ...] = ()
    name: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    resource_version: tuple[str, ...] = ()
    creation_timestamp: tuple[ZonedTime | None, ...] = ()
    start_time: tuple[ZonedTime | None, ...] = ()
    labels_number: tuple[int, ...] = ()
    annotations_number: tuple[int, ...] = ()
    owners_number: tuple[int, ...] = ()
    node_number: tuple[int, ...] = ()
    class_number: tuple[int, ...] = ()
    volume_claim_names: tuple[tuple[int, tuple[str, ...]], ...] = ()


class _Table[Value, Key]:
    """Numbers values from 0 in the order in which they come; values of equal key have the same number."""

    def __init__(self, key: Callable[[Value], Key]) -> None:
        self._key, self._numbers = key, dict[Key, int]()
        self.values: list[Value] = []

    def number(self, value: Value) -> int:
        number = self._numbers.setdefault(self._key(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class _Writer:
    """The tables of pods that are being written."""

    def __init__(self) -> None:
        self.labels, self.annotations = _Table(_items), _Table(_items)
        self.owners, self.nodes = _Table[tuple[OwnerReference, ...], object](_itself), _Table[str, object](_itself)
        self.classes = _Table[Pod, bytes](msgspec.msgpack.Encoder().encode)

    def numbers(self, pod: Pod) -> tuple[int, int, int, int, int]:
        """The entries of the five last columns for a pod."""
        return (
            self.labels.number(pod.metadata.labels),
            self.annotations.number(pod.metadata.annotations),
            self.owners.number(pod.metadata.owner_references),
            self.nodes.number(pod.node_name),
            self.classes.number(_class(pod)),
        )


def to_columns(pods: tuple[Pod, ...]) -> PodColumns:
    """The pods in their order."""
    if not pods:
        return PodColumns()
    writer, metadata = _Writer(), [pod.metadata for pod in pods]
    labels_number, annotations_number, owners_number, node_number, class_number = zip(
        *map(writer.numbers, pods), strict=True
    )
    return PodColumns(
        labels=tuple(writer.labels.values),
        annotations=tuple(writer.annotations.values),
        owner_references=tuple(writer.owners.values),
        node_names=tuple(writer.nodes.values),
        classes=tuple(writer.classes.values),
        name=tuple(meta.name for meta in metadata),
        uid=tuple(meta.uid for meta in metadata),
        resource_version=tuple(meta.resource_version for meta in metadata),
        creation_timestamp=tuple(meta.creation_timestamp for meta in metadata),
        start_time=tuple(pod.start_time for pod in pods),
        labels_number=labels_number,
        annotations_number=annotations_number,
        owners_number=owners_number,
        node_number=node_number,
        class_number=class_number,
        volume_claim_names=tuple(
            (number, pod.volume_claim_names) for number, pod in enumerate(pods) if pod.volume_claim_names
        ),
    )


def from_columns(columns: PodColumns) -> tuple[Pod, ...]:
    """The pods in their order. Raises ValueError for columns that do not fit."""
    _check(columns)
    labels, annotations, owners = columns.labels, columns.annotations, columns.owner_references
    node_names, classes, claims = columns.node_names, columns.classes, dict(columns.volume_claim_names)
    rows = zip(
        columns.name,
        columns.uid,
        columns.resource_version,
        columns.creation_timestamp,
        columns.start_time,
        columns.labels_number,
        columns.annotations_number,
        columns.owners_number,
        columns.node_number,
        columns.class_number,
        strict=True,
    )
    return tuple(
        _replace(
            classes[class_number],
            metadata=_replace(
                classes[class_number].metadata,
                name=name,
                uid=uid,
                resource_version=resource_version,
                creation_timestamp=creation_timestamp,
                labels=labels[labels_number],
                annotations=annotations[annotations_number],
                owner_references=owners[owners_number],
            ),
            node_name=node_names[node_number],
            start_time=start_time,
            volume_claim_names=claims.get(number, ()),
        )
        for number, (
            name,
            uid,
            resource_version,
            creation_timestamp,
            start_time,
            labels_number,
            annotations_number,
            owners_number,
            node_number,
            class_number,
        ) in enumerate(rows)
    )


def _class(pod: Pod) -> Pod:
    """The pod without what stands in columns and in other tables."""
    metadata = ObjectMeta(
        name="",
        namespace=pod.metadata.namespace,
        generation=pod.metadata.generation,
        deletion_timestamp=pod.metadata.deletion_timestamp,
        finalizers=pod.metadata.finalizers,
    )
    return _replace(pod, metadata=metadata, node_name="", start_time=None, volume_claim_names=())


def _itself(value: object) -> object:
    return value


def _items(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(values.items())


def _check(columns: PodColumns) -> None:
    """Raises ValueError where columns differ in length, or a number is not that of a row of its table."""
    numbers = (
        (columns.labels_number, columns.labels),
        (columns.annotations_number, columns.annotations),
        (columns.owners_number, columns.owner_references),
        (columns.node_number, columns.node_names),
        (columns.class_number, columns.classes),
    )
    own = (columns.name, columns.uid, columns.resource_version, columns.creation_timestamp, columns.start_time)
    if len({len(column) for column in (*own, *(column for column, _ in numbers))}) > 1:
        raise ValueError("its columns are not equally long")
    if any(column and not 0 <= min(column) <= max(column) < len(table) for column, table in numbers):
        raise ValueError("a column has a number that its table does not have")
