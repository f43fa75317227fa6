"""One cell of Spotwright, wired: which queue wakes which function, and who may touch what."""

from collections.abc import Mapping

from aws_cdk import CfnOutput, CustomResource, Environment, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.alarms import Alarms, Watched
from infra.cluster_access import ClusterAccess
from infra.config import Cluster, Config
from infra.dashboard import Dashboard
from infra.forwarder_image import ForwarderImages
from infra.functions import FURTHER_QUEUES, INSTALL, QUEUE_FUNCTIONS, Function
from infra.grants import Grant
from infra.install import (
    cluster_rights,
    empty_on_delete,
    install_cluster,
    install_grants,
    look_at_cluster,
    name_clusters,
    say_what_is_left,
)
from infra.layer import core_layer
from infra.permissions import see_instances
from infra.queues import USUAL_RETRIES, WARNING_RETRIES, WorkQueue
from infra.state import State
from infra.triggers import Interruptions, Schedules

#: Doorbells that a function or the forwarder may ring are told to it by URL.
_RUNG = ("provision", "lifecycle", "notices", "catalog", "disrupt", "sweep")

#: Who reads what EC2 can give, who asks EC2 at the account's pace, and who writes down what came of it.
_LEARNING = {
    "provision": ("Query",),
    "disrupt": ("Query",),
    "lifecycle": ("BatchGetItem", "GetItem", "Query", "PutItem"),
    "catalog": ("GetItem", "Query", "PutItem"),
}


