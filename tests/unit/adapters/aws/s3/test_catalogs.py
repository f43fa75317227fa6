"""Decoded catalogs: each once, and no more than there is memory for."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import cast

import pytest

from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.aws.s3.catalogs import CACHE_SIZE, Catalogs
from spotwright.aws.instance_types import catalog_codec
from spotwright.model.ec2.instance_type import Catalog


class Bucket:
    """Every key has an empty catalog; ``read``: the keys that were read, in order."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return b""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(catalog_codec, "decode", lambda body: Catalog(source="decoded"))
    return Bucket()


def test_a_catalog_is_decoded_once_and_those_read_longest_ago_make_room(bucket: Bucket) -> None:
    catalogs = Catalogs(cast("S3Blobs", bucket))
    keys = [f"catalogs/{number}" for number in range(CACHE_SIZE + 1)]
    for key in keys[:-1]:
        assert catalogs.read(key) is catalogs.read(key)
    catalogs.read(keys[0])
    catalogs.read(keys[-1])
    assert bucket.read == keys, "each once so far"
    catalogs.read(keys[0])
    assert bucket.read == keys, "it was in use"
    catalogs.read(keys[1])
    assert bucket.read == [*keys, keys[1]]


def test_threads_of_a_fresh_process_wait_for_the_one_that_decodes(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs, begun, others = Catalogs(cast("S3Blobs", bucket)), Event(), Event()

    def decode(body: bytes) -> Catalog:
        begun.set()
        assert others.wait(60)
        return Catalog(source="decoded")

    monkeypatch.setattr(catalog_codec, "decode", decode)
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(catalogs.read, "catalogs/1")]
        assert begun.wait(60)
        calls += [threads.submit(catalogs.read, "catalogs/1") for _ in range(2)]
        others.set()
        assert {call.result(60).source for call in calls} == {"decoded"}
    assert bucket.read == ["catalogs/1"]


def test_without_a_catalog_there_is_an_empty_one(bucket: Bucket) -> None:
    assert Catalogs(cast("S3Blobs", bucket)).read("").by_nodeclass == {}
    assert bucket.read == []
