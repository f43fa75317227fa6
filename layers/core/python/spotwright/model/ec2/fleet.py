"""What EC2 answers to a launch, what EKS says of a cluster, and which offerings are known to be empty."""

from datetime import datetime

import msgspec


class Instance(msgspec.Struct, frozen=True):
    """An instance that EC2 says it has. ``state``: pending, running, shutting-down, terminated, stopping, stopped.

    ``reservation_id``: the capacity reservation it runs in because it was launched into it; its capacity type is
    ``reserved`` then. ``placement_group_id``: id of the group it is in, "" = none; ``partition_number``: its number in
    a partition group, 0 = not known, or another kind of group.
    """

    id: str
    instance_type: str
    zone: str
    capacity_type: str
    state: str
    image_id: str = ""
    subnet_id: str = ""
    private_dns_name: str = ""
    launch_time: datetime | None = None
    tags: dict[str, str] = {}
    security_groups: tuple[str, ...] = ()
    reservation_id: str = ""
    placement_group_id: str = ""
    partition_number: int = 0


class FleetError(msgspec.Struct, frozen=True):
    """Why one pool of a CreateFleet gave nothing."""

    code: str
    message: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    subnet_id: str = ""
    reservation_id: str = ""


class FleetResult(msgspec.Struct, frozen=True):
    """An instant fleet's answer: instances and errors can come together."""

    instances: tuple[Instance, ...] = ()
    errors: tuple[FleetError, ...] = ()


class LaunchTemplate(msgspec.Struct, frozen=True):
    """A launch template that EC2 has. ``create_time``: aware UTC."""

    id: str
    create_time: datetime


class InstanceProfile(msgspec.Struct, frozen=True):
    """An instance profile that IAM has. ``create_date``: aware UTC; ``tags`` only where it was read on its own."""

    name: str
    path: str
    create_date: datetime
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
    """What the clusters of an account know of an offering that failed them. Times are epoch milliseconds.

    ``unavailable_until_ms``: it is left alone until then; ``code``: EC2's word for why. ``failures`` and
    ``interruptions``: how often in a row lately, as of ``recorded_at_ms``; they fade. ``scope``: the tenancy or
    placement group it is true for, "" = any.
    ``instance_type`` and ``zone`` may be ``*``. Three words take other places: capacity type ``subnet`` with a subnet's
    id for the instance type (no free addresses); instance type ``quota/<family>`` with the ``cpu_millicores`` from
    which on EC2 refused (a quota of vCPUs); capacity type ``reserved`` with a reservation's id, whose
    ``reservation_launches`` lists (when, how many instances) were launched into it. ``version``: optimistic lock, 0 =
    new.
    """

    capacity_type: str
    instance_type: str
    zone: str
    unavailable_until_ms: int = msgspec.field(name="until")
    code: str
    scope: str = ""
    failures: int = 0
    interruptions: int = 0
    recorded_at_ms: int = msgspec.field(default=0, name="at")
    cpu_millicores: int = 0
    reservation_launches: tuple[tuple[int, int], ...] = msgspec.field(default=(), name="taken")
    version: int = 0

    @property
    def key(self) -> str:
        """What the row is found by."""
        named = f"{self.capacity_type}:{self.instance_type}:{self.zone}"
        return f"{named}:{self.scope}" if self.scope else named
