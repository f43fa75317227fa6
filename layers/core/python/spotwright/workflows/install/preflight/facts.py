"""What AWS and the API server say before a deployment; whatever could not be asked says why."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.aws.instance_types.vcpu_quotas import VcpuQuota

# What cdk.json and the command line may name, for re.fullmatch.
# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
CLUSTER_NAME: Final = r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}"
CLUSTER_NAMES: Final = "an EKS cluster's name: letters, digits, - and _, at most 100, no - or _ first"
# https://docs.aws.amazon.com/IAM/latest/APIReference/API_Role.html
NODE_ROLE: Final = r"(?!arn:|/)([\x21-\x7e]+/)?[\w+=,.@-]{1,64}"
KMS_KEY: Final = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+"
KMS_KEYS: Final = "a KMS key's ARN, not an alias"
NODE_ROLES: Final = "IAM role names, with the path if any (mine, nodes/mine), not ARNs"


class NotAsked(msgspec.Struct, frozen=True):
    """Nothing is known: ``reason`` says why."""

    reason: str


NOT_ASKED = NotAsked("nobody asked")


class Target(msgspec.Struct, frozen=True):
    """What cdk.json says of a cluster. ``cell``: the deployment's; ``node_roles``: names, with their path if any;
    ``vpc_id`` "" = the functions run in no VPC; ``forwarder_image``: "" = cdk deploy builds it;
    ``permissions_boundary``: a policy's ARN or name; ``kms_key_arn``; ``has_topic``: the stack has a topic for alarms;
    ``is_isolated``: the setting ISOLATED_VPC."""

    name: str
    region: str
    cell: str = "main"
    node_roles: tuple[str, ...] = ()
    windows_node_roles: tuple[str, ...] = ()
    forwarder_image: str = ""
    forwarder_architecture: str = ""
    vpc_id: str = ""
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    permissions_boundary: str = ""
    kms_key_arn: str = ""
    has_topic: bool = False
    is_isolated: bool = False
    skipped_checks: tuple[str, ...] = ()


class ClusterDescription(msgspec.Struct, frozen=True):
    """What EKS says of a cluster. ``public_cidrs``: from where its public endpoint may be reached;
    ``security_groups``: those of its private endpoint, EKS's own first."""

    status: str
    version: str
    authentication_mode: str = ""
    has_public_endpoint: bool = True
    has_private_endpoint: bool = False
    public_cidrs: tuple[str, ...] = ()
    vpc_id: str = ""
    subnet_ids: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    is_auto_mode: bool = False


class Role(msgspec.Struct, frozen=True):
    """An IAM role. ``policies``: names of AWS's managed policies; ``has_other_policies``: it has more than those;
    ``created_at``: None = not known; ``path`` as IAM has it, with / at both ends; ``partition``: of its ARN."""

    trusted_services: frozenset[str] = frozenset()
    policies: frozenset[str] = frozenset()
    has_other_policies: bool = False
    created_at: datetime | None = None
    path: str = "/"
    partition: str = "aws"


class Addon(msgspec.Struct, frozen=True):
    """An add-on of EKS; ``status``, ``version`` "" = not asked. ``issues``: what EKS says is wrong, code to message."""

    status: str = ""
    version: str = ""
    issues: Mapping[str, str] = {}


class AccessEntry(msgspec.Struct, frozen=True):
    """What EKS says of an access entry; ``created_at`` None = not known."""

    type: str
    created_at: datetime | None = None


class FunctionEntry(msgspec.Struct, frozen=True):
    """The access entry of a role of the deployed stack. ``needed_group``: by which RBAC knows the role; ``groups``:
    those that EKS says it has, None = there is no such entry any more."""

    principal: str
    needed_group: str
    groups: tuple[str, ...] | None


