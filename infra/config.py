"""What a deployment is told: context key `spotwright` of cdk.json as one frozen value."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infra.fields import ConfigError, Fields, show
from spotwright.errors import InvalidRequest
from spotwright.settings import PROVISIONER, catalog_settings, decision_settings
from spotwright.workflows.install.preflight.checks import CHECKS
from spotwright.workflows.install.preflight.facts import (
    CLUSTER_NAME,
    CLUSTER_NAMES,
    KMS_KEY,
    KMS_KEYS,
    NODE_ROLE,
    NODE_ROLES,
)

#: https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
ARCHITECTURES = ("arm64", "x86_64")
#: Of nodes, in Kubernetes' words; the first is that of an image which `cdk deploy` builds, where nothing else is said.
NODE_ARCHITECTURES = ("amd64", "arm64")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

#: Settings of the functions: Karpenter's under its names, and our own.
SETTINGS = (
    *("PREFERENCE_POLICY", "MIN_VALUES_POLICY", "FEATURE_GATES"),
    *("FOLLOWER_SELECTORS", "WORK_UNITS", "FOLLOW_PLAN", "LARGEST_NODE_SHARE", "LARGEST_ZONE_SHARE", "BREAKER_PERCENT"),
    *("MAX_LAUNCHES_PER_MINUTE", "MAX_NODES_PER_HOUR", "MAX_DOLLARS_PER_HOUR", "MAX_EVICTIONS_PER_HOUR"),
    *("VM_MEMORY_OVERHEAD_PERCENT", "RESERVED_ENIS", "ISOLATED_VPC", "ENABLE_ZONAL_SHIFT", "AWS_FEATURE_GATES"),
    "DISABLE_DRY_RUN",
)

#: Settings of the forwarder: how long it waits for further unschedulable pods.
FORWARDER_SETTINGS = ("BATCH_IDLE_DURATION", "BATCH_MAX_DURATION")

#: Lambda gives a function's environment 4,096 bytes, of which this much is left
#: for the clusters. https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
MAX_CLUSTERS = 10
_CLUSTERS_BYTES = 3096

#: A managed policy may have 6,144 characters: what `install` may do for a cluster has this many besides the cluster's
#: name, which is there eleven times, the path of its own role, three times, and the node roles.
#: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
_RIGHTS_CHARACTERS = 6144 - 2830


@dataclass(frozen=True, slots=True)
class Network:
    """Where the functions run when the clusters' API servers have no public endpoint."""

    vpc_id: str
    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One EKS cluster of the cell.

    `node_roles` are IAM role names (with their path, if any) that nodes may run as. Each gets an access entry where
    it has none; those in `node_roles_with_access_entry` are not looked at. The entries of `windows_node_roles` are
    for Windows nodes: an entry is for one system, so these need roles of their own.
    `forwarder_image` "" = `cdk deploy` builds it; `forwarder_architecture`, as Kubernetes calls it, is that of the
    nodes which may run it, "" = any.
    `skip_checks`: checks of the preflight that do not apply to the cluster.
    """

    name: str
    node_roles: tuple[str, ...]
    forwarder_image: str = ""
    forwarder_architecture: str = ""
    network: Network | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    node_roles_with_access_entry: tuple[str, ...] = ()
    windows_node_roles: tuple[str, ...] = ()
    skip_checks: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, object]:
        """The cluster as the functions' environment names it; empty fields are left out to save room."""
        own = {name: value for name, value in self.settings.items() if name in SETTINGS}
        skipped = [check for check in self.skip_checks if check == PROVISIONER]
        return {
            "nodeRoles": list(self.node_roles),
            **({"skipChecks": skipped} if skipped else {}),
            **({"settings": own} if own else {}),
        }

    @property
    def forwarder_settings(self) -> dict[str, str]:
        """Settings that go into the forwarder's environment."""
        return {name: value for name, value in self.settings.items() if name in FORWARDER_SETTINGS}


@dataclass(frozen=True, slots=True)
class Config:
    """One cell: one stack in one account and region.

    The policy of `kms_key_arn` must let EventBridge (events.amazonaws.com) and CloudWatch Logs
    (logs.<region>.amazonaws.com) use the key, with `alarm_email` CloudWatch (cloudwatch.amazonaws.com), too; roles of
    the stack are granted its use here.
    `memory_table`: the table of another cell, in which the cells of an account share offering health and call rates;
    None = the cell's own.
    `alarm_topic_arn`, or a topic of the stack's own with the subscriber `alarm_email`, is told of alarms; without both
    alarms are shown in CloudWatch and tell nobody.
    `remove_data_on_destroy`: the bucket with the stored decisions is deleted with the stack.
    `retain_node_entries`: for one deployment, the step from a version whose stack held the access entries of nodes.
    """

    clusters: tuple[Cluster, ...]
    cell: str = "main"
    architecture: str = "arm64"
    permissions_boundary: str | None = None
    role_path: str = "/"
    tags: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "INFO"
    log_retention_days: int = 30
    decision_retention_days: int = 30
    kms_key_arn: str | None = None
    alarm_topic_arn: str | None = None
    alarm_email: str | None = None
    memory_table: str | None = None
    remove_data_on_destroy: bool = False
    retain_node_entries: bool = False

    @property
    def network(self) -> Network | None:
        """The one network of the cell's functions."""
        return self.clusters[0].network


