"""Decisions, snapshots and catalogs in S3, under the hash of their content (BlobPort)."""

import gzip
import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.errors import translate_errors

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# They grow with the cluster: beside 50,000 pods 91 MB, of which 4 are left in a quarter of a second
# (make bench-planning).
_COMPRESSED: Final = frozenset(("snapshots",))
_FASTEST: Final = 1


class S3Blobs:
    """See BlobPort. Writing a body twice changes nothing, since its key is the hash of the body before compression."""

    def __init__(self, client: "S3Client", *, bucket: str, cluster: str) -> None:
        self._client, self._bucket, self._cluster = client, bucket, cluster

    def key(self, kind: str, body: bytes) -> str:
        ending = "json.gz" if kind in _COMPRESSED else "json"
        return f"{kind}/{self._cluster}/{hashlib.sha256(body).hexdigest()}.{ending}"

    def put(self, kind: str, body: bytes) -> str:
        key, content, content_type = self.key(kind, body), body, "application/json"
        if kind in _COMPRESSED:
            content, content_type = gzip.compress(body, _FASTEST, mtime=0), "application/gzip"
        with translate_errors(f"PutObject {key}"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, ContentType=content_type)
        return key

    def get(self, key: str) -> bytes:
        """A body as it was before compression; earlier versions stored every body as it is."""
        with translate_errors(f"GetObject {key}"):
            content = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        # By its kind: what the forwarder writes is never unpacked here, however its key ends.
        is_compressed = key.partition("/")[0] in _COMPRESSED and key.endswith(".gz")
        return gzip.decompress(content) if is_compressed else content

    def get_at_most(self, key: str, most_bytes: int) -> bytes | None:
        """A body as it is stored; None when it has more bytes, of which the rest is left unread."""
        with translate_errors(f"GetObject {key}"):
            body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
            with body:
                content = body.read(most_bytes + 1)
        return content if len(content) <= most_bytes else None

    def newest(self, kind: str, count: int) -> tuple[tuple[str, datetime], ...]:
        """The keys of the newest bodies of a kind with the times at which they were stored, newest first."""
        prefix = f"{kind}/{self._cluster}/"
        with translate_errors(f"ListObjectsV2 {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            stored = [(item["Key"], item["LastModified"]) for page in pages for item in page.get("Contents", ())]
        return tuple(sorted(stored, key=lambda item: (item[1], item[0]), reverse=True)[:count])
