"""A cluster state that must not be used is refused, with what is wrong with it."""

import resource
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from spotwright.adapters.cluster_state import bodies
from spotwright.adapters.cluster_state.bodies import decode, encode_changes, encode_full, key_digest, state_key
from spotwright.adapters.cluster_state.head import decode_head, encode_head
from spotwright.adapters.cluster_state.pod_columns import to_columns
from spotwright.adapters.kubernetes.codecs.listed_objects import node_decoder
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim
from spotwright.model.cluster_state import (
    KIND_FIELDS,
    ClusterObjects,
    ClusterState,
    ClusterStateChanges,
    ClusterStateError,
    ClusterStateHead,
    KindState,
)
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PODS = tuple(
    Pod(ObjectMeta(f"web-{number}", "shop", f"uid-{number}", resource_version=str(100 + number)), node_name="a")
    for number in range(3)
)
STATE = ClusterState(
    cluster="main",
    epoch=1,
    sequence=2,
    taken=NOW,
    kinds={kind: KindState("200", NOW) for kind in KIND_FIELDS},
    objects=ClusterObjects(pods=PODS, nodes=(Node(ObjectMeta("a", uid="n")),), namespaces={"shop": {"team": "a"}}),
)
FULL = encode_full(STATE)
HEAD = ClusterStateHead(cluster="main", epoch=1, sequence=2, taken=NOW, kinds=STATE.kinds, full=state_key("main", FULL))


