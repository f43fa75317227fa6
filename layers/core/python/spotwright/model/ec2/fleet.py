"""What EC2 answers to a launch, what EKS says of a cluster, and the health of offerings."""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.model import labels

# States in which an instance may have lost its tags.
_ENDING: Final = ("shutting-down", "terminated")


class Instance(msgspec.Struct, frozen=True):
    """An instance. ``state``: pending, running, shutting-down, terminated, stopping, stopped.

    ``reservation_id``: the capacity reservation it was launched into; its capacity type is ``reserved`` then.
    ``placement_group_id``: "" = none; ``partition_number``: in a partition placement group, 0 = not known or none.
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

    def may_be_of(self, cluster: str) -> bool:
        """Whether it is tagged for the cluster, by the tag of launches or by the one that older Karpenters set.

        An instance that ends and has no tag may have lost them: those of a terminated one vanish soon.
        Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html
        """
        if not self.tags:
            return self.state in _ENDING
        return labels.cluster_tag(cluster) in self.tags or self.tags.get(labels.CLUSTER_NAME_TAG) == cluster


class FleetError(msgspec.Struct, frozen=True):
    """Why an override of a CreateFleet gave no instance."""

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
    """A launch template in EC2. ``create_time``: aware UTC."""

    id: str
    create_time: datetime


class InstanceProfile(msgspec.Struct, frozen=True):
    """An instance profile in IAM. ``create_date``: aware UTC; ``tags``: {} where it comes from a list."""

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
    is_auto_mode: bool = False

    @property
    def partition(self) -> str:
        """The partition of AWS in the ARN: aws, aws-cn, aws-us-gov, aws-iso …"""
        return self.arn.split(":")[1] if self.arn.count(":") > 1 else "aws"


class LaunchedIntoSubnet(msgspec.Struct, frozen=True, array_like=True):
    """What a launch took of a subnet at ``at_ms``: instances, and the addresses expected for them and their pods."""

    at_ms: int
    instances: int
    addresses: int


class SubnetAddresses(msgspec.Struct, frozen=True):
    """Free addresses of a subnet when EC2 described it, and what launches took about then and since, by launch id."""

    free_addresses: int = msgspec.field(name="free")
    described_at_ms: int = msgspec.field(name="at")
    launches: dict[str, LaunchedIntoSubnet] = {}


class OfferingHealth(msgspec.Struct, frozen=True):
    """What the clusters of an account know of an offering's failures. Times are epoch milliseconds.

    ``unavailable_until_ms``: no launch asks for it until then; ``code``: EC2's error code. ``failures`` and
    ``interruptions``: recent ones, as of ``recorded_at_ms``; time reduces them. ``scope``: the tenancy or placement
    group that the row is about, "" = any. ``version``: optimistic lock, 0 = new.
    ``instance_type`` and ``zone`` may be ``*``. Three kinds of rows are about something else: capacity type ``subnet``
    with the id of a subnet that has few free addresses or none as instance type; instance type ``quota/<family>``
    with the ``cpu_millicores`` from which on EC2 refuses for a vCPU quota; capacity type ``reserved`` with the id of
    a reservation as instance type and its ``reservation_launches``: (time, number of instances launched into it).
    ``interrupted_at_ms`` and ``rebalanced_at_ms``: when EC2 lately interrupted instances of a spot offering, and when
    it recommended to leave it, oldest first; few of each.
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
    subnet: SubnetAddresses | None = None
    interrupted_at_ms: tuple[int, ...] = msgspec.field(default=(), name="interrupted")
    rebalanced_at_ms: tuple[int, ...] = msgspec.field(default=(), name="rebalanced")
    version: int = 0

    @property
    def changed_at_ms(self) -> int:
        """The last change or effect, epoch milliseconds; the row expires some time after it."""
        described = self.subnet.described_at_ms if self.subnet else 0
        launches = (at for at, _ in self.reservation_launches)
        notices = (*self.interrupted_at_ms, *self.rebalanced_at_ms)
        return max(self.unavailable_until_ms, self.recorded_at_ms, described, *launches, *notices)

    @property
    def key(self) -> str:
        """The sort key of the row."""
        named = f"{self.capacity_type}:{self.instance_type}:{self.zone}"
        return f"{named}:{self.scope}" if self.scope else named