#: Keys of a cluster that somebody may write beside `clusters`, and keys of the cell that somebody may write into one.
KEYS_OF_CLUSTERS = (
    *("name", "nodeRoles", "windowsNodeRoles", "nodeRolesWithAccessEntry", "forwarderImage", "forwarderArchitecture"),
    *("vpc", "settings", "skipChecks"),
)
KEYS_OF_CELLS = (
    *("cell", "architecture", "permissionsBoundary", "rolePath", "tags", "logLevel", "logRetentionDays"),
    *("decisionRetentionDays", "kmsKeyArn", "alarmTopicArn", "alarmEmail", "memoryTable", "removeDataOnDestroy"),
    "retainNodeEntries",
)

_POLICY = r"(arn:aws[a-z-]*:iam::(\d{12}|aws):policy/)?[\w+=,.@/-]+"
_DURATION = r"\d+(\.\d+)?(ms|s|m)"
_TABLE = r"[\w.-]{3,255}"
_TOPIC = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]+"
_EMAIL = r"[^@\s]+@[^@\s]+\.[^@\s]+"


def parse_config(context: object, architecture: object = None) -> Config:
    """Reads context key `spotwright`: an object, or its JSON as `cdk --context` passes it.

    Context key `architecture`, when given, goes before the field of that name, because `--context` cannot
    reach into an object. Raises ConfigError.
    """
    fields = Fields(_decoded(context), "spotwright")
    role_path = fields.text("rolePath", r"/([\x21-\x7e]{1,510}/)?", "an IAM path that starts and ends with /", "/")
    config = Config(
        cell=fields.text("cell", r"[a-z][a-z0-9-]{0,19}", "a lower-case word of up to 20 letters", "main"),
        clusters=_clusters(fields, role_path),
        architecture=fields.choice("architecture", ARCHITECTURES, "arm64"),
        permissions_boundary=fields.optional_text("permissionsBoundary", _POLICY, "a policy's ARN or name"),
        role_path=role_path,
        tags=fields.text_map("tags", r"(?!aws:).{1,128}", "tag keys that do not start with aws:"),
        log_level=fields.choice("logLevel", LOG_LEVELS, "INFO"),
        log_retention_days=fields.choice("logRetentionDays", RETENTION_DAYS, 30),
        decision_retention_days=fields.integer("decisionRetentionDays", range(1, 3651), 30),
        kms_key_arn=fields.optional_text("kmsKeyArn", KMS_KEY, KMS_KEYS),
        alarm_topic_arn=fields.optional_text("alarmTopicArn", _TOPIC, "an SNS topic's ARN"),
        alarm_email=fields.optional_text("alarmEmail", _EMAIL, "an e-mail address"),
        memory_table=fields.optional_text("memoryTable", _TABLE, "the TableName of another cell's stack"),
        remove_data_on_destroy=fields.boolean("removeDataOnDestroy", False),
        retain_node_entries=fields.boolean("retainNodeEntries", False),
    )
    fields.refuse_unknown_keys(dict.fromkeys(KEYS_OF_CLUSTERS, "into an entry of clusters"))
    if config.alarm_topic_arn and config.alarm_email:
        raise fields.refusal("alarmEmail", config.alarm_email, "alarmTopicArn or alarmEmail, not both")
    if architecture is None:
        return config
    chosen = Fields({"architecture": architecture}, "").choice("architecture", ARCHITECTURES, "arm64")
    return replace(config, architecture=chosen)


def _decoded(context: object) -> object:
    if context is None:
        raise ConfigError("spotwright: got nothing, allowed: an object under context key spotwright in cdk.json")
    if not isinstance(context, str):
        return context
    try:
        return json.loads(context)
    except json.JSONDecodeError as error:
        raise ConfigError(f"spotwright: got {show(context)}, allowed: a JSON object ({error})") from error


