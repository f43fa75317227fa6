"""Which of many terms select a class, without a look at every term."""

from collections.abc import Iterator

from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.topology.groups import TopologyTerm

type _Entry[Item] = tuple[int, TopologyTerm, Item]


class TopologyTermIndex[Item]:
    """Items by their terms. A term stands under the first values that its selector lists, else under no label."""

    __slots__ = ("_by_label", "_count", "_selecting", "_without_label")

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[_Entry[Item]]] = {}
        self._without_label: list[_Entry[Item]] = []
        self._selecting: dict[int, tuple[Item, ...]] = {}
        self._count = 0

    def add(self, term: TopologyTerm, item: Item) -> None:
        entry = (self._count, term, item)
        self._count += 1
        self._selecting.clear()
        listed = term.listed_values
        if listed is None:
            self._without_label.append(entry)
        else:
            for value in set(listed.values):
                self._by_label.setdefault((listed.key, value), []).append(entry)

    def items_selecting(self, pod_class: PodClass) -> tuple[Item, ...]:
        """The items whose term selects the class, in the order they were added."""
        items = self._selecting.get(pod_class.index)
        if items is None:
            entries = {place: item for place, term, item in self._candidates(pod_class) if term.selects(pod_class.pod)}
            items = self._selecting[pod_class.index] = tuple(entries[place] for place in sorted(entries))
        return items

    def _candidates(self, pod_class: PodClass) -> Iterator[_Entry[Item]]:
        yield from self._without_label
        for label in pod_class.pod.metadata.labels.items():
            yield from self._by_label.get(label, ())