class SpotwrightStack(Stack):
    """The stack `Spotwright-<cell>`. Nothing is looked up: account, region and partition are the deployment's."""

    def __init__(self, scope: Construct, config: Config, env: Environment | None = None) -> None:
        super().__init__(
            scope,
            f"Spotwright-{config.cell}",
            env=env,
            description="Spotwright: gives EKS clusters the nodes their pods need, without a controller in them",
        )
        self.config = config
        self.key = kms.Key.from_key_arn(self, "Key", config.kms_key_arn) if config.kms_key_arn else None
        self._everywhere()
        self.state = State(self, config, self.key)
        timeouts = {spec.name: spec.timeout_seconds for spec in QUEUE_FUNCTIONS}
        timeouts |= {name: timeouts[function] for name, function in FURTHER_QUEUES.items()}
        self.queues = {name: self._queue(name, seconds) for name, seconds in timeouts.items()}
        layer = core_layer(self, config.architecture)
        self.functions = {
            spec.name: Function(self, spec, config=config, layer=layer, environment=self._environment(), key=self.key)
            for spec in (*QUEUE_FUNCTIONS, INSTALL)
        }
        self._grant()
        self._name_clusters()
        self.access = self._open_clusters()
        self._tell_clusters()
        installed = self._install()
        interruptions = Interruptions(self, warnings=self.queues["interrupt"], changes=self.queues["changes"])
        clock = Schedules(self, config, self.queues, key=self.key, use_key=self._use_key)
        # A schedule ticks as soon as it is there; before `install` has been, a cluster lets no function in. Only what
        # EC2 sells takes long to read and asks EC2 alone.
        clock.begin_after(installed, early=[access.act for access in self.access])
        self.dashboard = Dashboard(self, config, queues=self.queues, functions=self.functions)
        Alarms(self, config, Watched(self.queues, self.functions, interruptions, clock), self.key)
        self._outputs()
        self._say_what_is_left()

    # Who may touch what -------------------------------------------------------------------------------------

    def _grant(self) -> None:
        rows, read, write = self.state.rows, self.state.read_bodies, self.state.bodies
        ring = {name: queue.send for name, queue in self.queues.items()}
        may: dict[str, tuple[Grant, ...]] = {
            "provision": (rows, *write, ring["lifecycle"], ring["provision"]),
            "lifecycle": (
                rows,
                *write,
                *(ring[name] for name in ("lifecycle", "notices", "provision", "disrupt", "catalog")),
            ),
            "interrupt": (rows, ring["notices"], see_instances(self)),
            "disrupt": (rows, *write, ring["lifecycle"], ring["disrupt"]),
            "catalog": (rows, *write, *(ring[name] for name in ("provision", "lifecycle", "catalog"))),
            "sweep": (rows, *read, *(ring[name] for name in ("provision", "lifecycle", "notices", "catalog", "sweep"))),
            "install": (
                *install_grants(self),
                *(self.state.empty_bucket if self.config.remove_data_on_destroy else ()),
            ),
        }
        for name, grants in may.items():
            self.functions[name].grant(*grants, *self._use_key)
        if self.config.memory_table:
            for name, calls in _LEARNING.items():
                self.functions[name].grant(self.state.account_rows(*calls))

    def _name_clusters(self) -> None:
        """What is deployed goes on as it was until it is known that no cluster leaves with nodes."""
        named = name_clusters(self, self.functions["install"], self.config)
        for name, function in self.functions.items():
            if name != "install":
                function.node.add_dependency(named)

    def _open_clusters(self) -> tuple[ClusterAccess, ...]:
        """Both sides of assuming a role: the cluster's role trusts the function, the function's role may ask."""
        readers = self._named("provision", "disrupt", "sweep", "catalog", "lifecycle")
        actors = self._named("lifecycle", "catalog")
        opened = tuple(self._access(cluster, readers, actors) for cluster in self.config.clusters)
        for function in readers:
            reads = tuple(access.read.role_arn for access in opened)
            function.grant(Grant("ReadClusters", ("sts:AssumeRole",), reads))
        for function in actors:
            acts = tuple(access.act.role_arn for access in opened)
            function.grant(Grant("ActOnClusters", ("sts:AssumeRole",), acts))
        return opened

    def _access(self, cluster: Cluster, readers: tuple[Function, ...], actors: tuple[Function, ...]) -> ClusterAccess:
        install = self.functions["install"]
        forwarder = (self.queues[name].send for name in ("provision", "lifecycle", "catalog"))
        return ClusterAccess(
            self,
            cluster,
            self.config,
            readers=readers,
            actors=actors,
            looked_at=look_at_cluster(self, install, cluster, cluster_rights(self, install, self.config, cluster)),
            forwarder=(
                *forwarder,
                self.state.partition_rows(f"forwarder#{cluster.name}"),
                self.state.cluster_state(cluster.name),
                *self._use_key,
            ),
        )

    @property
    def _use_key(self) -> tuple[Grant, ...]:
        """What SQS, S3, DynamoDB and Lambda ask for in their caller's name when the key is the customer's."""
        return (Grant("UseKey", _KEY_USE, (self.key.key_arn,)),) if self.key else ()

    # Wiring -------------------------------------------------------------------------------------------------

    def _install(self) -> list[CustomResource]:
        """Clusters are entered when functions can serve them, and left before those go."""
        install = self.functions["install"]
        contents = [empty_on_delete(self, install, self.state.bucket)] if self.config.remove_data_on_destroy else []
        feeds = [
            self.functions[FURTHER_QUEUES.get(name, name)].add_queue(queue, name) for name, queue in self.queues.items()
        ]
        for feed in feeds:
            feed.node.add_dependency(*contents)
        images = ForwarderImages(self)
        installed = [
            install_cluster(
                self, install, access, images.uri(access.cluster), self._forwarder_environment(access.cluster)
            )
            for access in self.access
        ]
        for resource in installed:
            resource.node.add_dependency(*feeds)
        return installed

    def _say_what_is_left(self) -> None:
        """Needs everything, so that CloudFormation deletes nothing before it has been asked."""
        everything = list(self.node.children)
        for cluster in self.config.clusters:
            said = say_what_is_left(self, self.functions["install"], cluster, self.config.cell)
            said.node.add_dependency(*everything)

    def _queue(self, name: str, timeout_seconds: int) -> WorkQueue:
        id, retries = f"{name.capitalize()}Queue", WARNING_RETRIES if name == "interrupt" else USUAL_RETRIES
        return WorkQueue(self, id, timeout_seconds=timeout_seconds, retries=retries, key=self.key)

    def _named(self, *names: str) -> tuple[Function, ...]:
        return tuple(self.functions[name] for name in names)

    def _tell_clusters(self) -> None:
        """Added late: a cluster's roles trust the functions' roles, so they come after the functions."""
        clusters = {access.cluster.name: access.environment for access in self.access}
        for spec in QUEUE_FUNCTIONS:
            self.functions[spec.name].function.add_environment("SPOTWRIGHT_CLUSTERS", self.to_json_string(clusters))

    def _environment(self) -> dict[str, str]:
        return {
            "SPOTWRIGHT_CELL": self.config.cell,
            "SPOTWRIGHT_TABLE": self.state.table.table_name,
            "SPOTWRIGHT_BUCKET": self.state.bucket.bucket_name,
            **({"SPOTWRIGHT_MEMORY_TABLE": self.config.memory_table} if self.config.memory_table else {}),
            **self._doorbell_urls(_RUNG),
            "POWERTOOLS_METRICS_NAMESPACE": "Spotwright",
            "POWERTOOLS_LOG_LEVEL": self.config.log_level,
        }

    def _forwarder_environment(self, cluster: Cluster) -> dict[str, str]:
        return {
            "SPOTWRIGHT_CELL": self.config.cell,
            "SPOTWRIGHT_CLUSTER": cluster.name,
            "SPOTWRIGHT_TABLE": self.state.table.table_name,
            "SPOTWRIGHT_BUCKET": self.state.bucket.bucket_name,
            **self._doorbell_urls(("provision", "lifecycle", "catalog")),
            "AWS_REGION": self.region,
            **cluster.forwarder_settings,
        }

    def _doorbell_urls(self, names: tuple[str, ...]) -> dict[str, str]:
        return {f"SPOTWRIGHT_{name.upper()}_QUEUE_URL": self.queues[name].queue.queue_url for name in names}

    # Everywhere ---------------------------------------------------------------------------------------------

    def _everywhere(self) -> None:
        for name, value in self.config.tags.items():
            Tags.of(self).add(name, value)
        boundary = self.config.permissions_boundary
        if boundary:
            arn = boundary if boundary.startswith("arn:") else self._policy_arn(boundary)
            policy = iam.ManagedPolicy.from_managed_policy_arn(self, "Boundary", arn)
            iam.PermissionsBoundary.of(self).apply(policy)

    def _policy_arn(self, name: str) -> str:
        return f"arn:{self.partition}:iam::{self.account}:policy/{name}"

    def _outputs(self) -> None:
        outputs: Mapping[str, str] = {
            "Clusters": ",".join(cluster.name for cluster in self.config.clusters),
            "TableName": self.state.table.table_name,
            "BucketName": self.state.bucket.bucket_name,
            **({"MemoryTableName": self.config.memory_table} if self.config.memory_table else {}),
            "DashboardName": self.dashboard.page.dashboard_name,
            **{f"{name.capitalize()}QueueUrl": work_queue.queue.queue_url for name, work_queue in self.queues.items()},
            **{f"FunctionName{name.capitalize()}": f.function.function_name for name, f in self.functions.items()},
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html and its like for
#: SQS, S3 and Lambda's environment.
_KEY_USE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
