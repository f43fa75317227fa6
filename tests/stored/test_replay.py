"""Decisions of an earlier version, decided again from what was stored with them."""

import json
from typing import Any

import msgspec
import pytest

from spotwright.workflows.planning.code_digest import code_digest
from tests.stored.recorded import copy_bucket, list_keys, read_json
from tests.stored.replays import replay_from, replay_recorded

OTHER_CODE = {"code": "0123456789abcdef"}


def as_text(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("key", list_keys("decisions"))
def test_a_decision_can_be_replayed(key: str) -> None:
    """Whatever the present code decides."""
    replayed = replay_recorded(key)
    assert as_text(replayed.decision) == read_json(key)
    assert replayed.same_code == (read_json(key)["code"] == code_digest())


@pytest.mark.parametrize("key", list_keys("decisions"))
def test_the_same_is_decided_again(key: str) -> None:
    """A planner that was changed may decide something else: then this test, and no other test here, no longer holds."""
    replayed = replay_recorded(key)
    assert as_text(replayed.plan) == read_json(key)["plan"]
    assert replayed.kept_claims == ()
    assert replayed.agrees


@pytest.mark.parametrize("kind", ["provision", "interrupt", "disrupt", "scale-down"])
def test_a_decision_of_other_code_says_so(kind: str) -> None:
    blobs, key = copy_bucket(), next(key for key in list_keys("decisions") if read_json(key)["kind"] == kind)
    changed = blobs.put("decisions", json.dumps(read_json(key) | OTHER_CODE).encode())
    assert not replay_from(blobs, changed).same_code