def _clusters(fields: Fields, role_path: str) -> tuple[Cluster, ...]:
    clusters = tuple(_cluster(cluster, role_path) for cluster in fields.nested_list("clusters", MAX_CLUSTERS))
    names = [cluster.name for cluster in clusters]
    if len(set(names)) < len(names):
        raise fields.refusal("clusters", names, "each name once")
    longest_role_arn = f"arn:aws:iam::123456789012:role{role_path}" + 64 * "r"
    environment = {cluster.name: {"r": 2 * longest_role_arn + 30 * "k", **cluster.environment} for cluster in clusters}
    if len(json.dumps(environment, separators=(",", ":"))) > _CLUSTERS_BYTES:
        allowed = (
            "names, node roles, settings and a rolePath that fit into a function's environment (4 KB); else two cells"
        )
        raise fields.refusal("clusters", names, allowed)
    if len({cluster.network for cluster in clusters}) > 1:
        allowed = "the same vpc for every cluster of a cell, or none (another VPC is another cell)"
        raise fields.refusal("clusters", [cluster.network for cluster in clusters], allowed)
    return clusters


def _cluster(fields: Fields, role_path: str) -> Cluster:
    with_entry = fields.texts("nodeRolesWithAccessEntry", NODE_ROLE, "names from nodeRoles")
    windows = fields.texts("windowsNodeRoles", NODE_ROLE, "names from nodeRoles")
    cluster = Cluster(
        name=fields.required_text("name", CLUSTER_NAME, CLUSTER_NAMES),
        node_roles=fields.texts("nodeRoles", NODE_ROLE, f"{NODE_ROLES}, at least one", at_least=1),
        forwarder_image=fields.optional_text("forwarderImage", r"\S+", "an image reference") or "",
        forwarder_architecture=fields.optional_text(
            "forwarderArchitecture", "|".join(NODE_ARCHITECTURES), "amd64 or arm64"
        )
        or "",
        network=_network(fields.nested("vpc")),
        settings=_settings(fields),
        node_roles_with_access_entry=with_entry,
        windows_node_roles=windows,
        skip_checks=fields.texts("skipChecks", "|".join(CHECKS), f"names of checks: {', '.join(CHECKS)}"),
    )
    fields.refuse_unknown_keys(dict.fromkeys(KEYS_OF_CELLS, "beside clusters, not into one of them"))
    if not cluster.forwarder_image and not cluster.forwarder_architecture:
        cluster = replace(cluster, forwarder_architecture=NODE_ARCHITECTURES[0])
    if _rights_characters(cluster, role_path) > _RIGHTS_CHARACTERS:
        allowed = "roles whose names fit into a policy of IAM, beside those of the cluster and of rolePath"
        raise fields.refusal("nodeRoles", list(cluster.node_roles), allowed)
    if not set(windows) <= set(cluster.node_roles):
        raise fields.refusal("windowsNodeRoles", list(windows), "names from nodeRoles")
    if not set(with_entry) <= set(cluster.node_roles):
        raise fields.refusal("nodeRolesWithAccessEntry", list(with_entry), "names from nodeRoles")
    return cluster


def _rights_characters(cluster: Cluster, role_path: str) -> int:
    """How much of a policy the names take: the ARN of each node role twice, its access entry with and without its path.
    Partition and region are as long as any.
    """
    arns = sum(2 * (41 + len(role)) for role in cluster.node_roles)
    names = {name for role in cluster.node_roles for name in (role, role.rpartition("/")[2])}
    entries = sum(84 + len(cluster.name) + len(name) for name in names)
    return arns + entries + 11 * len(cluster.name) + 3 * len(role_path)


def _settings(fields: Fields) -> dict[str, str]:
    """Refused here as functions and forwarder would refuse them when they start."""
    names = (*SETTINGS, *FORWARDER_SETTINGS)
    settings = fields.text_map("settings", "|".join(names), f"a map of {', '.join(names)}", names)
    try:
        decision_settings(settings)
        catalog_settings(settings)
    except (InvalidRequest, ValueError) as error:
        raise fields.refusal("settings", settings, str(error)) from error
    for name in sorted(settings.keys() & set(FORWARDER_SETTINGS)):
        if not re.fullmatch(_DURATION, settings[name]):
            raise fields.refusal(f"settings.{name}", settings[name], "a duration such as 1s or 500ms")
    return settings


def _network(fields: Fields | None) -> Network | None:
    if fields is None:
        return None
    network = Network(
        vpc_id=fields.required_text("vpcId", _id("vpc"), "a VPC id"),
        subnet_ids=fields.texts("subnetIds", _id("subnet"), "subnet ids, at least one", at_least=1),
        security_group_ids=fields.texts("securityGroupIds", _id("sg"), "security group ids, at least one", at_least=1),
    )
    fields.refuse_unknown_keys()
    return network


def _id(kind: str) -> str:
    """EC2's ids: eight hexadecimal digits, or seventeen since 2016."""
    return rf"{kind}-([0-9a-f]{{8}}|[0-9a-f]{{17}})"
