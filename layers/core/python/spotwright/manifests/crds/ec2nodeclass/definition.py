"""karpenter.k8s.aws/v1 EC2NodeClass: how an instance is launched.

Source of fields, defaults and limits: karpenter-provider-aws v1.14 ``pkg/apis/v1/ec2nodeclass.go``. Differences: a
selector list is refused when any of its terms mixes exclusive fields (there: when every term does), the pattern of
volume sizes allows all sizes of EBS, and at most 50 tags are allowed, which is EC2's limit.
"""

from spotwright.manifests.crds.ec2nodeclass.selectors import (
    ami_terms,
    capacity_reservation_terms,
    placement_group,
    security_group_terms,
    subnet_terms,
)
from spotwright.manifests.crds.ec2nodeclass.status import nodeclass_status
from spotwright.manifests.crds.openapi import (
    Schema,
    array,
    boolean,
    custom_resource_definition,
    enum,
    integer,
    map_of,
    object_with,
    printer_column,
    rule,
    string,
)
from spotwright.manifests.crds.shared_fields import READY_STATUS_PATH
from spotwright.model import labels

FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
# EBS volume sizes: 1 GiB to 64 TiB, spelled as the whole numbers whose bytes EC2 can be asked for.
_VOLUME_SIZE = (
    r"^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi"
    r"|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    r"|([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$"
)


def ec2_nodeclass() -> Schema:
    return custom_resource_definition(
        group="karpenter.k8s.aws",
        kind="EC2NodeClass",
        description="How EC2 instances are launched: image, network, role, disks and settings.",
        short_names=["ec2nc", "ec2ncs"],
        spec=_spec(),
        status=nodeclass_status(),
        columns=[
            printer_column("Ready", READY_STATUS_PATH),
            printer_column("Age", ".metadata.creationTimestamp", "date"),
            printer_column("Role", ".spec.role", priority=1),
        ],
    )


def _spec() -> Schema:
    return object_with(
        "How instances of this class are launched.",
        _selectors() | _identity() | _machine() | _network(),
        required=["amiSelectorTerms", "subnetSelectorTerms", "securityGroupSelectorTerms"],
        rules=[
            rule("has(self.role) != has(self.instanceProfile)", "set exactly one of role and instanceProfile"),
            rule(
                "has(self.amiFamily) || self.amiSelectorTerms.exists(term, has(term.alias))",
                "amiFamily is required unless an amiSelectorTerm has an alias",
            ),
            rule(
                "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(term,"
                " !has(term.alias) || term.alias.split('@')[0] == self.amiFamily.lowerAscii())",
                "amiFamily must be the family of the alias, or Custom",
            ),
        ],
    )


def _selectors() -> dict[str, Schema]:
    return {
        "amiSelectorTerms": ami_terms(),
        "subnetSelectorTerms": subnet_terms(),
        "securityGroupSelectorTerms": security_group_terms(),
        "capacityReservationSelectorTerms": capacity_reservation_terms(),
        "placementGroupSelector": placement_group(),
    }


def _identity() -> dict[str, Schema]:
    forbidden = [labels.CLUSTER_NAME_TAG, labels.NODEPOOL, labels.NODECLAIM, labels.EC2NODECLASS]
    return {
        "role": string("IAM role of the nodes; Spotwright creates an instance profile for it.", minLength=1),
        "instanceProfile": string("An existing instance profile, instead of role.", minLength=1),
        "tags": map_of(
            "Tags of the EC2 resources that are created for a node.",
            string(""),
            maxProperties=50,
            rules=[
                rule("self.all(key, key != '')", "a tag key cannot be empty"),
                *(rule(f"!('{key}' in self)", f"tag {key} is reserved") for key in forbidden),
                rule(
                    "self.all(key, !key.startsWith('kubernetes.io/cluster'))",
                    "tags that start with kubernetes.io/cluster are reserved",
                ),
            ],
        ),
        "context": string("The Context of CreateFleet requests."),
    }


def _machine() -> dict[str, Schema]:
    return {
        "amiFamily": enum(
            "The AMI family, which decides user data and defaults; required unless an alias names it.", *FAMILIES
        ),
        "userData": string("User data, merged with what joins the cluster; for Custom it is used unchanged."),
        "kubelet": {
            "type": "object",
            "description": "Fields of the nodes' KubeletConfiguration; the condition ValidationSucceeded names errors.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "blockDeviceMappings": _block_devices(),
        "instanceStorePolicy": enum("How local disks are used: RAID0 joins them for pods' storage.", "RAID0"),
        "detailedMonitoring": boolean("Whether CloudWatch has metrics every minute, for which AWS charges."),
        "metadataOptions": _metadata_options(),
        "cpuOptions": object_with(
            "Options of the processor.",
            {"nestedVirtualization": enum("Whether the node can run virtual machines.", "enabled", "disabled")},
        ),
    }


def _block_devices() -> Schema:
    device = object_with(
        "A volume of the instance.",
        {
            "deviceName": string("The device name, for example /dev/xvda."),
            "rootVolume": boolean("Whether the kubelet's data is on this volume; at most one volume has it."),
            "ebs": _ebs(),
        },
    )
    return array(
        "Volumes of the instance; unset = the AMI family's defaults.",
        device,
        maxItems=50,
        rules=[
            rule(
                "self.filter(device, has(device.rootVolume) && device.rootVolume).size() <= 1",
                "only one blockDeviceMapping may be the rootVolume",
            )
        ],
    )


def _ebs() -> Schema:
    volume_types = ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
    return object_with(
        "The EBS volume.",
        {
            "volumeSize": string("The size in Gi, G, Ti or T, for example 100Gi.", pattern=_VOLUME_SIZE),
            "volumeType": enum("The EBS volume type.", *volume_types),
            "iops": integer("Provisioned I/O operations per second.", 0),
            "throughput": integer("Provisioned throughput in MiB per second.", 0),
            "encrypted": boolean("Whether the volume is encrypted."),
            "kmsKeyID": string("Id, alias or ARN of the KMS key that encrypts the volume."),
            "deleteOnTermination": boolean("Whether EC2 deletes the volume together with the instance."),
            "snapshotID": string("The snapshot that the volume is created from."),
            "volumeInitializationRate": integer(
                "The rate at which the snapshot is downloaded to the volume, in MiB per second.", 100, 300
            ),
        },
        rules=[
            rule("has(self.snapshotID) || has(self.volumeSize)", "set snapshotID or volumeSize"),
            rule(
                "!has(self.volumeInitializationRate) || has(self.snapshotID)",
                "volumeInitializationRate needs a snapshotID",
            ),
        ],
    )


def _metadata_options() -> Schema:
    return object_with(
        "The instance metadata service.",
        {
            "httpEndpoint": enum("Whether the service can be reached.", "enabled", "disabled", default="enabled"),
            "httpProtocolIPv6": enum("Whether it has an IPv6 address.", "enabled", "disabled", default="disabled"),
            "httpPutResponseHopLimit": integer(
                "How many network hops a token may travel; 1 keeps it from pods without host network.", 1, 64, default=1
            ),
            "httpTokens": enum(
                "Whether requests need a session token (IMDSv2).", "required", "optional", default="required"
            ),
        },
        default={
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        },
    )  # fmt: skip


def _network() -> dict[str, Schema]:
    return {
        "associatePublicIPAddress": boolean("Whether instances get a public address; unset = the subnet decides."),
        "ipPrefixCount": integer("How many prefixes each network interface gets.", 0, 2**31 - 1),
        "networkInterfaces": _network_interfaces(),
        "connectionTracking": object_with(
            "Idle timeouts of tracked connections, in seconds.",
            {
                "tcpEstablishedTimeout": integer("For established TCP connections.", 60, 432_000),
                "udpStreamTimeout": integer("For UDP flows with more than a request and its response.", 60, 180),
                "udpTimeout": integer("For UDP flows in a single direction or with a single request.", 30, 60),
            },
            minProperties=1,
        ),
    }


def _network_interfaces() -> Schema:
    interface = object_with(
        "A network interface.",
        {
            "networkCardIndex": integer("The network card that the interface is attached to.", 0, 2**31 - 1),
            "deviceIndex": integer("The interface's index on its network card.", 0, 2**31 - 1),
            "interfaceType": enum(
                "An interface with IP addresses, or an Elastic Fabric Adapter without (efa-only).",
                "interface",
                "efa-only",
            ),
        },
        required=["networkCardIndex", "deviceIndex", "interfaceType"],
    )
    return array(
        "Network interfaces of the instance; unset = a single interface.",
        interface,
        kind="map",
        keys=["networkCardIndex", "deviceIndex"],
        maxItems=150,
        rules=[
            rule(
                "self.exists(one, one.networkCardIndex == 0 && one.deviceIndex == 0"
                " && one.interfaceType == 'interface')",
                "networkInterfaces must hold an interface with networkCardIndex 0 and deviceIndex 0",
            ),
            rule(
                "self.all(one, one.interfaceType != 'efa-only' || self.filter(other, other.interfaceType"
                " == 'efa-only' && other.networkCardIndex == one.networkCardIndex).size() == 1)",
                "at most one efa-only interface per network card",
            ),
        ],
    )
