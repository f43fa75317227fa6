"""What the boot agent knows: instances from the control API of the local AWS, the rest by its AWS APIs."""

import base64
import datetime as dt
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import boto3
import urllib3
from botocore.config import Config

from local.boot.capacity import InstanceType, read_instance_type
from local.boot.join_check import Cluster, Instance

# Subnets, images and types do not change; access entries are asked for again after this long.
ENTRIES_SECONDS = 2.0
CONFIG = Config(connect_timeout=10, read_timeout=60, retries={"max_attempts": 4, "mode": "standard"})


class AwsUnavailable(Exception):
    """The local AWS did not answer."""


class AwsReader:
    """Reads with caching; credentials and region come from the environment."""

    def __init__(self, aws_endpoint: str, cluster: str, region: str) -> None:
        session = boto3.Session(region_name=region)
        self._ec2: Any = session.client("ec2", endpoint_url=aws_endpoint, config=CONFIG)
        self._eks: Any = session.client("eks", endpoint_url=aws_endpoint, config=CONFIG)
        self._pool = urllib3.PoolManager(timeout=60.0, retries=urllib3.Retry(2, backoff_factor=0.2))
        self._endpoint = aws_endpoint
        self._cluster = cluster
        self._region = region
        self._cache: dict[str, tuple[float, Any]] = {}
        self._instances: dict[str, Instance] = {}
        self._change = 0
        self._asking = threading.RLock()

    def instances(self) -> list[Instance]:
        """Every instance, also those that have ended. Asks for those whose state changed since the last answer.

        Raises AwsUnavailable.
        """
        try:
            response = self._pool.request("GET", f"{self._endpoint}/_local/instances?since={self._change}")
        except urllib3.exceptions.HTTPError as error:
            raise AwsUnavailable(str(error)) from error
        if response.status != 200:
            raise AwsUnavailable(f"{response.status}: {response.data[:300]!r}")
        answer = json.loads(response.data)
        self._instances |= {entry["id"]: self._instance(entry) for entry in answer["instances"]}
        self._change = answer["next"]
        return list(self._instances.values())

    def cluster(self) -> Cluster:
        """The cluster, as EKS describes it."""
        return self._remembered("cluster", None, self._describe_cluster)

    def instance_type(self, name: str) -> InstanceType:
        """Figures of an instance type."""
        return self._remembered(name, None, lambda: self._describe_type(name))

    def access_entries(self) -> dict[str, str]:
        """Role name to the type of its access entry."""
        return self._remembered("entries", ENTRIES_SECONDS, self._describe_entries)

    def _instance(self, entry: dict[str, Any]) -> Instance:
        subnet = self._remembered(entry["subnetId"], None, lambda: self._describe_subnet(entry["subnetId"]))
        image = self._remembered(entry["imageId"], None, lambda: self._describe_image(entry["imageId"]))
        return Instance(
            id=entry["id"],
            state=entry["state"],
            launch_time=dt.datetime.fromisoformat(entry["launchTime"]).timestamp(),
            type=entry["instanceType"],
            zone=entry["zone"],
            zone_id=subnet["AvailabilityZoneId"],
            region=self._region,
            private_ip=entry["privateIp"],
            private_dns_name=entry["privateDnsName"],
            user_data=entry.get("userData") or "",
            role_name=(entry.get("role") or "").rpartition("/")[2],
            image_architecture=image["Architecture"],
            vpc_id=subnet["VpcId"],
            volume_gib=_root_volume(entry.get("blockDevices") or [], _storage_device(image)),
            ami_family=_system(str(image.get("Name") or "")),
        )

    def _describe_cluster(self) -> Cluster:
        found = self._eks.describe_cluster(name=self._cluster)["cluster"]
        return Cluster(
            name=found["name"],
            endpoint=found["endpoint"],
            certificate_authority=base64.b64decode(found["certificateAuthority"]["data"]),
            service_cidr=found["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
            vpc_id=found["resourcesVpcConfig"]["vpcId"],
        )

    def _describe_entries(self) -> dict[str, str]:
        pages = self._eks.get_paginator("list_access_entries").paginate(clusterName=self._cluster)
        arns = [arn for page in pages for arn in page["accessEntries"]]
        return {arn.rpartition("/")[2]: self._entry_type(arn) for arn in arns}

    def _entry_type(self, arn: str) -> str:
        entry = self._eks.describe_access_entry(clusterName=self._cluster, principalArn=arn)["accessEntry"]
        return str(entry["type"])

    def _describe_type(self, instance_type: str) -> InstanceType:
        return read_instance_type(self._ec2.describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"][0])

    def _describe_subnet(self, subnet: str) -> dict[str, Any]:
        return dict(self._ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0])

    def _describe_image(self, image: str) -> dict[str, Any]:
        return dict(self._ec2.describe_images(ImageIds=[image], IncludeDeprecated=True)["Images"][0])

    def _remembered[T](self, key: str, seconds: float | None, ask: Callable[[], T]) -> T:
        """`seconds` None: for good. Threads that ask for the same wait for the answer to the first."""
        with self._asking:
            asked, _ = self._cache.get(key, (0.0, None))
            now = time.monotonic()
            if key not in self._cache or (seconds is not None and now - asked > seconds):
                self._cache[key] = (now, ask())
            found: T = self._cache[key][1]
        return found


def _system(name: str) -> str:
    """The family of an image by its name; one that nobody knows boots like AL2023."""
    if name.startswith("bottlerocket-"):
        return "Bottlerocket"
    if name.startswith("Windows_Server-"):
        return "Windows" + name.removeprefix("Windows_Server-")[:4]
    return "AL2" if name.startswith("amazon-eks-") and "al2023" not in name else "AL2023"


def _storage_device(image: dict[str, Any]) -> str | None:
    """The device that pods write to: Bottlerocket keeps its own files on the root volume, pods' on the second."""
    second = _system(str(image.get("Name") or "")) == "Bottlerocket"
    return "/dev/xvdb" if second else image.get("RootDeviceName")


def _root_volume(devices: list[dict[str, Any]], root: str | None) -> int:
    """Size of the root volume in GiB, 0 when the launch did not name one."""
    for device in devices:
        if device.get("DeviceName", device.get("deviceName")) == root:
            ebs = device.get("Ebs") or device.get("ebs") or {}
            return int(ebs.get("VolumeSize") or ebs.get("volumeSize") or 0)
    return 0
