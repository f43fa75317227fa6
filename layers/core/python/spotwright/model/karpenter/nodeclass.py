"""An EC2NodeClass (karpenter.k8s.aws/v1): how an instance is launched."""

from datetime import datetime

import msgspec

from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement


class SelectorTerm(msgspec.Struct, frozen=True):
    """A term of a subnet, security group or AMI selector: terms are ORed, the fields of a term ANDed; "" = unset."""

    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""
    owner: str = ""
    alias: str = ""
    ssm_parameter: str = ""


class CapacityReservationSelectorTerm(msgspec.Struct, frozen=True):
    """A term of the capacity reservation selector: terms are ORed, the fields of a term ANDed; "" = unset."""

    tags: dict[str, str] = {}
    id: str = ""
    owner_id: str = ""
    instance_match_criteria: str = ""


class PlacementGroupSelector(msgspec.Struct, frozen=True):
    """A placement group by name or by id; the other field is ""."""

    name: str = ""
    id: str = ""


class BlockDeviceMapping(msgspec.Struct, frozen=True):
    """A volume. ``volume_size``: as the manifest states it, for the hash, e.g. ``100Gi``; None = EC2 decides."""

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

    ``reservation_type``: default | capacity-block. ``state``: active | expiring. ``end_time`` None = without end.
    ``available_instance_count``: how many instances can still start, according to EC2 when the class was resolved; the
    status does not hold it, so that it is 0 in a class that was read from the API server.
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
        """Names of the partitions in labels, from 1; () = the group has no partitions."""
        return tuple(str(number) for number in range(1, self.partition_count + 1))


class EC2NodeClass(msgspec.Struct, frozen=True):
    """An EC2NodeClass: spec with defaults, and status.

    ``kubelet``: the raw KubeletConfiguration. ``explicitly_empty``: hashed fields that the manifest states as empty,
    which the hash distinguishes from absent ones. ``problems``: a sentence for each field that is not handled.
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
