"""Which circles hold a class, found by its labels: a batch has as many circles as deployments with rules."""

from collections.abc import Iterator

from spotwright.model.requirements import Operator
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.topology.groups import TopologyTerm

type _Entry[Item] = tuple[int, TopologyTerm, Item]


class TopologyTermIndex[Item]:
    """Items by circle. A circle stands under the first values its selector lists; one without any, under no label."""

    __slots__ = ("_by_label", "_count", "_known", "_others")

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[_Entry[Item]]] = {}
        self._others: list[_Entry[Item]] = []
        self._known: dict[int, tuple[Item, ...]] = {}
        self._count = 0

    def add(self, circle: TopologyTerm, item: Item) -> None:
        entry = (self._count, circle, item)
        self._count += 1
        self._known.clear()
        listed = next(
            (expression for expression in circle.label_selector or () if expression.operator == Operator.IN), None
        )
        if listed is None:
            self._others.append(entry)
        else:
            for value in set(listed.values):
                self._by_label.setdefault((listed.key, value), []).append(entry)

    def items_selecting(self, cls: PodClass) -> tuple[Item, ...]:
        """The items whose circle holds the class, in the order they were added."""
        found = self._known.get(cls.index)
        if found is None:
            entries = {place: item for place, circle, item in self._near(cls) if circle.selects(cls.pod)}
            found = self._known[cls.index] = tuple(entries[place] for place in sorted(entries))
        return found

    def _near(self, cls: PodClass) -> Iterator[_Entry[Item]]:
        yield from self._others
        for label in cls.pod.metadata.labels.items():
            yield from self._by_label.get(label, ())