def claim(**fields: Any) -> NodeClaim:
    return NodeClaim(ObjectMeta("a"), NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"), **fields)


def refused(content: bytes, *, head: ClusterStateHead = HEAD, stored: bool = True) -> tuple[str, str]:
    """Code and message for a full body with this content. ``stored``: under the key of what it is now."""
    if stored:
        head = msgspec.structs.replace(head, full=state_key(head.cluster, content))
    with pytest.raises(ClusterStateError) as caught:
        decode(head, content)
    return caught.value.code, str(caught.value).replace(head.full, "BODY")


def refused_head(**changes: object) -> tuple[str, str]:
    text = encode_head(msgspec.structs.replace(HEAD, **changes))
    with pytest.raises(ClusterStateError) as caught:
        decode_head(text, cluster="main", now=NOW)
    return caught.value.code, str(caught.value)


def packed(value: object) -> bytes:
    return b"cluster-state 1\n" + zlib.compress(msgspec.msgpack.encode(value))


def test_a_body_that_is_cut_short_anywhere_is_refused() -> None:
    for end in range(len(FULL)):
        code, message = refused(FULL[:end], stored=False)
        assert code in ("CutShort", "Malformed")
        assert message.startswith("BODY ")
    assert refused(FULL[:-5], stored=False) == ("CutShort", f"BODY is cut short: it ends after {len(FULL) - 21} bytes")
    assert refused(b"", stored=False) == ("CutShort", "BODY is empty")


def test_a_body_of_a_newer_schema_is_refused_whatever_else_it_holds() -> None:
    code, message = refused(b"cluster-state 2\nwhatever comes")
    assert (code, message) == ("OtherSchema", "BODY has schema 2; this version reads schema 1")


def test_what_is_no_body_is_refused() -> None:
    no_body = ("Malformed", "BODY does not begin with the line cluster-state and its schema")
    assert refused(b"{}") == no_body
    assert refused(b"cluster-state x\n") == no_body
    assert refused(b"cluster-state 1\nnothing compressed") == ("Malformed", "BODY cannot be decompressed")


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    nested = b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
    answer = refused(b"cluster-state 1\n" + zlib.compress(nested))
    assert answer == ("Malformed", "BODY cannot be read: it is malformed: it is nested too deeply")


def test_a_body_of_another_cluster_is_refused() -> None:
    other = encode_full(msgspec.structs.replace(STATE, cluster="other"))
    assert refused(other) == ("OtherCluster", "BODY is of the cluster other, not of main")


def test_another_body_than_the_key_names_is_refused() -> None:
    other = encode_full(msgspec.structs.replace(STATE, objects=ClusterObjects()))
    assert refused(other, stored=False) == ("OtherBody", "BODY holds another body: its sha256 differs from the key's")


def test_a_body_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAXIMUM_BYTES", 1000)
    assert refused(packed("a" * 2000)) == ("TooLarge", "BODY unpacks to more than 1000 bytes")


def test_a_body_whose_objects_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six million empty labels are six KB of a body, and 384 MB of memory: more than a process has free after other
    tests, which it would use without taking any."""
    monkeypatch.setattr(bodies, "MAXIMUM_MEMORY", 64 * 1024 * 1024)
    columns = msgspec.structs.replace(to_columns(PODS), labels=({},) * 6_000_000)
    content = packed({"cluster": "main", "pods": columns, "objects": ClusterObjects()})
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    assert refused(content) == ("TooLarge", "BODY needs more than 67108864 bytes of memory")
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits
    assert decode(HEAD, FULL) == STATE


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"node_number": (0, 0, 7)}, "a column has a number that its table does not have"),
        ({"labels_number": (0, -1, 0)}, "a column has a number that its table does not have"),
        ({"uid": ("uid-0",)}, "its columns are not equally long"),
        (
            {"start_time": ("2026-01-01T00:00:00", None, None)},
            "cannot be read: pods[9][0]: must be a time with its zone, such as 2026-01-01T12:00:00Z",
        ),
        ({"name": ("web-0", "web-1", 2)}, "cannot be read: pods[5][2]: must be text, found a whole number"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, object], problem: str) -> None:
    columns = msgspec.structs.replace(to_columns(PODS), **changes)
    body = {"cluster": "main", "pods": columns, "objects": ClusterObjects()}
    code, message = refused(packed(body))
    assert code == "Malformed"
    assert message.endswith(problem)


def test_an_object_that_is_newer_than_its_kind_is_refused() -> None:
    head = msgspec.structs.replace(HEAD, kinds=HEAD.kinds | {"Pod": KindState("101", NOW)})
    assert refused(FULL, head=head) == (
        "InTheFuture",
        "BODY: a Pod has the resourceVersion 102, which is later than 101, that of the kind",
    )


LAST = datetime.max.replace(tzinfo=UTC)
SINCE_LAST = Condition("Ready", "True", last_transition_time=LAST)
NO_TIME = " the time 9999-12-31T23:59:59.999999+00:00, which is not between 1678 and 2262"
NO_DURATION = " a duration of 9223372037 s, more than 9223372036 s"


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        (ClusterObjects(pods=(msgspec.structs.replace(PODS[0], start_time=LAST),)), "a Pod has" + NO_TIME),
        (ClusterObjects(nodes=(Node(ObjectMeta("a", creation_timestamp=LAST)),)), "a Node has" + NO_TIME),
        (ClusterObjects(nodes=(Node(ObjectMeta("a", deletion_timestamp=LAST)),)), "a Node has" + NO_TIME),
        (ClusterObjects(nodes=(Node(ObjectMeta("a"), conditions=(SINCE_LAST,)),)), "a Node has" + NO_TIME),
        (ClusterObjects(nodeclaims=(claim(conditions=(SINCE_LAST,)),)), "a NodeClaim has" + NO_TIME),
        (ClusterObjects(nodeclaims=(claim(last_pod_event_time=LAST),)), "a NodeClaim has" + NO_TIME),
        (ClusterObjects(nodeclaims=(claim(expire_after_seconds=9223372037),)), "a NodeClaim has" + NO_DURATION),
        (
            ClusterObjects(nodeclaims=(claim(termination_grace_period_seconds=9223372037),)),
            "a NodeClaim has" + NO_DURATION,
        ),
        (
            ClusterObjects(pods=(msgspec.structs.replace(PODS[0], termination_grace_period_seconds=9223372037),)),
            "a Pod has" + NO_DURATION,
        ),
    ],
)
def test_times_and_durations_that_cannot_be_added_are_refused(objects: ClusterObjects, problem: str) -> None:
    """What is read from the API server is within these bounds."""
    full = encode_full(msgspec.structs.replace(STATE, objects=objects))
    assert refused(full) == ("Malformed", f"BODY: {problem}")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_whatever_times_and_durations_the_api_server_has_its_objects_are_no_reason_to_refuse_a_state(at: str) -> None:
    metadata = {"name": "a", "creationTimestamp": at, "deletionTimestamp": at}
    status = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}], "lastPodEventTime": at}
    pod = {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 2**63 - 1}, "status": {"startTime": at}}
    spec = {"expireAfter": "9999999999h", "terminationGracePeriod": "9999999999h", "nodeClassRef": {}}
    objects = ClusterObjects(
        pods=(pod_decoder().object(msgspec.json.encode(pod)),),
        nodes=(node_decoder().object(msgspec.json.encode({"metadata": metadata, "status": status})),),
        nodeclaims=(decode_nodeclaim({"metadata": metadata, "spec": spec, "status": status}),),
    )
    full = encode_full(msgspec.structs.replace(STATE, objects=objects))
    assert decode(msgspec.structs.replace(HEAD, full=state_key("main", full)), full).objects == objects


def test_a_resource_version_that_is_no_number_is_refused() -> None:
    pod = Pod(ObjectMeta("web", uid="u", resource_version="new\n"))
    full = encode_full(msgspec.structs.replace(STATE, objects=ClusterObjects(pods=(pod, *PODS))))
    assert refused(full) == (
        "BadResourceVersion",
        "the resourceVersion of Pod is 'new\\n', which is not a whole number",
    )
    assert refused_head(kinds={"Node": KindState("-1", NOW)}) == (
        "BadResourceVersion",
        "the resourceVersion of Node is '-1', which is not a whole number",
    )


def test_objects_of_a_kind_of_which_nothing_is_stated_are_refused() -> None:
    head = msgspec.structs.replace(HEAD, kinds={})
    assert refused(FULL, head=head) == ("BadResourceVersion", "BODY: no resourceVersion is stated for Pod")


def test_changes_of_another_body_are_refused() -> None:
    content = encode_changes(ClusterStateChanges(cluster="main", full="0" * 64))
    head = msgspec.structs.replace(HEAD, changes=state_key("main", content))
    with pytest.raises(
        ClusterStateError, match=f"^{head.changes} has changes of the body 0{{64}}, not of {HEAD.full}$"
    ):
        decode(head, FULL, content)


def test_missing_changes_are_refused() -> None:
    content = encode_changes(ClusterStateChanges(cluster="main", full=key_digest(HEAD.full)))
    head = msgspec.structs.replace(HEAD, changes=state_key("main", content))
    assert decode(head, FULL, content) == STATE
    with pytest.raises(ClusterStateError, match="is empty"):
        decode(head, FULL)


def test_a_full_body_is_no_changes_and_changes_are_no_full_body() -> None:
    changes = encode_changes(ClusterStateChanges(cluster="main", full=key_digest(HEAD.full)))
    assert refused(changes) == ("OtherBody", f"BODY has changes of the body {key_digest(HEAD.full)}, not all objects")
    with pytest.raises(ClusterStateError, match=r"has changes of the body \(none\), not of"):
        decode(msgspec.structs.replace(HEAD, changes=HEAD.full), FULL, FULL)


def test_a_head_of_a_newer_schema_is_refused_whatever_else_it_holds() -> None:
    with pytest.raises(ClusterStateError, match=r"^the state of main has schema 2; this version reads schema 1$"):
        decode_head('{"schema": 2, "kinds": "of another form"}', cluster="main", now=NOW)


def test_a_head_of_another_cluster_is_refused() -> None:
    assert refused_head(cluster="other") == ("OtherCluster", "the state of main is of the cluster other")
    assert refused_head(full="clusters/other/state/0") == (
        "OtherCluster",
        "the state of main has a body at 'clusters/other/state/0'",
    )


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"schema": 1}', '{"schema": "1"}', "[]", '{"schema": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}"],
)
def test_a_head_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ClusterStateError, match=r"^the head of the state of main cannot be read: ") as caught:
        decode_head(text, cluster="main", now=NOW)
    assert caught.value.code == "Malformed"


def test_times_after_the_present_are_refused_beyond_the_difference_of_clocks() -> None:
    slightly, much = NOW + timedelta(seconds=9), NOW + timedelta(seconds=11)
    assert decode_head(encode_head(msgspec.structs.replace(HEAD, taken=slightly)), cluster="main", now=NOW)
    after = "2026-01-01T12:00:11+00:00, after the present, 2026-01-01T12:00:00+00:00"
    assert refused_head(taken=much) == ("InTheFuture", f"the state of main: taken is {after}")
    assert refused_head(kinds={"Pod": KindState("1", much)}) == (
        "InTheFuture",
        f"the state of main: contacted of Pod is {after}",
    )
    assert refused_head(taken=datetime(2026, 1, 1))[0] == "Malformed"  # noqa: DTZ001
