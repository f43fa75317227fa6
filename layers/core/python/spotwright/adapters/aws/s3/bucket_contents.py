"""Empties a bucket, so that CloudFormation can delete it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def empty_bucket(s3: "S3Client", bucket: str, remaining_seconds: Callable[[], float]) -> bool:
    """Delete every version and delete marker of every object, a thousand at a time.

    True when nothing is left or the bucket is gone, False when time ran out first. Raises ApiError.
    """
    try:
        with translate_errors(f"empty bucket {bucket}"):
            for batch in _versions(s3, bucket):
                if remaining_seconds() <= 0:
                    return False
                _delete(s3, bucket, batch)
    except Unavailable as error:
        # For those who read it, a bucket that is gone is trouble; here it is the end of the work.
        if error.code != "NoSuchBucket":
            raise
    return True


def _delete(s3: "S3Client", bucket: str, batch: list[Any]) -> None:
    refused = s3.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True}).get("Errors", [])
    if refused:
        first = refused[0]
        raise ApiError(f"{bucket}/{first.get('Key')}: {first.get('Message')}", code=str(first.get("Code")))


def _versions(s3: "S3Client", bucket: str) -> Iterator[list[Any]]:
    """Pages of at most 1,000 keys with version ids, as DeleteObjects takes them."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            yield [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
