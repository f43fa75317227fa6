"""Offerings found by what they state about labels."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Offering
from spotwright.model.requirements import Requirement
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.offerings.bit_sets import to_bits
from spotwright.scheduling.offerings.pool_types import PoolInstanceType, PoolOfferings

type LabelStatement = str | Requirement | None
"""What an offering states about a label: its value, the values it may have, or nothing."""

# Nobody states the label and nobody needs to: a node can have any value of it.
ANYTHING: Final = Requirement("*", True)


class LabelIndex:
    """Answers are sets of offerings, as bits. What was asked once is remembered."""

    def __init__(
        self, templates: Sequence[NodeClaimTemplate], pool_offerings: PoolOfferings, all_offerings: int
    ) -> None:
        self._templates = templates
        self._pool_offerings = pool_offerings
        self._all_offerings = all_offerings
        stated = (offering.requirements.by_key for offering in pool_offerings.offerings)
        self._offering_keys = {labels.ZONE, labels.CAPACITY_TYPE}.union(*{tuple(by_key) for by_key in stated if by_key})
        self._statements: dict[str, dict[LabelStatement, int]] = {}
        self._meeting: dict[Requirement, int] = {}

    def meeting(self, requirement: Requirement) -> int:
        """Offerings whose label may meet the requirement."""
        offerings = self._meeting.get(requirement)
        if offerings is None:
            offerings = 0
            for statement, stating in self.statements(requirement.key).items():
                if statement_can_meet(statement, requirement):
                    offerings |= stating
            self._meeting[requirement] = offerings
        return offerings

    def meeting_all(self, requirements: Iterable[Requirement]) -> int:
        offerings = self._all_offerings
        for requirement in requirements:
            offerings &= self.meeting(requirement)
        return offerings

    def statements(self, key: str) -> dict[LabelStatement, int]:
        """What the offerings state about a label, each statement with the offerings that make it."""
        statements = self._statements.get(key)
        if statements is None:
            statements = self._statements[key] = {}
            for statement, offerings in self._state(key):
                statements[statement] = statements.get(statement, 0) | offerings
        return statements

    def count_values(self, key: str, offerings: int, *, at_most: int) -> int:
        """How many values of a label the offerings have between them; counting stops at ``at_most``."""
        values: set[str] = set()
        for statement, stating in self.statements(key).items():
            if stating & offerings:
                values.update((statement,) if isinstance(statement, str) else statement.values if statement else ())
                if len(values) >= at_most:
                    return at_most
        return len(values)

    def _state(self, key: str) -> Iterator[tuple[LabelStatement, int]]:
        if key not in self._offering_keys:
            for pool_type in self._pool_offerings.pool_types:
                yield self._of_pool_type(pool_type, key), pool_type.offerings
            return
        numbers: dict[LabelStatement, list[int]] = {}
        for number, offering in enumerate(self._pool_offerings.offerings):
            numbers.setdefault(self._of_offering(number, offering, key), []).append(number)
        for statement, stating in numbers.items():
            yield statement, to_bits(stating)

    def _of_offering(self, number: int, offering: Offering, key: str) -> LabelStatement:
        if key in offering.requirements.by_key:
            return _shorten(offering.requirements.get(key))
        if key == labels.ZONE and offering.zone:
            return offering.zone
        if key == labels.CAPACITY_TYPE and offering.capacity_type:
            return offering.capacity_type
        return self._of_pool_type(self._pool_offerings.pool_type_of[number], key)

    def _of_pool_type(self, pool_type: PoolInstanceType, key: str) -> LabelStatement:
        template = self._templates[pool_type.template_index]
        declared = template.requirements.by_key.get(key)
        stated = pool_type.instance_type.requirements.by_key.get(key)
        if stated is not None:
            narrows = declared is not None and len(stated.values) != 1 and declared.intersects(stated)
            return _shorten(stated.intersection(declared) if narrows and declared is not None else stated)
        if declared is not None:
            return _shorten(declared)
        if key == labels.INSTANCE_TYPE:
            return pool_type.instance_type.name
        return ANYTHING if key in template.known_label_keys else None


def statement_can_meet(statement: LabelStatement, requirement: Requirement) -> bool:
    """Whether a label of which this is stated can meet the requirement; a label that nobody sets is absent."""
    if isinstance(statement, str):
        return requirement.has(statement)
    if statement is None:
        return requirement.allows_absence
    if statement is ANYTHING:
        return True
    return statement.intersects(requirement) or (statement.allows_absence and requirement.allows_absence)


def _shorten(requirement: Requirement) -> LabelStatement:
    return requirement.sole_value or requirement
