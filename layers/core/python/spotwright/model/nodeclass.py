"""An EC2NodeClass (karpenter.k8s.aws/v1): how an instance is made."""

import msgspec

from spotwright.model.objects import Condition, Metadata
from spotwright.model.requirements import Selector


class SelectorTerm(msgspec.Struct, frozen=True):
    """One OR-term of a subnet, security group or AMI selector; its fields are AND-ed, "" = not given."""

    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""
    owner: str = ""
    alias: str = ""
    ssm_parameter: str = ""


class BlockDevice(msgspec.Struct, frozen=True):
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


class Subnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str = ""
    free_addresses: int = 0


class SecurityGroup(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class Ami(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    deprecated: bool = False
    requirements: tuple[Selector, ...] = ()


class EC2NodeClass(msgspec.Struct, frozen=True):
    """An EC2NodeClass: spec as the user wrote it (defaults applied), and the status that was resolved for it.

    ``kubelet``: the raw KubeletConfiguration. ``problems``: fields that are set but not handled, each with a sentence.
    """

    metadata: Metadata
    subnet_selector_terms: tuple[SelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SelectorTerm, ...] = ()
    ami_selector_terms: tuple[SelectorTerm, ...] = ()
    ami_family: str = ""
    role: str = ""
    instance_profile: str = ""
    user_data: str = ""
    tags: dict[str, str] = {}
    kubelet: dict[str, object] = {}
    block_devices: tuple[BlockDevice, ...] = ()
    metadata_options: MetadataOptions = MetadataOptions()
    detailed_monitoring: bool | None = None
    associate_public_ip_address: bool | None = None
    instance_store_policy: str = ""
    context: str = ""
    problems: tuple[str, ...] = ()
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    amis: tuple[Ami, ...] = ()
    resolved_profile: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        return self.metadata.name
