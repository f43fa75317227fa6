"""What EC2 answers to a launch, what EKS says of a cluster, and which offerings are known to be empty."""

from datetime import datetime

import msgspec


class FleetInstance(msgspec.Struct, frozen=True):
    """An instance that EC2 says it has. ``state``: pending, running, shutting-down, terminated, stopping, stopped."""

    id: str
    instance_type: str
    zone: str
    capacity_type: str
    state: str
    image_id: str = ""
    subnet_id: str = ""
    private_dns_name: str = ""
    launched: datetime | None = None
    tags: dict[str, str] = {}
    security_groups: tuple[str, ...] = ()


class FleetError(msgspec.Struct, frozen=True):
    """Why one pool of a CreateFleet gave nothing."""

    code: str
    message: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    subnet_id: str = ""


class FleetResult(msgspec.Struct, frozen=True):
    """An instant fleet's answer: instances and errors can come together."""

    instances: tuple[FleetInstance, ...] = ()
    errors: tuple[FleetError, ...] = ()


class LaunchTemplate(msgspec.Struct, frozen=True):
    """A launch template that EC2 has. ``created``: aware UTC."""

    id: str
    created: datetime


class InstanceProfile(msgspec.Struct, frozen=True):
    """An instance profile that IAM has. ``created``: aware UTC; ``tags`` only where it was read on its own."""

    name: str
    path: str
    created: datetime
    tags: dict[str, str] = {}


class ClusterFacts(msgspec.Struct, frozen=True):
    """What eks:DescribeCluster says. ``certificate_authority`` is base64 as EKS gives it."""

    name: str
    endpoint: str
    certificate_authority: str
    version: str
    service_cidr: str
    vpc_id: str
    cluster_security_group: str = ""
    arn: str = ""
    dns_ip: str = ""


class OfferingHealth(msgspec.Struct, frozen=True):
    """An offering that had no capacity. ``until``: epoch milliseconds.

    ``instance_type`` and ``zone`` may be ``*``. A subnet without free addresses is written with the capacity type
    ``subnet``, its id in the place of the instance type, and its zone.
    """

    capacity_type: str
    instance_type: str
    zone: str
    until: int
    code: str
