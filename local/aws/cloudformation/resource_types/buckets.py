"""AWS::S3 and AWS::ECR: buckets, bucket policies, repositories."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ignore_error, partial_creation, pick


class Bucket:
    """A bucket that still holds objects cannot be deleted, as on AWS."""

    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        s3, region = request.client("s3"), request.emulator.region
        name = properties.get("BucketName") or request.physical_name(63).lower()
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})
        resource = PhysicalResource(
            name,
            {
                "Arn": f"arn:aws:s3:::{name}",
                "DomainName": f"{name}.s3.amazonaws.com",
                "RegionalDomainName": f"{name}.s3.{region}.amazonaws.com",
            },
        )
        with partial_creation(resource):
            self._configure(request, name, properties, {})
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        self._configure(request, resource.physical_id, properties, before)
        return resource

    def _configure(
        self, request: HandlerRequest, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Every setting has a call of its own; one that is gone goes back to the default."""
        s3 = request.client("s3")
        s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration=_encryption(properties))
        tags = request.tag_list(properties)
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

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("NoSuchBucket", request.client("s3").delete_bucket, Bucket=resource.physical_id)


def _encryption(properties: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation's rules in the API's shape; S3's own key without any."""
    default = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    given = properties.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", [default])
    return {
        "Rules": [
            {"ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"]}
            | pick(rule, "BucketKeyEnabled")
            for rule in given
        ]
    }


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation's shape of a rule in the API's."""
    lifecycle = {"ID": rule["Id"]} if "Id" in rule else {}
    lifecycle |= {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "ExpirationInDays" in rule:
        lifecycle["Expiration"] = {"Days": rule["ExpirationInDays"]}
    elif rule.get("ExpiredObjectDeleteMarker"):
        lifecycle["Expiration"] = {"ExpiredObjectDeleteMarker": True}
    if "NoncurrentVersionExpiration" in rule:
        lifecycle["NoncurrentVersionExpiration"] = rule["NoncurrentVersionExpiration"]
    elif "NoncurrentVersionExpirationInDays" in rule:
        lifecycle["NoncurrentVersionExpiration"] = {"NoncurrentDays": rule["NoncurrentVersionExpirationInDays"]}
    if "AbortIncompleteMultipartUpload" in rule:
        lifecycle["AbortIncompleteMultipartUpload"] = rule["AbortIncompleteMultipartUpload"]
    return lifecycle


class BucketPolicy:
    supported_properties = frozenset(("Bucket", "PolicyDocument"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        bucket, policy = properties["Bucket"], properties["PolicyDocument"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        request.client("s3").put_bucket_policy(Bucket=bucket, Policy=text)
        return PhysicalResource(bucket)

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        return self.create(request, properties)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("NoSuchBucket", request.client("s3").delete_bucket_policy, Bucket=properties["Bucket"])


class Repository:
    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("RepositoryName") or request.physical_name(256).lower()
        repository = request.client("ecr").create_repository(
            repositoryName=name,
            tags=request.tag_list(properties),
            imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        )["repository"]
        attributes = {"Arn": repository["repositoryArn"], "RepositoryUri": repository["repositoryUri"]}
        resource = PhysicalResource(name, attributes)
        with partial_creation(resource):
            self._policies(request, name, properties)
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        request.client("ecr").put_image_tag_mutability(
            repositoryName=resource.physical_id,
            imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        )
        self._policies(request, resource.physical_id, properties)
        return resource

    def _policies(self, request: HandlerRequest, name: str, properties: Mapping[str, Any]) -> None:
        ecr, policy = request.client("ecr"), properties.get("RepositoryPolicyText")
        if policy:
            text = policy if isinstance(policy, str) else json.dumps(policy)
            ecr.set_repository_policy(repositoryName=name, policyText=text)
        lifecycle = pick(properties.get("LifecyclePolicy", {}), "LifecyclePolicyText")
        if lifecycle:
            ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=lifecycle["LifecyclePolicyText"])

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "RepositoryNotFound",
            request.client("ecr").delete_repository,
            repositoryName=resource.physical_id,
            force=bool(properties.get("EmptyOnDelete")),
        )
