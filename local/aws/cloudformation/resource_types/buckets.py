"""AWS::S3 and AWS::ECR: buckets, bucket policies, repositories."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, completing, ignoring, picked
from local.aws.cloudformation.intrinsics import Made


class Bucket:
    """A bucket that still holds objects cannot be deleted, as on AWS."""

    handled = frozenset(
        (
            "AccessControl",
            "BucketEncryption",
            "BucketName",
            "LifecycleConfiguration",
            "NotificationConfiguration",
            "OwnershipControls",
            "PublicAccessBlockConfiguration",
            "Tags",
            "VersioningConfiguration",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        s3, region = call.client("s3"), call.world.region
        name = properties.get("BucketName") or call.name(63).lower()
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})
        made = Made(
            name,
            {
                "Arn": f"arn:aws:s3:::{name}",
                "DomainName": f"{name}.s3.amazonaws.com",
                "RegionalDomainName": f"{name}.s3.{region}.amazonaws.com",
            },
        )
        with completing(made):
            self._configure(call, name, properties, {})
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        self._configure(call, made.physical_id, properties, before)
        return made

    def _configure(self, call: Call, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Every setting has a call of its own; one that is gone goes back to the default."""
        s3 = call.client("s3")
        s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration=_encryption(properties))
        tags = call.tag_list(properties)
        if tags:
            s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": tags})
        elif before.get("Tags"):
            s3.delete_bucket_tagging(Bucket=name)
        block = properties.get("PublicAccessBlockConfiguration")
        if block:
            s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=block)
        if "OwnershipControls" in properties:
            s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=properties["OwnershipControls"])
        if properties.get("VersioningConfiguration") or before.get("VersioningConfiguration"):
            versioning = properties.get("VersioningConfiguration", {"Status": "Suspended"})
            s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=versioning)
        if properties.get("LifecycleConfiguration"):
            rules = [_lifecycle_rule(rule) for rule in properties["LifecycleConfiguration"]["Rules"]]
            s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
        elif before.get("LifecycleConfiguration"):
            s3.delete_bucket_lifecycle(Bucket=name)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("NoSuchBucket", call.client("s3").delete_bucket, Bucket=made.physical_id)


def _encryption(properties: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation's rules in the API's shape; S3's own key without any."""
    default = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    given = properties.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", [default])
    return {
        "Rules": [
            {"ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"]}
            | picked(rule, "BucketKeyEnabled")
            for rule in given
        ]
    }


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation's shape of a rule in the API's."""
    made = {"ID": rule["Id"]} if "Id" in rule else {}
    made |= {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "ExpirationInDays" in rule:
        made["Expiration"] = {"Days": rule["ExpirationInDays"]}
    elif rule.get("ExpiredObjectDeleteMarker"):
        made["Expiration"] = {"ExpiredObjectDeleteMarker": True}
    if "NoncurrentVersionExpiration" in rule:
        made["NoncurrentVersionExpiration"] = rule["NoncurrentVersionExpiration"]
    elif "NoncurrentVersionExpirationInDays" in rule:
        made["NoncurrentVersionExpiration"] = {"NoncurrentDays": rule["NoncurrentVersionExpirationInDays"]}
    if "AbortIncompleteMultipartUpload" in rule:
        made["AbortIncompleteMultipartUpload"] = rule["AbortIncompleteMultipartUpload"]
    return made


class BucketPolicy:
    handled = frozenset(("Bucket", "PolicyDocument"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        bucket, policy = properties["Bucket"], properties["PolicyDocument"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        call.client("s3").put_bucket_policy(Bucket=bucket, Policy=text)
        return Made(bucket)

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        return self.create(call, properties)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("NoSuchBucket", call.client("s3").delete_bucket_policy, Bucket=properties["Bucket"])


class Repository:
    handled = frozenset(
        (
            "EmptyOnDelete",
            "EncryptionConfiguration",
            "ImageScanningConfiguration",
            "ImageTagMutability",
            "LifecyclePolicy",
            "RepositoryName",
            "RepositoryPolicyText",
            "Tags",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("RepositoryName") or call.name(256).lower()
        repository = call.client("ecr").create_repository(
            repositoryName=name,
            tags=call.tag_list(properties),
            imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        )["repository"]
        attributes = {"Arn": repository["repositoryArn"], "RepositoryUri": repository["repositoryUri"]}
        made = Made(name, attributes)
        with completing(made):
            self._policies(call, name, properties)
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        call.client("ecr").put_image_tag_mutability(
            repositoryName=made.physical_id,
            imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        )
        self._policies(call, made.physical_id, properties)
        return made

    def _policies(self, call: Call, name: str, properties: Mapping[str, Any]) -> None:
        ecr, policy = call.client("ecr"), properties.get("RepositoryPolicyText")
        if policy:
            text = policy if isinstance(policy, str) else json.dumps(policy)
            ecr.set_repository_policy(repositoryName=name, policyText=text)
        lifecycle = picked(properties.get("LifecyclePolicy", {}), "LifecyclePolicyText")
        if lifecycle:
            ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=lifecycle["LifecyclePolicyText"])

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring(
            "RepositoryNotFound",
            call.client("ecr").delete_repository,
            repositoryName=made.physical_id,
            force=bool(properties.get("EmptyOnDelete")),
        )
