"""Label, annotation, taint and tag keys, spelled once.

Source: Kubernetes "Well-Known Labels, Annotations and Taints"; Karpenter v1.14 ``pkg/apis/v1/labels.go`` and
the AWS provider's ``labels.go``.
"""

from typing import Final

ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
HOSTNAME: Final = "kubernetes.io/hostname"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
ZONE_ID: Final = "topology.k8s.aws/zone-id"
WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"

CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
NODEPOOL: Final = "karpenter.sh/nodepool"
REGISTERED: Final = "karpenter.sh/registered"
INITIALIZED: Final = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS: Final = "karpenter.sh/do-not-sync-taints"
NODECLAIM: Final = "karpenter.sh/nodeclaim"
EC2NODECLASS: Final = "karpenter.k8s.aws/ec2nodeclass"
EXCLUDE_FROM_LOAD_BALANCERS: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
RESERVED: Final = "reserved"
# Of a launched NodeClaim, so that it can be selected by its instance.
INSTANCE_ID: Final = "spotwright.dev/instance-id"
RESERVATION_ID: Final = "karpenter.k8s.aws/capacity-reservation-id"
PLACEMENT_GROUP_ID: Final = "karpenter.k8s.aws/placement-group-id"
PLACEMENT_GROUP_PARTITION: Final = "karpenter.k8s.aws/placement-group-partition"
TENANCY: Final = "karpenter.k8s.aws/instance-tenancy"
# Values of TENANCY; a launch uses the first that is allowed, since dedicated hardware costs more.
TENANCIES: Final = ("default", "dedicated")
RESERVATION_TYPE: Final = "karpenter.k8s.aws/capacity-reservation-type"
RESERVATION_INTERRUPTIBLE: Final = "karpenter.k8s.aws/capacity-reservation-interruptible"
# Labels that only a node in a capacity reservation has.
RESERVATION_LABELS: Final = (RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE)
# A value of RESERVATION_TYPE; EC2 uses the same word for a market type and an instance's lifecycle.
CAPACITY_BLOCK: Final = "capacity-block"

# Annotations
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
NODEPOOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP: Final = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED: Final = "karpenter.sh/nodeclaim-min-values-relaxed"
EC2NODECLASS_HASH: Final = "karpenter.k8s.aws/ec2nodeclass-hash"
EC2NODECLASS_HASH_VERSION: Final = "karpenter.k8s.aws/ec2nodeclass-hash-version"
INSTANCE_PROFILE_NAME: Final = "karpenter.k8s.aws/instance-profile-name"
INSTANCE_PROFILE_SINCE: Final = "spotwright.dev/instance-profile-since"
# The result of the last dry run of a class, by a digest of its content, and until when it holds:
# ``<digest>@<ISO 8601 time>``.
LAUNCH_TRIED: Final = "spotwright.dev/launch-tried"
INSTANCE_TAGGED: Final = "karpenter.k8s.aws/tagged"
CLUSTER_NAME_TAGGED: Final = "compatibility.karpenter.k8s.aws/cluster-name-tagged"
DEFAULT_STORAGE_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED: Final = "karpenter.sh/capacity-overlay-applied"
FOLLOW: Final = "spotwright.dev/follow"
# Of a NodePool: what becomes of nodes whose spot instances EC2 recommends to leave; see ``RebalancePolicy``.
REBALANCE_RECOMMENDATION: Final = "spotwright.dev/rebalance-recommendation"
# Of a NodePool: whether a canary goes before all other drifted nodes; see disruption.rollouts.
DRIFT_ROLLOUT: Final = "spotwright.dev/drift-rollout"
DECISION: Final = "spotwright.dev/decision"
LAUNCH: Final = "spotwright.dev/launch"
INSTANCE_NOT_FOUND: Final = "spotwright.dev/instance-not-found"
PODS_SEEN: Final = "spotwright.dev/pods-seen"
# Of a NodeClaim whose Node is unhealthy: ``<condition>=<status>/<since>/<time of the last look at it>``.
SEEN_UNHEALTHY: Final = "spotwright.dev/seen-unhealthy"
# Of a launched NodeClaim: the name that its Node is expected to join with, which is the instance's private DNS name.
EXPECTED_NODE: Final = "spotwright.dev/expected-node"
# Of a NodeClaim: ids of the commands that wait until it is Initialized, separated by commas.
COMMANDS: Final = "spotwright.dev/commands"
# Of a NodeClaim: names of further Nodes that have its provider id, separated by commas.
OTHER_NODES: Final = "spotwright.dev/other-nodes"
# Of a NodeClaim that is drained: names of the VolumeAttachments of its node, separated by commas.
VOLUME_ATTACHMENTS: Final = "spotwright.dev/volume-attachments"
# Taint of a registered node whose pods are not nominated yet.
HELD: Final = "spotwright.dev/held"

FINALIZER: Final = "karpenter.sh/termination"
EC2NODECLASS_FINALIZER: Final = "karpenter.k8s.aws/termination"

# Taints
DISRUPTED: Final = "karpenter.sh/disrupted"
UNREGISTERED: Final = "karpenter.sh/unregistered"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
READINESS_PREFIX: Final = "readiness.k8s.io/"

# EC2 tags
CLUSTER_NAME_TAG: Final = "eks:eks-cluster-name"
LAUNCH_TAG: Final = "spotwright.dev/launch"
ORPHAN_TAG: Final = "spotwright.dev/orphan"


def cluster_tag(cluster: str) -> str:
    """The tag key that says which cluster owns an AWS resource; its value is ``owned``."""
    return f"kubernetes.io/cluster/{cluster}"


INSTANCE_PREFIX: Final = "karpenter.k8s.aws/instance-"

# Labels that the provider sets on every node: pods may select by them though no NodePool declares them.
WELL_KNOWN: Final = frozenset(
    {
        NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD, ZONE_ID,
        "karpenter.k8s.aws/capacity-reservation-id",
        "karpenter.k8s.aws/capacity-reservation-type",
        "karpenter.k8s.aws/capacity-reservation-interruptible",
        "karpenter.k8s.aws/nitro-sandbox",
        "karpenter.k8s.aws/placement-group-id",
        "karpenter.k8s.aws/placement-group-partition",
    }
    | {
        INSTANCE_PREFIX + name
        for name in (
            "hypervisor", "encryption-in-transit-supported", "category", "capability-flex", "family",
            "generation", "size", "local-nvme", "cpu", "cpu-manufacturer",
            "cpu-sustained-clock-speed-mhz", "memory", "ebs-bandwidth", "network-bandwidth", "gpu-name",
            "gpu-manufacturer", "gpu-count", "gpu-memory", "accelerator-name",
            "accelerator-manufacturer", "accelerator-count", "tenancy",
        )
    }
)  # fmt: skip

RESTRICTED_DOMAINS: Final = ("karpenter.sh", "karpenter.k8s.aws")

# Deprecated spellings that Kubernetes and the EBS driver still write.
NORMALIZED: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "topology.ebs.csi.aws.com/zone": ZONE,
}


def normalize(key: str) -> str:
    """The stable key for a deprecated one; any other key unchanged."""
    return NORMALIZED.get(key, key)


def is_restricted(key: str) -> bool:
    """Whether NodePools may not state this label: only Spotwright or the provider sets it."""
    if key in WELL_KNOWN:
        return False
    if key == HOSTNAME:
        return True
    domain = key.partition("/")[0] if "/" in key else ""
    return any(
        domain == restricted_domain or domain.endswith("." + restricted_domain)
        for restricted_domain in RESTRICTED_DOMAINS
    )
