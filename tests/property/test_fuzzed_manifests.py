"""Manifests that were changed at random are planned, or refused in plain words: never a crash, never a Python word."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
import yaml

from spotwright.cli import InputError
from spotwright.cli.inputs.assumed_namespaces import assume_namespaces
from spotwright.cli.inputs.assumed_volumes import assume_volumes
from spotwright.cli.inputs.conversion import upgrade_documents
from spotwright.cli.inputs.documents import deduplicate, parse_text
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.cli.inputs.validation.check import Strictness, check_documents
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.planner import plan
from tests.property.changed_objects import EVERY_FIELD, WHOLE, changed
from tests.unit.scheduling.builders import TYPES

BEFORE_V1: Final = yaml.safe_load(Path(__file__).with_name("before_v1.yaml").read_text())
SEEDS: Final = range(20)
MANIFESTS_PER_SEED: Final = 250
# What only people who write Python read.
PYTHON: Final = re.compile(
    r"\b(None|NoneType|True|False|\w*Error|Exception|Traceback|dict|tuple|frozenset|msgspec|Fraction|datetime|isoformat"
    r"|subscriptable|unhashable|iterable|hashable|str|int|float|bool|NaT|inf|nan|utf8|codec|ordinal|operand|operands"
    r"|argument|arguments|attribute|isinstance|Struct|Decimal)\b|<class|object has no|Expected `|\bat 0x"
)
# What the manifest itself holds, and Kubernetes' values, of which one is None.
QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|is not one of .*|m\.yaml:\d+: \S+")


def garbled(text: str, chance: random.Random) -> str:
    """The text with a few characters changed."""
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at]
            + chance.choice(("", " ", "\n", ":", "-", "{", "}", "[", "'", '"', "#", "&a ", "*a", "\t", "é"))
            + (text[at + chance.randrange(3) :])
        )
    return text


def manifests(chance: random.Random) -> Iterator[str]:
    while True:
        match chance.randrange(10):
            case 0:
                content = chance.choice(WHOLE)
                yield garbled(yaml.safe_dump(content), chance)
            case 1:
                yield json.dumps(changed(chance.choice(BEFORE_V1), chance))
            case 2 | 3 | 4:
                several = [changed(content, chance) for content in chance.sample(EVERY_FIELD, 4)]
                yield json.dumps({"objects": several, "settings": {}})
            case 5:
                several = [changed(content, chance) for content in chance.sample(WHOLE, 3)]
                yield json.dumps(
                    changed({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": several}, chance)
                )
            case _:
                yield json.dumps(changed(chance.choice(WHOLE), chance))


def said_of(text: str, strictness: Strictness) -> str:
    """What is wrong with a manifest, or everything that its plan says."""
    try:
        documents, notes = upgrade_documents(check_documents(parse_text("m.yaml", text), strictness))
        documents, more = deduplicate(documents)
        snapshot = decode_snapshot(documents, "StaticCapacity=true")
    except InputError as error:
        return str(error)
    assumed: tuple[str, ...] = ()
    if not documents.has_case:
        snapshot, of_volumes = assume_volumes(snapshot)
        snapshot, of_namespaces = assume_namespaces(snapshot)
        assumed = (*of_volumes, *of_namespaces)
    result = plan(snapshot, Catalog({"": TYPES}))
    pods = (*result.unschedulable_pods, *result.ignored_pods)
    reasons = [reason for pod in pods for reason in pod.reasons]
    return "\n".join((*notes, *more, *assumed, *documents.notes, *result.notes, *reasons))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_manifest_is_planned_or_refused_in_plain_words(seed: int) -> None:
    chance = random.Random(seed)
    texts = manifests(chance)
    for _ in range(MANIFESTS_PER_SEED):
        text = next(texts)
        said = said_of(text, chance.choice(tuple(Strictness)))
        found = PYTHON.search(QUOTED.sub("", said))
        assert found is None, f"{found}: {said}\n{text}"


def test_what_is_said_is_text() -> None:
    assert msgspec.json.encode(said_of("kind: Pod", Strictness.STRICT))
