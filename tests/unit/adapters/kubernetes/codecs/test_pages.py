"""Pages of lists: what is shared, what is left out, what stands in for an object that cannot be read."""

import json
from typing import Any

import pytest

from bench.realistic_objects import listed_node, listed_pod
from spotwright.adapters.kubernetes.codecs import pages
from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.listed_objects import node_decoder
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.pages import Memo
from spotwright.model import labels
from spotwright.model.kubernetes.pod import Pod


def page_of(*items: Any) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": items}).encode()


def test_replicas_share_what_is_equal_and_nothing_else() -> None:
    first, second = pod_decoder().page(page_of(listed_pod(0), listed_pod(1))).items
    assert first.requests is second.requests
    assert first.tolerations is second.tolerations
    assert first.metadata.labels is second.metadata.labels
    assert first.metadata.owner_references is second.metadata.owner_references
    assert first.node_name is second.node_name
    assert (first.metadata.name, first.metadata.uid) != (second.metadata.name, second.metadata.uid)
    assert first.start_time != second.start_time


def test_what_is_equal_is_shared_across_pages_and_single_objects() -> None:
    decoder = pod_decoder()
    (first,) = decoder.page(page_of(listed_pod(0))).items
    assert decoder.object(json.dumps(listed_pod(1)).encode()).requests is first.requests


def test_an_object_that_cannot_be_read_says_so_and_costs_no_other() -> None:
    bad = listed_pod(1)
    bad["spec"]["nodeName"] = 7
    before, refused, after = pod_decoder().page(page_of(listed_pod(0), bad, listed_pod(2))).items
    assert (before.read_error, after.read_error) == ("", "")
    assert refused.read_error == "nodeName: must be text, found a whole number"
    assert refused.metadata.name == bad["metadata"]["name"]


def test_json_that_only_python_reads_costs_one_object() -> None:
    bad = listed_node(0)
    bad["status"]["capacity"]["cpu"] = float("nan")
    refused, fine = node_decoder().page(page_of(bad, listed_node(1))).items
    assert "NaN" in refused.read_error or "nan" in refused.read_error
    assert (refused.unschedulable, fine.read_error) == (True, "")


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'{"items": 5}', b'{"items": [5]}', b'{"items": [null]}'])
def test_what_is_no_list_is_refused_instead_of_taken_for_an_empty_one(content: bytes) -> None:
    with pytest.raises(DecodeError, match="not a list of objects"):
        pod_decoder().page(content)


@pytest.mark.parametrize("content", [b'{"items": null}', b'{"metadata": null, "items": []}', b"{}"])
def test_a_list_may_be_empty(content: bytes) -> None:
    page = pod_decoder().page(content)
    assert (page.items, page.next_page, page.resource_version) == ((), "", "")


def test_a_memo_forgets_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MEMO_SIZE", 2)
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key.upper()

    memo = Memo(make)
    assert [memo(key) for key in ("a", "b", "a", "b", "c", "a")] == ["A", "B", "A", "B", "C", "A"]
    assert made == ["a", "b", "c", "a"]


def test_a_memo_keeps_nothing_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LONGEST_KEY", 3)
    memo = Memo[str, list[str]](list)
    assert memo("abc") is memo("abc")
    assert memo("abcd") == memo("abcd")
    assert memo("abcd") is not memo("abcd")


def test_an_object_of_any_size_is_read() -> None:
    """10,000 labels and annotations of 1.4 MB, more than the API server takes."""
    huge = listed_pod(0)
    huge["metadata"]["labels"] = {f"label-{number}": "x" for number in range(10_000)}
    huge["metadata"]["annotations"] = {"note": "x" * 1_400_000, labels.DO_NOT_DISRUPT: "true"}
    huge_pod, small_pod = pod_decoder().page(page_of(huge, listed_pod(1))).items
    assert isinstance(small_pod, Pod)
    assert len(huge_pod.metadata.labels) == 10_000
    assert huge_pod.metadata.annotations == {labels.DO_NOT_DISRUPT: "true"}
