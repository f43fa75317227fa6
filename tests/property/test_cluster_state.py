"""A cluster state comes out as it went in, whole or as changes of another one."""

import contextlib
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from spotwright.adapters.cluster_state.bodies import decode, encode_changes, encode_full, key_digest, state_key
from spotwright.adapters.cluster_state.head import decode_head, encode_head
from spotwright.model.cluster_state import (
    KIND_FIELDS,
    ClusterObjects,
    ClusterState,
    ClusterStateChanges,
    ClusterStateError,
    ClusterStateHead,
    KindState,
    apply_changes,
    changes_between,
    identity,
    in_order,
)
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import LONGEST_DURATION_SECONDS, ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from tests.property.structs import Overrides, draw

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS = {kind: KindState(str(2**63), NOW) for kind in KIND_FIELDS}
OBJECTS: Any = msgspec.inspect.type_info(ClusterObjects)
SEEDS = st.integers(0, 2**32)


def _seconds(random: Random) -> int:
    return random.choice((0, 30, LONGEST_DURATION_SECONDS, -LONGEST_DURATION_SECONDS))


# As they are read from an API server: what cannot be is refused.
_READ: Overrides = {
    (ObjectMeta, "uid"): lambda random: f"uid-{random.randrange(12)}",
    (ObjectMeta, "resource_version"): lambda random: str(random.randrange(2**63)),
    (NodeClaim, "expire_after_seconds"): _seconds,
    (NodeClaim, "termination_grace_period_seconds"): _seconds,
    (Pod, "termination_grace_period_seconds"): _seconds,
}


def random_state(seed: int) -> ClusterState:
    """Up to five objects of each kind with every field that they may have; objects of the same uid in many states."""
    random = Random(seed)
    drawn = {
        field.name: [draw(random, field.type.item_type.cls, _READ) for _ in range(random.randrange(6))]
        for field in OBJECTS.fields
        if field.name in KIND_FIELDS.values()
    }
    kinds: dict[str, Any] = {
        field: tuple({identity(obj): obj for obj in objects}.values()) for field, objects in drawn.items()
    }
    objects = ClusterObjects(**kinds, namespaces=draw(random, dict[str, dict[str, str]]))
    return ClusterState(
        cluster="main",
        epoch=random.randrange(2**62),
        sequence=random.randrange(2**62),
        taken=NOW,
        kinds=KINDS,
        objects=in_order(objects),
    )


STATES = SEEDS.map(random_state)


def head_of(state: ClusterState, full: bytes, changes: bytes = b"") -> ClusterStateHead:
    head = ClusterStateHead(
        cluster=state.cluster,
        epoch=state.epoch,
        sequence=state.sequence,
        taken=state.taken,
        kinds=state.kinds,
        full=state_key(state.cluster, full),
        changes=state_key(state.cluster, changes) if changes else "",
        full_bytes=len(full),
        changes_bytes=len(changes),
    )
    return decode_head(encode_head(head), cluster=state.cluster, now=NOW)


@given(STATES)
def test_a_state_comes_out_as_it_went_in(state: ClusterState) -> None:
    full = encode_full(state)
    assert decode(head_of(state, full), full) == state


@given(STATES, STATES)
def test_changes_over_a_state_are_the_later_state(before: ClusterState, after: ClusterState) -> None:
    full = encode_full(before)
    changes = changes_between(before.objects, after, full=key_digest(state_key("main", full)))
    assert apply_changes(before.objects, changes) == after.objects
    content = encode_changes(changes)
    assert decode(head_of(after, full, content), full, content) == after


@given(STATES)
def test_a_state_does_not_differ_from_itself(state: ClusterState) -> None:
    changes = changes_between(state.objects, state, full="sha")
    assert changes == ClusterStateChanges(cluster="main", full="sha")


@given(STATES, SEEDS)
def test_equal_states_have_equal_bodies_in_whatever_order_their_objects_came(state: ClusterState, seed: int) -> None:
    random = Random(seed)
    shuffled = {
        field: tuple(random.sample(state.objects.of_kind(kind), len(state.objects.of_kind(kind))))
        for kind, field in KIND_FIELDS.items()
    }
    objects = msgspec.structs.replace(state.objects, **shuffled)
    assert encode_full(msgspec.structs.replace(state, objects=objects)) == encode_full(state)


@given(STATES, st.data())
def test_whatever_a_body_holds_it_is_read_or_refused(state: ClusterState, data: st.DataObject) -> None:
    """Bytes changed anywhere, stored under the key of what they are now, as who lies would."""
    content = bytearray(encode_full(state))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(content)
    with contextlib.suppress(ClusterStateError):
        decode(head_of(state, changed), changed)
