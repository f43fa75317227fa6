"""NodeRegistrationHealthy: which outcomes make a NodePool healthy or not, and what takes the condition back."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.lifecycle import registration_health
from spotwright.lifecycle.registration_health import (
    CONDITION,
    RegistrationHealth,
    judge,
    owning_nodepool_uid,
    with_failure,
    with_registration,
)
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.simulation import builders

CLASS = builders.nodeclass(metadata=ObjectMeta("default", generation=3))


def pool(status: str, *, generation: int = 1) -> NodePool:
    """A pool of generation 1 whose condition is about ``generation``; "" = it has none."""
    conditions = (Condition(CONDITION, status, observed_generation=generation),) if status else ()
    metadata = ObjectMeta("default", uid="pool", generation=1)
    return builders.nodepool(metadata=metadata, conditions=conditions)


def claim(uid: str, *, launched: str = "True", owner: str = "pool") -> NodeClaim:
    return NodeClaim(
        ObjectMeta("c", uid=uid, owner_references=(OwnerReference("NodePool", "default", owner),)),
        builders.nodepool().node_class_ref,
        conditions=(Condition("Launched", launched, "LaunchFailed", "no subnet has free addresses"),),
    )


def after(outcomes: str, health: RegistrationHealth | None = None) -> RegistrationHealth:
    """``o``: a node joined; ``x``: it did not."""
    health = health or RegistrationHealth("pool", nodeclass_generation=3)
    for number, outcome in enumerate(outcomes):
        change = with_registration if outcome == "o" else with_failure
        health = change(health, claim(f"{len(outcomes)}-{number}"), now_ms=number)
    return health


def status(present: NodePool, health: RegistrationHealth | None) -> str:
    """What the condition is after it was judged."""
    change = judge(present, CLASS, health, now_ms=1).change
    return change.status if change is not None else next(each.status for each in present.conditions)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("", "Unknown"), ("o", "True"), ("x", "Unknown"), ("xo", "True"), ("ox", "True"), ("xx", "False"),
        ("oooxx", "False"), ("xxo", "False"), ("xxoo", "False"), ("xxooo", "True"), ("ooox", "True"),
    ],
)  # fmt: skip
def test_two_of_the_last_four_make_a_pool_unhealthy(outcomes: str, expected: str) -> None:
    assert status(pool("Unknown"), after(outcomes)) == expected


@given(st.text("ox", max_size=20))
def test_the_condition_is_the_same_whether_it_is_judged_after_each_outcome_or_at_the_end(outcomes: str) -> None:
    present = pool("Unknown")
    for length in range(1, len(outcomes) + 1):
        present = pool(status(present, after(outcomes[:length])))
    assert present.conditions[0].status == status(pool("Unknown"), after(outcomes))


def test_e23_a_lost_row_and_a_single_success_make_a_pool_healthy() -> None:
    assert status(pool("False"), after("o", RegistrationHealth("pool"))) == "True"


@pytest.mark.parametrize(("before", "outcome", "expected"), [("False", "o", "False"), ("True", "x", "True")])
def test_outcomes_that_were_lost_are_inferred_from_the_condition(before: str, outcome: str, expected: str) -> None:
    inferred = judge(pool(before), CLASS, None, now_ms=1).health
    assert inferred.outcomes
    assert status(pool(before), after(outcome, inferred)) == expected


@pytest.mark.parametrize(
    ("present", "class_generation"), [(pool(""), 3), (pool("True", generation=0), 3), (pool("True"), 2)]
)
def test_a_change_of_the_pool_or_its_class_begins_anew(present: NodePool, class_generation: int) -> None:
    stored = after("xxo", RegistrationHealth("pool", nodeclass_generation=class_generation, version=7))
    update = judge(present, CLASS, stored, now_ms=9)
    assert update.change is not None
    assert (update.change.status, update.change.reason) == ("Unknown", "AwaitingReconciliation")
    assert (update.health.outcomes, update.health.nodeclass_generation, update.health.version) == ((), 3, 7)


@pytest.mark.parametrize(
    ("seconds", "owner", "registered", "outcomes", "expected"),
    [
        (1, "pool", "True", "", "True"),
        (-1, "pool", "True", "", "Unknown"),
        (1, "an earlier pool", "True", "", "Unknown"),
        (1, "pool", "False", "", "Unknown"),
        (1, "pool", "True", "xx", "False"),
        (1, "pool", "True", "xxoo", "False"),
    ],
)
@pytest.mark.parametrize("has_row", [True, False])
def test_a_node_that_joined_counts_though_its_outcome_could_not_be_stored(
    seconds: int, owner: str, registered: str, outcomes: str, expected: str, has_row: bool
) -> None:
    """``seconds``: after the outcomes of an earlier pool or class were removed, and the condition became Unknown."""
    reset = datetime(2026, 1, 5, 9, tzinfo=UTC)
    joined = Condition("Registered", registered, last_transition_time=reset + timedelta(seconds=seconds))
    registered_claim = msgspec.structs.replace(claim("a", owner=owner), conditions=(joined,))
    unknown = Condition(CONDITION, "Unknown", last_transition_time=reset, observed_generation=1)
    present = msgspec.structs.replace(pool("Unknown"), conditions=(unknown,))
    stored = msgspec.structs.replace(after(outcomes), changed_at_ms=int(reset.timestamp() * 1000))
    health = stored if has_row or outcomes else None
    change = judge(present, CLASS, health, [registered_claim], now_ms=1).change
    assert (change.status if change is not None else "Unknown") == expected


def test_outcomes_that_were_stored_before_the_condition_was_judged_are_of_the_present_class() -> None:
    """Or else no later change of the class would be noticed."""
    health = judge(pool("Unknown"), CLASS, after("o", RegistrationHealth("pool")), now_ms=1).health
    assert (health.nodeclass_generation, len(health.outcomes)) == (3, 1)


def test_a_further_failure_for_another_reason_changes_nothing_that_is_false() -> None:
    health = with_failure(after("xx"), claim("b", launched="Unknown"), now_ms=1)
    assert health.reason == "LaunchFailed"
    assert judge(pool("False"), CLASS, health, now_ms=1).change is None


def test_it_says_why() -> None:
    joined = judge(pool("Unknown"), CLASS, after("xx"), now_ms=1).change
    assert joined is not None
    assert (joined.reason, joined.message) == ("RegistrationFailed", "Failed to register node")
    health = with_failure(after("x"), claim("b", launched="Unknown"), now_ms=1)
    launched = judge(pool("Unknown"), CLASS, health, now_ms=1).change
    assert launched is not None
    assert (launched.reason, launched.message) == ("LaunchFailed", "no subnet has free addresses")


def test_a_claim_counts_once_and_the_row_stays_small() -> None:
    health = with_failure(RegistrationHealth("pool"), claim("a"), now_ms=1)
    assert with_failure(health, claim("a"), now_ms=2) is health
    assert len(after("xo" * 50).outcomes) == registration_health.OUTCOMES
    full = after("oooo")
    assert with_registration(full, claim("b"), now_ms=2) is full, "nothing is written while all nodes join"


def test_e24_outcomes_belong_to_the_pool_that_made_the_claim() -> None:
    assert owning_nodepool_uid(claim("a", owner="earlier pool of the name")) == "earlier pool of the name"
    alone = claim("a")
    assert owning_nodepool_uid(msgspec.structs.replace(alone, metadata=ObjectMeta("c"))) == ""
