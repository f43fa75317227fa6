"""Pods are read from Protobuf as from JSON, whatever they hold."""

import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from bench.realistic_objects import listed_pod
from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.adapters.kubernetes.codecs.protobuf_pods import ProtobufPods
from spotwright.model.kubernetes.meta import LATEST_TIME
from tests.property.changed_objects import changed, of_kind
from tests.property.protobuf_pods import PAGE_BEGIN, page_of

PODS: Final = of_kind("Pod")


def expressible(pod: dict[str, Any]) -> bool:
    """Whether each field has Kubernetes' type; another an API server does not hold."""
    try:
        page_of([json.loads(json.dumps(pod))])
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return False
    return True


def test_pods_of_a_page_are_those_of_json() -> None:
    pods = [pod for pod in json.loads(json.dumps(PODS)) if expressible(pod)]
    assert len(pods) > 10
    page = ProtobufPods().page(page_of(pods))
    assert page.items == tuple(map(decode_pod, pods))
    assert (page.next_page, page.resource_version) == ("next", "7")
    assert ProtobufPods().next_page(page_of(pods)) == "next"


@pytest.mark.parametrize("seed", range(10))
def test_changed_pods_are_those_of_json(seed: int) -> None:
    chance, read = random.Random(f"protobuf {seed}"), 0
    for _ in range(100):
        pods = [changed(pod, chance) if chance.random() < 0.7 else pod for pod in chance.choices(PODS, k=3)]
        pods = [pod for pod in json.loads(json.dumps(pods)) if expressible(pod)]
        # An object that cannot be read is read from JSON, with all others of its page.
        with suppress(DecodeError):
            assert ProtobufPods().page(page_of(pods)).items == tuple(map(decode_pod, pods))
            read += len(pods)
    assert read > 100


def test_replicas_share_what_is_equal_and_nothing_else() -> None:
    other = listed_pod(1)
    other["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 3, "annotations": {"a": "b"}}
    other["spec"]["nodeName"] = "another"
    first, second, third = ProtobufPods().page(page_of([listed_pod(0), other, listed_pod(1)])).items
    assert first.node_name is third.node_name
    assert first.requests is second.requests
    assert first.tolerations is second.tolerations
    assert first.metadata.labels is second.metadata.labels
    assert first.metadata.owner_references is second.metadata.owner_references
    assert (first.metadata.name, first.metadata.uid) != (second.metadata.name, second.metadata.uid)
    assert first.start_time != second.start_time


def test_what_is_another_pods_own_is_not_taken_for_this_ones() -> None:
    """Each field that equal pods do not share, in one pod and absent from the next."""
    first = listed_pod(0)
    first["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 3, "annotations": {
        "karpenter.sh/do-not-disrupt": "true"}}  # fmt: skip
    first["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}]
    second = listed_pod(1)
    for place, field in (("spec", "nodeName"), ("spec", "volumes"), ("status", "startTime")):
        second[place].pop(field, None)
    assert ProtobufPods().page(page_of([first, second])).items == (decode_pod(first), decode_pod(second))


def test_a_pod_that_cannot_be_read_is_left_to_json() -> None:
    bad = listed_pod(1)
    del bad["status"]["containerStatuses"][0]["name"]
    with pytest.raises(DecodeError, match="a pod in Protobuf cannot be read: it is malformed: field name is missing"):
        ProtobufPods().page(page_of([listed_pod(0), bad]))


@pytest.mark.parametrize("cut", [4, 5, len(PAGE_BEGIN), 200, 5_000])
def test_a_page_that_was_cut_short_is_no_list(cut: int) -> None:
    content = page_of([listed_pod(0), listed_pod(1)])
    with pytest.raises(DecodeError, match="is not a PodList in Protobuf"):
        ProtobufPods().page(content[: min(cut, len(content) - 1)])
    assert ProtobufPods().next_page(content[: min(cut, len(content) - 1)]) == ""


def test_a_text_that_is_not_utf_8_is_said() -> None:
    content = page_of([listed_pod(0)]).replace(b"team-0", b"team-\xff")
    with pytest.raises(DecodeError, match="is not a PodList in Protobuf"):
        ProtobufPods().page(content)


def test_so_it_is_where_the_library_is_not_compiled(tmp_path: Path) -> None:
    """As on Alpine, for which it has no wheel of C."""
    page = tmp_path / "page"
    page.write_bytes(page_of([listed_pod(0)]).replace(b"team-0", b"team-\xff"))
    code = f"""
from pathlib import Path
from google.protobuf.internal import api_implementation
from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.protobuf_pods import ProtobufPods
content = Path({str(page)!r}).read_bytes()
assert api_implementation.Type() == "python"
assert len(ProtobufPods().page(content.replace(b"\\xff", b"x")).items) == 1
try:
    ProtobufPods().page(content)
except DecodeError as error:
    print(error)
"""
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "is not a PodList in Protobuf" in done.stdout, done.stderr


def test_a_time_beyond_the_calendar_is_bounded() -> None:
    (pod,) = ProtobufPods().page(page_of([listed_pod(0)], created=2**60)).items
    assert pod.metadata.creation_timestamp == LATEST_TIME
