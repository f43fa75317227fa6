"""S3Blobs: what is stored under which key, and that it is read as it was."""

import gzip
import io
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from spotwright.adapters.aws.s3.blobs import S3Blobs

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PODS = b'{"name":"checkout-recommendation","cpu_millicores":500}' * 1000


class Bucket:
    """What put_object and get_object of one bucket do."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.answered = io.BytesIO()

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> None:
        assert (Bucket, ContentType) == ("state", "application/gzip" if Key.endswith(".gz") else "application/json")
        self.bodies[Key] = Body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self.answered = io.BytesIO(self.bodies[Key])
        return {"Body": self.answered}


def blobs_in(bucket: Bucket) -> S3Blobs:
    return S3Blobs(cast("S3Client", bucket), bucket="state", cluster="main")


def test_a_snapshot_takes_little_room() -> None:
    bucket = Bucket()
    key = blobs_in(bucket).put("snapshots", PODS)
    assert key.endswith(".json.gz")
    assert len(bucket.bodies[key]) < len(PODS) / 20


def test_a_snapshot_of_an_earlier_version_is_read_as_it_is() -> None:
    bucket = Bucket()
    bucket.bodies["snapshots/main/1.json"] = PODS
    assert blobs_in(bucket).get("snapshots/main/1.json") == PODS


def test_what_the_forwarder_writes_is_never_unpacked() -> None:
    bucket = Bucket()
    packed = bucket.bodies["clusters/main/state/1.gz"] = gzip.compress(bytes(10**6))
    assert blobs_in(bucket).get("clusters/main/state/1.gz") == packed


@given(st.sampled_from(("snapshots", "decisions", "catalogs")), st.binary())
def test_a_body_is_read_as_it_was_and_stored_once(kind: str, body: bytes) -> None:
    bucket = Bucket()
    blobs = blobs_in(bucket)
    keys = {blobs.put(kind, body), blobs.put(kind, body), blobs.key(kind, body)}
    first = dict(bucket.bodies)
    assert blobs.get(blobs.put(kind, body)) == body
    assert (len(keys), bucket.bodies) == (1, first)


def test_of_a_body_that_is_too_large_no_more_is_read_than_shows_it() -> None:
    bucket = Bucket()
    bucket.bodies["clusters/main/state/a"] = PODS
    assert blobs_in(bucket).get_at_most("clusters/main/state/a", len(PODS)) == PODS
    assert blobs_in(bucket).get_at_most("clusters/main/state/a", 100) is None
    assert bucket.answered.closed