class KmsKey(msgspec.Struct, frozen=True):
    """A KMS key. ``allowed_services``: whom its policy lets use it, such as events.amazonaws.com, or "*";
    ``denied_services``: whom it denies that; ``is_left_to_iam``: it lets the account's own policies say who may use it;
    ``is_conditional``: it lets everybody, or the account, use it under conditions."""

    state: str = "Enabled"
    allowed_services: frozenset[str] = frozenset()
    denied_services: frozenset[str] = frozenset()
    is_left_to_iam: bool = True
    is_conditional: bool = False


class Subnet(msgspec.Struct, frozen=True):
    """A subnet. ``default_route``: the first part of the id that 0.0.0.0/0 leads to (nat, igw), "" = nowhere;
    ``route_table``: its id."""

    vpc_id: str
    default_route: str = ""
    route_table: str = ""


class Workloads(msgspec.Struct, frozen=True):
    """What runs in a cluster: names of Deployments and DaemonSets of kube-system, and ``NAMESPACE/NAME`` of Deployments
    of Karpenter and of the cluster autoscaler that have replicas; ``cell``: the forwarder's, "" = there is none."""

    system: frozenset[str] = frozenset()
    karpenter: tuple[str, ...] = ()
    autoscaler: tuple[str, ...] = ()
    cell: str = ""


class NodePoolDemand(msgspec.Struct, frozen=True):
    """Which vCPUs a NodePool may ask EC2 for. ``quotas``: those that its types count against; ``vcpus``: as
    spec.limits.cpu says, None = no limit."""

    name: str
    quotas: tuple[VcpuQuota, ...]
    vcpus: int | None = None


class Facts(msgspec.Struct, frozen=True):
    """``cluster`` None = EKS has no such cluster in the region, ``key`` None = KMS has no such key there; of a role
    None = IAM has no such role, of an access entry None = the role has none. ``subnets`` and ``security_groups`` (id to
    VPC) lack what EC2 does not know. ``admitted``: the groups and addresses that the API server's security groups let
    in. ``boundary``: the policy's document, None = IAM has no such policy. ``has_image``: whether the registry has the
    image that cdk.json names. ``function_entries``: () where no stack is deployed. ``image_builder``: what builds
    images on this machine, "" = nothing does; ``image_builder_failure``: why it builds none. ``vcpu_quotas``: by code,
    those that ``nodepools`` need and those of usual types. ``unserved_volume``: a PersistentVolumeClaim of EBS in
    a cluster without EBS's driver, "" = there is none."""

    cluster: ClusterDescription | None | NotAsked = NOT_ASKED
    other_clusters: tuple[str, ...] | NotAsked = NOT_ASKED
    roles: Mapping[str, Role | None | NotAsked] = {}
    entries: Mapping[str, AccessEntry | None | NotAsked] = {}
    function_entries: tuple[FunctionEntry, ...] | NotAsked = ()
    addons: Mapping[str, Addon] | NotAsked = NOT_ASKED
    workloads: Workloads | NotAsked = NOT_ASKED
    unserved_volume: str | NotAsked = NOT_ASKED
    subnets: Mapping[str, Subnet] | NotAsked = NOT_ASKED
    security_groups: Mapping[str, str] | NotAsked = NOT_ASKED
    endpoints: frozenset[str] | NotAsked = NOT_ASKED
    admitted: frozenset[str] | NotAsked = NOT_ASKED
    concurrency: int | NotAsked = NOT_ASKED
    has_spot_role: bool | NotAsked = NOT_ASKED
    nodepools: tuple[NodePoolDemand, ...] | NotAsked = NOT_ASKED
    vcpu_quotas: Mapping[str, int] | NotAsked = NOT_ASKED
    boundary: Mapping[str, Any] | None | NotAsked = NOT_ASKED
    key: KmsKey | None | NotAsked = NOT_ASKED
    has_image: bool | NotAsked = NOT_ASKED
    image_builder: str | NotAsked = NOT_ASKED
    image_builder_failure: str = ""
