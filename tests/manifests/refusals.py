"""Objects that our definitions refuse: kind, where, what is put there, and words of the refusal."""

from typing import Any

from tests.manifests.samples import SAMPLES, Object

POOL_SPEC = "spec.template.spec"
KEY = "labels of the domain karpenter.sh are restricted, except karpenter.sh/capacity-type"
CLAIM_KEY = KEY + " and karpenter.sh/nodepool"
PROVIDER_KEY = "labels of the domain karpenter.k8s.aws are restricted, except the well-known ones"
HOSTNAME = "label kubernetes.io/hostname is restricted"
NUMBER = "operators Gt, Lt, Gte and Lte need exactly one value, a whole number of at least 0"
LONG = "x" * 64


def need(key: str, operator: str, *values: str, **more: Any) -> list[Object]:
    return [{"key": key, "operator": operator, "values": list(values), **more}]


def disk(**ebs: Any) -> list[Object]:
    return [{"deviceName": "/dev/xvda", "ebs": ebs}]


def card(index: int, device: int, kind: str) -> Object:
    return {"networkCardIndex": index, "deviceIndex": device, "interfaceType": kind}


# kind, where, what is put there, words of the refusal
RULES: list[tuple[str, str, Any, str]] = [
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "In"), "operator In needs at least one value"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Gt", "1", "2"), NUMBER),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Lt", "many"), NUMBER),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Gte"), NUMBER),
    (
        "NodePool",
        f"{POOL_SPEC}.requirements",
        need("a", "In", "1", minValues=2),
        "operator In with minValues needs at least that many values",
    ),
    ("NodePool", f"{POOL_SPEC}.requirements", need("kubernetes.io/hostname", "In", "x"), HOSTNAME),
    ("NodePool", f"{POOL_SPEC}.requirements", need("karpenter.sh/nodepool", "In", "x"), KEY),
    ("NodePool", f"{POOL_SPEC}.requirements", need("x.karpenter.sh/y", "Exists"), KEY),
    ("NodePool", f"{POOL_SPEC}.requirements", need("karpenter.k8s.aws/instance-colour", "Exists"), PROVIDER_KEY),
    ("NodePool", "spec.template.metadata.labels", {"kubernetes.io/hostname": "x"}, HOSTNAME),
    ("NodePool", "spec.template.metadata.labels", {"karpenter.sh/nodepool": "x"}, KEY),
    ("NodePool", "spec.template.metadata.labels", {"karpenter.k8s.aws/other": "x"}, PROVIDER_KEY),
    (
        "NodePool",
        "spec.disruption.budgets",
        [{"nodes": "1", "schedule": "@daily"}],
        "schedule and duration go together",
    ),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "1", "duration": "1h"}], "schedule and duration go together"),
    ("NodePool", "spec", SAMPLES["NodePool"]()["spec"] | {"replicas": 1, "weight": 1}, "takes no weight"),
    (
        "NodePool",
        "spec",
        SAMPLES["NodePool"]()["spec"] | {"replicas": 1, "limits": {"nodes": "1", "cpu": "1"}},
        "a NodePool with replicas may limit nodes only",
    ),
    ("NodeClaim", "spec.requirements", need("karpenter.sh/registered", "Exists"), CLAIM_KEY),
    ("NodeClaim", "spec.requirements", need("a", "In"), "operator In needs at least one value"),
    ("EC2NodeClass", "spec.instanceProfile", "p", "set exactly one of role and instanceProfile"),
    ("EC2NodeClass", "spec.role", None, "set exactly one of role and instanceProfile"),
    (
        "EC2NodeClass",
        "spec.amiSelectorTerms",
        [{"id": "ami-1"}],
        "amiFamily is required unless an amiSelectorTerm has an alias",
    ),
    ("EC2NodeClass", "spec.amiFamily", "Bottlerocket", "amiFamily must be the family of the alias, or Custom"),
    ("EC2NodeClass", "spec.amiSelectorTerms", [{"alias": "al2023"}], "alias must have the form family@version"),
    ("EC2NodeClass", "spec.amiSelectorTerms", [{"alias": "AL2023@latest"}], "alias family must be one of al2, al2023"),
    (
        "EC2NodeClass",
        "spec.amiSelectorTerms",
        [{"alias": "windows2022@v1"}],
        "a Windows alias must have the version latest",
    ),
    (
        "EC2NodeClass",
        "spec.amiSelectorTerms",
        [{"alias": "al2023@latest", "owner": "self"}],
        "alias cannot be combined with tags, id, name, owner, ssmParameter",
    ),
    (
        "EC2NodeClass",
        "spec.amiSelectorTerms",
        [{"alias": "al2023@latest"}, {"id": "ami-1"}],
        "a term with an alias must be the only amiSelectorTerm",
    ),
    (
        "EC2NodeClass",
        "spec.amiSelectorTerms",
        [{"id": "ami-1", "owner": "self"}],
        "id cannot be combined with tags, name, owner",
    ),
    ("EC2NodeClass", "spec.amiSelectorTerms", [{"owner": "self"}], "owner alone selects too much"),
    ("EC2NodeClass", "spec.amiSelectorTerms", [{}], "at least one of alias, tags, id, name, owner, ssmParameter"),
    ("EC2NodeClass", "spec.subnetSelectorTerms", [{}], "at least one of tags, id"),
    (
        "EC2NodeClass",
        "spec.subnetSelectorTerms",
        [{"tags": {"a": "b"}}, {"id": "subnet-1", "tags": {"a": "b"}}],
        "id cannot be combined with tags",
    ),
    ("EC2NodeClass", "spec.subnetSelectorTerms", [{"tags": {"": "b"}}], "a tag key cannot be empty"),
    ("EC2NodeClass", "spec.securityGroupSelectorTerms", [{}], "at least one of tags, id, name"),
    (
        "EC2NodeClass",
        "spec.securityGroupSelectorTerms",
        [{"id": "sg-1", "name": "a"}],
        "id cannot be combined with tags, name",
    ),
    (
        "EC2NodeClass",
        "spec.securityGroupSelectorTerms",
        [{"name": "a", "tags": {"a": "b"}}],
        "name cannot be combined with tags",
    ),
    (
        "EC2NodeClass",
        "spec.capacityReservationSelectorTerms",
        [{}],
        "at least one of tags, id, ownerID, instanceMatchCriteria",
    ),
    (
        "EC2NodeClass",
        "spec.capacityReservationSelectorTerms",
        [{"ownerID": "123456789012"}],
        "ownerID alone selects too much",
    ),
    (
        "EC2NodeClass",
        "spec.capacityReservationSelectorTerms",
        [{"id": "cr-1", "ownerID": "123456789012"}],
        "id cannot be combined with tags, ownerID, instanceMatchCriteria",
    ),
    ("EC2NodeClass", "spec.placementGroupSelector", {}, "set exactly one of name and id"),
    ("EC2NodeClass", "spec.placementGroupSelector", {"name": "a", "id": "pg-1"}, "set exactly one of name and id"),
    ("EC2NodeClass", "spec.tags", {"": "x"}, "a tag key cannot be empty"),
    ("EC2NodeClass", "spec.tags", {"eks:eks-cluster-name": "x"}, "tag eks:eks-cluster-name is reserved"),
    ("EC2NodeClass", "spec.tags", {"karpenter.sh/nodepool": "x"}, "tag karpenter.sh/nodepool is reserved"),
    ("EC2NodeClass", "spec.tags", {"karpenter.sh/nodeclaim": "x"}, "tag karpenter.sh/nodeclaim is reserved"),
    (
        "EC2NodeClass",
        "spec.tags",
        {"karpenter.k8s.aws/ec2nodeclass": "x"},
        "tag karpenter.k8s.aws/ec2nodeclass is reserved",
    ),
    (
        "EC2NodeClass",
        "spec.tags",
        {"kubernetes.io/cluster/x": "owned"},
        "tags that start with kubernetes.io/cluster are reserved",
    ),
    ("EC2NodeClass", "spec.blockDeviceMappings", disk(volumeType="gp3"), "set snapshotID or volumeSize"),
    (
        "EC2NodeClass",
        "spec.blockDeviceMappings",
        disk(volumeSize="8Gi", volumeInitializationRate=100),
        "volumeInitializationRate needs a snapshotID",
    ),
    (
        "EC2NodeClass",
        "spec.blockDeviceMappings",
        [{"rootVolume": True}, {"rootVolume": True}],
        "only one blockDeviceMapping may be the rootVolume",
    ),
    (
        "EC2NodeClass",
        "spec.networkInterfaces",
        [card(0, 1, "interface")],
        "networkInterfaces must hold an interface with networkCardIndex 0 and deviceIndex 0",
    ),
    (
        "EC2NodeClass",
        "spec.networkInterfaces",
        [card(0, 0, "interface"), card(1, 0, "efa-only"), card(1, 1, "efa-only")],
        "at most one efa-only interface per network card",
    ),
    ("NodeOverlay", "spec.price", "0.5", "price and priceAdjustment exclude each other"),
    (
        "NodeOverlay",
        "spec.capacity",
        {"cpu": "4"},
        "cpu, memory, ephemeral-storage and pods are the instance type's own",
    ),
]

