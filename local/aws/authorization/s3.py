"""S3: the permission behind each operation; objects or the bucket.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from local.aws.calls.request import AwsRequest
from local.aws.emulator import Emulator
from local.aws.iam.policies import ANY_RESOURCE, AccessRequest

# Operations whose permission has another name.
_ACTIONS = {
    "HeadObject": "GetObject",
    "HeadBucket": "ListBucket",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListBuckets": "ListAllMyBuckets",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "DeleteObjects": "DeleteObject",
    "CopyObject": "PutObject",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
}


def required_access(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    params = request.params
    bucket, key = params.get("Bucket"), params.get("Key")
    action = f"s3:{_ACTIONS.get(request.action, request.action)}"
    if not bucket:
        return [AccessRequest(action, ANY_RESOURCE)]
    if request.action == "DeleteObjects":
        objects = (params.get("Delete") or {}).get("Objects") or []
        return [AccessRequest(action, f"arn:aws:s3:::{bucket}/{item['Key']}") for item in objects]
    if key is None:
        return [AccessRequest(action, f"arn:aws:s3:::{bucket}", _listed(params))]
    asked = [AccessRequest(action, f"arn:aws:s3:::{bucket}/{key}")]
    if request.action in ("CopyObject", "UploadPartCopy"):
        asked.append(AccessRequest("s3:GetObject", f"arn:aws:s3:::{_source(params)}"))
    return asked


def _listed(params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {"s3:prefix": (str(params.get("Prefix") or ""),)}


def _source(params: Mapping[str, Any]) -> str:
    source = params.get("CopySource") or ""
    text = f"{source['Bucket']}/{source['Key']}" if isinstance(source, Mapping) else str(source)
    return unquote(text.lstrip("/")).partition("?")[0]
