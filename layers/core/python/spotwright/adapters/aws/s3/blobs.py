"""Decisions, snapshots and catalogs in S3, under the hash of their content (BlobPort)."""

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING

from spotwright.adapters.aws.errors import translate_errors

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class S3Blobs:
    """See BlobPort. Writing a body twice changes nothing, since its key is its hash."""

    def __init__(self, client: "S3Client", *, bucket: str, cluster: str) -> None:
        self._client, self._bucket, self._cluster = client, bucket, cluster

    def key(self, kind: str, body: bytes) -> str:
        return f"{kind}/{self._cluster}/{hashlib.sha256(body).hexdigest()}.json"

    def put(self, kind: str, body: bytes) -> str:
        key = self.key(kind, body)
        with translate_errors(f"PutObject {key}"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json")
        return key

    def get(self, key: str) -> bytes:
        with translate_errors(f"GetObject {key}"):
            return self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()

    def newest(self, kind: str, count: int) -> tuple[tuple[str, datetime], ...]:
        """The keys of the newest bodies of a kind with the times at which they were stored, newest first."""
        prefix = f"{kind}/{self._cluster}/"
        with translate_errors(f"ListObjectsV2 {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            stored = [(item["Key"], item["LastModified"]) for page in pages for item in page.get("Contents", ())]
        return tuple(sorted(stored, key=lambda item: (item[1], item[0]), reverse=True)[:count])