# What types, enums, patterns and bounds refuse; the words are the API server's.
BOUNDS: list[tuple[str, str, Any, str]] = [
    ("NodePool", "spec.limit", {"cpu": "1"}, 'unknown field "spec.limit"'),
    ("NodePool", f"{POOL_SPEC}.requirements", None, f"{POOL_SPEC}.requirements: Required value"),
    ("NodePool", f"{POOL_SPEC}.nodeClassRef", None, f"{POOL_SPEC}.nodeClassRef: Required value"),
    ("NodePool", f"{POOL_SPEC}.nodeClassRef.name", "", "nodeClassRef.name"),
    ("NodePool", f"{POOL_SPEC}.nodeClassRef.group", "a/v1", "nodeClassRef.group"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Near", "1"), 'Unsupported value: "Near"'),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a b", "Exists"), "requirements[0].key"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "In", "b c"), "requirements[0].values[0]"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "In", LONG), "Too long"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Exists", minValues=51), "requirements[0].minValues"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Exists") * 101, "Too many"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Exists", minValues=0), "requirements[0].minValues"),
    ("NodePool", f"{POOL_SPEC}.requirements", need("a", "Exists", minValues=-1), "requirements[0].minValues"),
    ("NodePool", f"{POOL_SPEC}.expireAfter", "30d", "expireAfter"),
    ("NodePool", f"{POOL_SPEC}.expireAfter", "1hr", "expireAfter"),
    ("NodePool", f"{POOL_SPEC}.expireAfter", "-1s", "expireAfter"),
    ("NodePool", f"{POOL_SPEC}.expireAfter", "FooNever", "expireAfter"),
    ("NodePool", f"{POOL_SPEC}.terminationGracePeriod", "Never", "terminationGracePeriod"),
    ("NodePool", f"{POOL_SPEC}.taints", [{"key": "", "effect": "NoSchedule"}], "taints[0].key"),
    ("NodePool", f"{POOL_SPEC}.taints", [{"key": "???", "effect": "NoSchedule"}], "taints[0].key"),
    ("NodePool", f"{POOL_SPEC}.taints", [{"key": "a", "value": "?? ", "effect": "NoSchedule"}], "taints[0].value"),
    ("NodePool", f"{POOL_SPEC}.taints", [{"effect": "NoSchedule"}], "taints[0].key: Required value"),
    ("NodePool", f"{POOL_SPEC}.taints", [{"key": "a", "effect": "Never"}], "taints[0].effect"),
    ("NodePool", f"{POOL_SPEC}.startupTaints", [{"key": "a"}], "startupTaints[0].effect: Required value"),
    ("NodePool", "spec.template.metadata.labels", {"a": LONG}, "Too long"),
    ("NodePool", "spec.disruption.consolidationPolicy", "WhenUnderutilized", "Unsupported value"),
    ("NodePool", "spec.disruption.consolidateAfter", "1d", "consolidateAfter"),
    ("NodePool", "spec.disruption.consolidateAfter", "1hr", "consolidateAfter"),
    ("NodePool", "spec.disruption.consolidateAfter", "-1s", "consolidateAfter"),
    ("NodePool", "spec.disruption.consolidateAfter", "FooNever", "consolidateAfter"),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "101%"}], "budgets[0].nodes"),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "1000%"}], "budgets[0].nodes"),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "-10"}], "budgets[0].nodes"),
    ("NodePool", "spec.disruption.budgets", [{"nodes": "-10%"}], "budgets[0].nodes"),
    ("NodePool", "spec.disruption.budgets", [{"reasons": ["Expired"]}], "Unsupported value"),
    ("NodePool", "spec.disruption.budgets", [{"reasons": ["Empty", "Empty"]}], "Duplicate value"),
    ("NodePool", "spec.disruption.budgets", [{"schedule": "daily", "duration": "1h"}], "budgets[0].schedule"),
    ("NodePool", "spec.disruption.budgets", [{"schedule": "@daily", "duration": "30s"}], "budgets[0].duration"),
    ("NodePool", "spec.disruption.budgets", [{"schedule": "@daily", "duration": "-20m"}], "budgets[0].duration"),
    ("NodePool", "spec.limits", {"cpu": "many"}, "spec.limits.cpu"),
    ("NodePool", "spec.weight", 0, "spec.weight"),
    ("NodePool", "spec.weight", 101, "spec.weight"),
    ("NodePool", "spec.replicas", -1, "spec.replicas"),
    ("NodeClaim", "spec.resources", {"requests": {"cpu": "x"}}, "spec.resources.requests.cpu"),
    ("NodeClaim", "spec.image", "x", 'unknown field "spec.image"'),
    ("EC2NodeClass", "spec.subnetSelectorTerms", None, "spec.subnetSelectorTerms: Required value"),
    ("EC2NodeClass", "spec.securityGroupSelectorTerms", None, "spec.securityGroupSelectorTerms: Required value"),
    ("EC2NodeClass", "spec.amiSelectorTerms", None, "spec.amiSelectorTerms: Required value"),
    ("EC2NodeClass", "spec.subnetSelectorTerms", [], "should have at least 1 items"),
    ("EC2NodeClass", "spec.subnetSelectorTerms", [{"id": "sub-1"}], "subnetSelectorTerms[0].id"),
    ("EC2NodeClass", "spec.subnetSelectorTerms", [{"tags": {"a": ""}}], "subnetSelectorTerms[0].tags.a"),
    ("EC2NodeClass", "spec.subnetSelectorTerms", [{"id": "subnet-1"}] * 31, "Too many"),
    ("EC2NodeClass", "spec.securityGroupSelectorTerms", [{"id": "x"}], "securityGroupSelectorTerms[0].id"),
    ("EC2NodeClass", "spec.amiSelectorTerms", [{"alias": "al2023@" + "v" * 24}], "Too long"),
    ("EC2NodeClass", "spec.amiFamily", "Ubuntu", "Unsupported value"),
    ("EC2NodeClass", "spec.role", "", "spec.role"),
    ("EC2NodeClass", "spec.tags", {f"k{n}": "v" for n in range(51)}, "must have at most 50"),
    ("EC2NodeClass", "spec.instanceStorePolicy", "RAID1", "Unsupported value"),
    ("EC2NodeClass", "spec.metadataOptions.httpPutResponseHopLimit", 65, "httpPutResponseHopLimit"),
    ("EC2NodeClass", "spec.metadataOptions.httpTokens", "never", "Unsupported value"),
    ("EC2NodeClass", "spec.connectionTracking", {}, "connectionTracking"),
    ("EC2NodeClass", "spec.connectionTracking.udpTimeout", 61, "udpTimeout"),
    ("EC2NodeClass", "spec.ipPrefixCount", -1, "ipPrefixCount"),
    ("EC2NodeClass", "spec.networkInterfaces", [card(0, 0, "interface")] * 2, "Duplicate value"),
    ("EC2NodeClass", "spec.blockDeviceMappings", disk(volumeSize="100Mi"), "volumeSize"),
    ("EC2NodeClass", "spec.blockDeviceMappings", disk(volumeSize="59001Gi"), "volumeSize"),
    ("EC2NodeClass", "spec.blockDeviceMappings", disk(volumeSize="Ti"), "volumeSize"),
    ("EC2NodeClass", "spec.blockDeviceMappings", disk(volumeSize="8Gi", volumeType="gp4"), "Unsupported value"),
    (
        "EC2NodeClass",
        "spec.blockDeviceMappings",
        disk(snapshotID="s", volumeInitializationRate=301),
        "volumeInitializationRate",
    ),
    ("NodeOverlay", "spec.requirements", None, "spec.requirements: Required value"),
    ("NodeOverlay", "spec.priceAdjustment", "10", "spec.priceAdjustment"),
    ("NodeOverlay", "spec", {"requirements": [], "price": "-1"}, "spec.price"),
    ("NodeOverlay", "spec.priceAdjustment", "1%", "spec.priceAdjustment"),
    ("NodeOverlay", "spec.priceAdjustment", "-101.1%", "spec.priceAdjustment"),
    ("NodeOverlay", "spec.priceAdjustment", "-100.1%", "spec.priceAdjustment"),
    ("NodeOverlay", "spec.weight", 0, "spec.weight"),
]
