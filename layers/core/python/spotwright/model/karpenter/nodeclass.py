"""An EC2NodeClass (karpenter.k8s.aws/v1): how an instance is made."""

from datetime import datetime

import msgspec

from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement


class SelectorTerm(msgspec.Struct, frozen=True):
    """One OR-term of a subnet, security group or AMI selector; its fields are AND-ed, "" = not given."""

    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""
    owner: str = ""
    alias: str = ""
    ssm_parameter: str = ""


class CapacityReservationSelectorTerm(msgspec.Struct, frozen=True):
    """One OR-term of the capacity reservation selector; its fields are AND-ed, "" = not given."""

    tags: dict[str, str] = {}
    id: str = ""
    owner_id: str = ""
    instance_match_criteria: str = ""


class PlacementGroupSelector(msgspec.Struct, frozen=True):
    """A placement group by name or by id; the other is ""."""

    name: str = ""
    id: str = ""


class BlockDeviceMapping(msgspec.Struct, frozen=True):
    """A volume. ``volume_size`` as written (it is hashed so), e.g. ``100Gi``; None = left to EC2."""

    device_name: str = ""
    root_volume: bool = False
    volume_size: str = ""
    volume_type: str = ""
    iops: int | None = None
    throughput: int | None = None
    encrypted: bool | None = None
    delete_on_termination: bool | None = None
    kms_key_id: str = ""
    snapshot_id: str = ""
    volume_initialization_rate: int | None = None


class MetadataOptions(msgspec.Struct, frozen=True):
    http_endpoint: str = "enabled"
    http_protocol_ipv6: str = "disabled"
    http_put_response_hop_limit: int = 1
    http_tokens: str = "required"


class NetworkInterface(msgspec.Struct, frozen=True):
    """An interface to attach. ``interface_type``: interface | efa-only."""

    network_card_index: int
    device_index: int
    interface_type: str = "interface"


class ConnectionTracking(msgspec.Struct, frozen=True):
    """Idle timeouts of tracked connections in seconds; None = EC2's default."""

    tcp_established_timeout: int | None = None
    udp_stream_timeout: int | None = None
    udp_timeout: int | None = None


class CPUOptions(msgspec.Struct, frozen=True):
    """``nested_virtualization``: enabled | disabled; "" = not stated."""

    nested_virtualization: str = ""


class Subnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str = ""
    available_ip_address_count: int = msgspec.field(default=0, name="free_addresses")


class SecurityGroup(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class AMI(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    deprecated: bool = False
    requirements: tuple[NodeSelectorRequirement, ...] = ()


class CapacityReservation(msgspec.Struct, frozen=True):
    """Capacity that is paid for: an On-Demand Capacity Reservation or a Capacity Block.

    ``reservation_type``: default | capacity-block. ``state``: active | expiring. ``end_time`` None = until somebody
    ends it.
    ``available_instance_count``: instances that can still be started, as EC2 said when the class was last resolved; it
    is no part of the status, so 0 in a class that was only read.
    """

    id: str
    instance_type: str
    zone: str
    owner_id: str = ""
    instance_match_criteria: str = "targeted"
    reservation_type: str = "default"
    interruptible: bool = False
    state: str = "active"
    end_time: datetime | None = msgspec.field(default=None, name="end")
    available_instance_count: int = msgspec.field(default=0, name="available")


class PlacementGroup(msgspec.Struct, frozen=True):
    """The group that nodes start in. ``strategy``: cluster | partition | spread; ``partition_count`` 0 but for
    partition.
    """

    id: str
    name: str
    strategy: str
    partition_count: int = msgspec.field(default=0, name="partitions")

    @property
    def partition_names(self) -> tuple[str, ...]:
        """Partitions as labels name them, from 1; empty where the group has none."""
        return tuple(str(number) for number in range(1, self.partition_count + 1))


class EC2NodeClass(msgspec.Struct, frozen=True):
    """An EC2NodeClass: spec as the user wrote it (defaults applied), and the status that was resolved for it.

    ``kubelet``: the raw KubeletConfiguration. ``explicitly_empty``: hashed fields written out with an empty value,
    which is another hash than leaving them out. ``problems``: fields that are set but not handled, each with a
    sentence.
    """

    metadata: ObjectMeta
    subnet_selector_terms: tuple[SelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SelectorTerm, ...] = ()
    ami_selector_terms: tuple[SelectorTerm, ...] = ()
    ami_family: str = ""
    role: str = ""
    instance_profile: str = ""
    user_data: str = ""
    tags: dict[str, str] = {}
    kubelet: dict[str, object] = {}
    block_device_mappings: tuple[BlockDeviceMapping, ...] = msgspec.field(default=(), name="block_devices")
    metadata_options: MetadataOptions = MetadataOptions()
    detailed_monitoring: bool | None = None
    associate_public_ip_address: bool | None = None
    instance_store_policy: str = ""
    context: str = ""
    capacity_reservation_selector_terms: tuple[CapacityReservationSelectorTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    network_interfaces: tuple[NetworkInterface, ...] = ()
    ip_prefix_count: int | None = None
    connection_tracking: ConnectionTracking | None = None
    cpu_options: CPUOptions | None = None
    explicitly_empty: frozenset[str] = msgspec.field(default=frozenset(), name="stated_empty")
    problems: tuple[str, ...] = ()
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    amis: tuple[AMI, ...] = ()
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    placement_group: PlacementGroup | None = None
    resolved_instance_profile: str = msgspec.field(default="", name="resolved_profile")
    conditions: tuple[Condition, ...] = ()
    read_error: str = msgspec.field(default="", name="unreadable")

    @property
    def name(self) -> str:
        return self.metadata.name
