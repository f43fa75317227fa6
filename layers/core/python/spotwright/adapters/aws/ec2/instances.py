"""Instances and launch templates of a cluster in EC2 (Ec2Port).

Source: the EC2 API reference. Only NotFound of a call by id proves that an instance does not exist.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from itertools import batched
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from botocore.exceptions import ClientError

from spotwright.adapters.aws.ec2.codecs.instance import decode_fleet_error, decode_fleet_instances, decode_instance
from spotwright.adapters.aws.ec2.codecs.instance_status import EVENT_CODES, decode_instance_status
from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, Conflict, Denied, NotFound, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetResult, Instance, LaunchTemplate
from spotwright.model.ec2.instance_status import InstanceStatus
from spotwright.workflows.batched_calls import BatchedCalls

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, RequestLaunchTemplateDataTypeDef, TagTypeDef

PAGE_SIZE: Final = 1000
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html: values of a filter, at most.
_FILTER_VALUES: Final = 200
_TROUBLE: Final = {
    "system-status.status": ("impaired",),
    "instance-status.status": ("impaired",),
    "attached-ebs-status.status": ("impaired",),
    "event.code": EVENT_CODES,
}
# EC2 shows a new launch template after a second or two and launches nothing from it before:
# https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
_TEMPLATE_PAUSES_SECONDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5)
_LIVE_STATES: Final = ("pending", "running", "stopping", "stopped", "shutting-down")

# What is answered for each of several instances whose call failed for all of them because of one.
type _AskAlone = Literal["ask alone"]
_ASK_ALONE: Final = "ask alone"


class Ec2:
    """See Ec2Port. ``cluster``: value of the tag that all instances and launch templates of the cluster have.

    ``without_retries``: a client that does not retry, for calls whose rate the account's token buckets limit.
    """

    def __init__(self, client: "EC2Client", *, cluster: str, without_retries: "EC2Client | None" = None) -> None:
        self._client, self._cluster, self._client_without_retries = client, cluster, without_retries or client
        self._together: Final = BatchedCalls(self._read_together)

    def create_fleet(self, request: Mapping[str, Any]) -> FleetResult:
        with translate_errors("CreateFleet"):
            answer = self._client_without_retries.create_fleet(**request)
        asked = str(request["TargetCapacitySpecification"]["DefaultTargetCapacityType"])
        return FleetResult(
            instances=tuple(decode_fleet_instances(answer.get("Instances") or ())),
            errors=tuple(decode_fleet_error(error, asked) for error in answer.get("Errors") or ()),
        )

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
        """A version never changes, so that the version with the digest of the data as description holds the data."""
        return self._version(name, _digest(data))

    def ensure_launch_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[str, str]:
        """Returns when EC2 shows the version, three seconds later at most: then its first launch may be refused."""
        digest = _digest(data)
        if existing := self._version(name, digest):
            return existing
        created = self._create_version(name, digest, data, tags)
        # It is there, whether EC2 answers now or not.
        with suppress(ApiError):
            self._await_version(name, digest)
        return created

    def _await_version(self, name: str, digest: str) -> None:
        for pause_seconds in _TEMPLATE_PAUSES_SECONDS:
            if self._version(name, digest) is not None:
                return
            time.sleep(pause_seconds)

    def _version(self, name: str, digest: str) -> tuple[str, str] | None:
        try:
            with translate_errors(f"DescribeLaunchTemplateVersions {name}"):
                pages = self._client.get_paginator("describe_launch_template_versions").paginate(
                    LaunchTemplateName=name
                )
                versions = [version for page in pages for version in page["LaunchTemplateVersions"]]
        except NotFound:
            return None
        matching = [version for version in versions if version.get("VersionDescription") == digest]
        first = min(matching, key=lambda version: version["VersionNumber"], default=None)
        return (first["LaunchTemplateId"], str(first["VersionNumber"])) if first else None

    def _create_version(
        self, name: str, digest: str, data: Mapping[str, Any], tags: Mapping[str, str]
    ) -> tuple[str, str]:
        content = cast("RequestLaunchTemplateDataTypeDef", data)
        try:
            with translate_errors(f"CreateLaunchTemplate {name}"):
                launch_template = self._client_without_retries.create_launch_template(
                    LaunchTemplateName=name,
                    VersionDescription=digest,
                    LaunchTemplateData=content,
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": _tag_list(tags)}],
                )["LaunchTemplate"]
            return launch_template["LaunchTemplateId"], str(launch_template["LatestVersionNumber"])
        except Conflict:
            # Another process was faster, or the launch template has other data: then it gets another version.
            if (existing := self._version(name, digest)) is not None:
                return existing
        with translate_errors(f"CreateLaunchTemplateVersion {name}"):
            version = self._client.create_launch_template_version(
                LaunchTemplateName=name, VersionDescription=digest, LaunchTemplateData=content
            )["LaunchTemplateVersion"]
        return version["LaunchTemplateId"], str(version["VersionNumber"])

    def launch_templates(self, nodeclass: str = "") -> tuple[LaunchTemplate, ...]:
        """The launch templates of NodePools of this cluster, or of one of its EC2NodeClasses, by id."""
        filters: list[FilterTypeDef] = [self._cluster_filter(), {"Name": "tag-key", "Values": [labels.NODEPOOL]}]
        if nodeclass:
            filters.append({"Name": f"tag:{labels.EC2NODECLASS}", "Values": [nodeclass]})
        with translate_errors("DescribeLaunchTemplates"):
            pages = self._client.get_paginator("describe_launch_templates").paginate(Filters=filters)
            launch_templates = [
                LaunchTemplate(launch_template["LaunchTemplateId"], launch_template["CreateTime"].astimezone(UTC))
                for page in pages
                for launch_template in page["LaunchTemplates"]
            ]
        return tuple(sorted(launch_templates, key=lambda launch_template: launch_template.id))

    def delete_launch_template(self, template_id: str) -> None:
        """Delete; a launch template that does not exist is no error."""
        try:
            with translate_errors(f"DeleteLaunchTemplate {template_id}"):
                self._client.delete_launch_template(LaunchTemplateId=template_id)
        except NotFound:
            return

    def dry_run(self, operation: str, request: Mapping[str, Any]) -> None:
        """EC2 answers a dry run that would succeed with the error DryRunOperation."""
        calls: dict[str, Callable[..., object]] = {
            "CreateFleet": self._client_without_retries.create_fleet,
            "RunInstances": self._client_without_retries.run_instances,
        }
        try:
            with translate_errors(operation):
                calls[operation](**request)
        except ApiError as error:
            if error.code != "DryRunOperation":
                raise

    def instances_of_launch(self, launch: str) -> tuple[Instance, ...]:
        """All instances of a launch that EC2 lists, also terminated ones (see ``state``), by id."""
        return self._instances([self._cluster_filter(), {"Name": f"tag:{labels.LAUNCH_TAG}", "Values": [launch]}])

    def instances_of_cluster(self) -> tuple[Instance, ...]:
        """All instances of NodePools of this cluster that are not terminated, by id."""
        return self._instances(
            [
                self._cluster_filter(),
                {"Name": "tag-key", "Values": [labels.NODEPOOL]},
                {"Name": "instance-state-name", "Values": list(_LIVE_STATES)},
            ]
        )

    def instances_by_id(self, instance_ids: Collection[str]) -> tuple[Instance, ...]:
        """By filter: a list by ids fails when EC2 does not know one of them."""
        return tuple(
            instance
            for ids in batched(sorted(instance_ids), _FILTER_VALUES, strict=False)
            for instance in self._instances([{"Name": "instance-id", "Values": list(ids)}])
        )

    def _instances(self, filters: "list[FilterTypeDef]") -> tuple[Instance, ...]:
        with translate_errors("DescribeInstances"):
            pages = self._client.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
            )
            instances = [
                decode_instance(instance)
                for page in pages
                for group in page["Reservations"]
                for instance in group["Instances"]
            ]
        return tuple(sorted(instances, key=lambda instance: instance.id))

    def instance(self, instance_id: str) -> Instance | None:
        """Instances that threads ask for at the same moment are read by one call. An id that EC2 does not know, or that
        is of a zone in trouble, fails it for all ids: then each thread asks for its own, side by side.
        """
        answer = self._together(instance_id)
        return self._read_alone(instance_id) if isinstance(answer, str) else answer

    def _read_together(self, instance_ids: Sequence[str]) -> dict[str, Instance | None | _AskAlone | Exception]:
        if len(instance_ids) == 1:
            return {instance_ids[0]: self._read_alone(instance_ids[0])}
        try:
            found = self._described(instance_ids)
        except ApiError as failure:
            if isinstance(failure, Throttled | Denied) or not _is_answer(failure):
                raise
            return dict.fromkeys(instance_ids, _ASK_ALONE)
        return {id: found.get(id, _empty_answer(id)) for id in instance_ids}

    def _read_alone(self, instance_id: str) -> Instance | None:
        """None = EC2 says NotFound."""
        try:
            found = self._described((instance_id,))
        except NotFound:
            return None
        if instance_id not in found:
            raise _empty_answer(instance_id)
        return found[instance_id]

    def _described(self, instance_ids: Sequence[str]) -> dict[str, Instance]:
        with translate_errors(f"DescribeInstances {', '.join(instance_ids)}"):
            answer = self._client.describe_instances(InstanceIds=list(instance_ids))
        instances = [decode_instance(instance) for group in answer["Reservations"] for instance in group["Instances"]]
        return {instance.id: instance for instance in instances}

    def unhealthy_instances(self) -> tuple[InstanceStatus, ...]:
        """Filters of different names are ANDed, so that each kind of trouble is a call."""
        found: dict[str, InstanceStatus] = {}
        for name, values in _TROUBLE.items():
            with translate_errors("DescribeInstanceStatus"):
                pages = self._client.get_paginator("describe_instance_status").paginate(
                    Filters=[{"Name": name, "Values": list(values)}], PaginationConfig={"PageSize": PAGE_SIZE}
                )
                for page in pages:
                    for status in page["InstanceStatuses"]:
                        found[status["InstanceId"]] = decode_instance_status(status)
        return tuple(found[id] for id in sorted(found) if found[id].impairments or found[id].events)

    def terminate(self, instance_ids: Sequence[str]) -> frozenset[str]:
        with translate_errors("TerminateInstances"):
            answer = self._client_without_retries.terminate_instances(InstanceIds=list(instance_ids))
        changes = answer["TerminatingInstances"]
        return frozenset(change["InstanceId"] for change in changes if change["CurrentState"]["Name"] == "terminated")

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        with translate_errors(f"CreateTags {instance_id}"):
            self._client_without_retries.create_tags(Resources=[instance_id], Tags=_tag_list(tags))

    def _cluster_filter(self) -> "FilterTypeDef":
        return {"Name": f"tag:{labels.CLUSTER_NAME_TAG}", "Values": [self._cluster]}


def _is_answer(failure: ApiError) -> bool:
    """Whether EC2 itself refused the call, and not the way to it."""
    return isinstance(failure.__cause__, ClientError)


def _empty_answer(instance_id: str) -> Unavailable:
    return Unavailable(f"DescribeInstances {instance_id}: an empty answer, which says nothing")


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()


def _tag_list(tags: Mapping[str, str]) -> "list[TagTypeDef]":
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
