"""Decisions of an earlier version, decided again from what was stored with them."""

import json
from typing import Any

import msgspec
import pytest

from spotwright.workflows.planning.code_digest import code_digest
from tests.stored.recorded import copy_bucket, list_keys, parse_decision, read_body, read_json
from tests.stored.replays import replay_from, replay_recorded

OTHER_CODE = {"code": "0123456789abcdef"}


def as_text(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("key", list_keys("decisions"))
def test_a_decision_can_be_replayed(key: str) -> None:
    """Whatever the present code decides."""
    replayed = replay_recorded(key)
    assert as_text(replayed.decision) == parse_decision(read_body(key))
    assert replayed.same_code == (read_json(key)["code"] == code_digest())


@pytest.mark.parametrize("key", list_keys("decisions"))
def test_todays_code_places_the_same_pods_for_no_more(key: str) -> None:
    """Only the code that decided must decide the same; other code may choose other nodes, at no higher price."""
    replayed = replay_recorded(key)
    before, now = replayed.decision.plan, replayed.plan
    assert replayed.agrees or not replayed.same_code
    assert [pod.pod for pod in now.unschedulable_pods] == [pod.pod for pod in before.unschedulable_pods]
    assert now.price_picousd_per_hour <= before.price_picousd_per_hour
    assert replayed.kept_claims == ()


@pytest.mark.parametrize("kind", ["provision", "interrupt", "disrupt", "scale-down"])
def test_a_decision_of_other_code_says_so(kind: str) -> None:
    blobs, key = copy_bucket(), next(key for key in list_keys("decisions") if read_json(key)["kind"] == kind)
    changed = blobs.put("decisions", json.dumps(read_json(key) | OTHER_CODE).encode())
    assert not replay_from(blobs, changed).same_code
