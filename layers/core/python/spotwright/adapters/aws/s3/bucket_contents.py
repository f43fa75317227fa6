"""Empties a bucket, so that CloudFormation can delete it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def empty_bucket(s3: "S3Client", bucket: str, remaining_seconds: Callable[[], float]) -> bool:
    """Delete all versions and delete markers of all objects, a thousand at a time.

    True = the bucket is empty or does not exist; False = the time ran out. Raises ApiError.
    """
    try:
        with translate_errors(f"empty bucket {bucket}"):
            for batch in _versions(s3, bucket):
                if remaining_seconds() <= 0:
                    return False
                _delete(s3, bucket, batch)
    except Unavailable as error:
        # Other callers treat a missing bucket as an outage; here it means that the bucket is empty.
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
        objects = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if objects:
            yield [{"Key": version["Key"], "VersionId": version["VersionId"]} for version in objects]
