"""A Lambda function as the cell has them: own role, own log group, one asset folder, one layer."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.config import Config
from infra.grants import Grant, acknowledge, grant
from infra.layer import RUNTIME, lambda_architecture
from infra.queues import WorkQueue
from layers.core import authorities
from layers.core.build import ROOT

#: Memory buys a share of a processor: 1,769 MB a whole one, which is all that one thread of Python can use. Chosen by
#: measurement, docs/memory.md.
_WHOLE_PROCESSOR_MB = 1769
_BATCH = 10
#: Queues besides a function's own that wake it. Notices of interruptions leave two minutes, and wait behind no other
#: work of `lifecycle`. EC2 tells of every instance of the account that starts or ends, by thousands where others use
#: it, and warnings wait behind none of that.
FURTHER_QUEUES = {"notices": "lifecycle", "changes": "interrupt"}
#: How many of their batches run at once. While two of the notices plan and gather, others launch what was planned.
_FURTHER_CONCURRENCY = {"notices": 4, "changes": 2}


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """What differs between the functions.

    `max_concurrency` bounds how many batches of its queue run at the same time (AWS allows 2 at least).
    `recursive` are functions that ring themselves or each other until a row is settled: longer chains than the 16 hops
    after which Lambda suspects a loop; each row caps its own ticks.
    """

    name: str
    timeout_seconds: int
    memory_mb: int
    max_concurrency: int = 2
    recursive: bool = False


#: The functions fed by a queue of the same name.
QUEUE_FUNCTIONS = (
    FunctionSpec("provision", 60, _WHOLE_PROCESSOR_MB, max_concurrency=5, recursive=True),
    FunctionSpec("lifecycle", 30, _WHOLE_PROCESSOR_MB, max_concurrency=10, recursive=True),
    FunctionSpec("interrupt", 10, _WHOLE_PROCESSOR_MB),
    FunctionSpec("disrupt", 60, _WHOLE_PROCESSOR_MB, recursive=True),
    FunctionSpec("catalog", 60, 1024),
    FunctionSpec("sweep", 30, 512, recursive=True),
)
#: Invoked by CloudFormation only.
INSTALL = FunctionSpec("install", 300, 512)


class Function(Construct):
    """One folder of `functions/`, deployed; its role may write its own logs and nothing else yet."""

    def __init__(
        self,
        scope: Construct,
        spec: FunctionSpec,
        *,
        config: Config,
        layer: lambda_.ILayerVersion,
        environment: Mapping[str, str],
        key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, spec.name.capitalize())
        self.spec = spec
        name = f"Spotwright-{config.cell}-{spec.name}"
        self.logs = logs.LogGroup(
            self,
            "Logs",
            log_group_name=f"/aws/lambda/{name}",
            encryption_key=key,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.logs.node.default_child.retention_in_days = config.log_retention_days  # type: ignore[union-attr]
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            path=config.role_path,
            description=f"Spotwright {config.cell}: what the {spec.name} function may do",
        )
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=name,
            runtime=RUNTIME,
            architecture=lambda_architecture(config.architecture),
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(ROOT / "functions" / spec.name), exclude=["__pycache__"]),
            layers=[layer],
            role=self.role,
            memory_size=spec.memory_mb,
            timeout=Duration.seconds(spec.timeout_seconds),
            environment={**environment, "POWERTOOLS_SERVICE_NAME": spec.name, "AWS_CA_BUNDLE": authorities.PATH},
            environment_encryption=key,
            log_group=self.logs,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if spec.recursive else lambda_.RecursiveLoop.TERMINATE,
        )
        acknowledge(
            self.function,
            "AwsSolutions-L1",
            "Bytecode and locked dependencies are built and tested for Python 3.13; the runtime moves with them.",
        )
        self.grant(self._own_logs)
        self._join(config)

    @property
    def arn(self) -> str:
        return self.function.function_arn

    def grant(self, *grants: Grant) -> None:
        grant(self.role, *grants)

    def add_queue(self, queue: WorkQueue, name: str) -> lambda_.EventSourceMapping:
        """Wakes the function by a queue; a failed message is retried alone, its batch neighbours are done."""
        self.grant(queue.receive)
        is_own = name == self.spec.name
        mapping = lambda_.EventSourceMapping(
            self,
            "Feed" if is_own else f"{name.capitalize()}Feed",
            target=self.function,
            event_source_arn=queue.queue.queue_arn,
            batch_size=_BATCH,
            max_concurrency=self.spec.max_concurrency if is_own else _FURTHER_CONCURRENCY[name],
            report_batch_item_failures=True,
        )
        mapping.node.add_dependency(self.role)
        return mapping

    @property
    def _own_logs(self) -> Grant:
        return Grant(
            "OwnLogs",
            ("logs:CreateLogStream", "logs:PutLogEvents"),
            (self.logs.log_group_arn,),
            wildcard_reason="The function's own log group; its streams are named by Lambda as it starts processes.",
        )

    def _join(self, config: Config) -> None:
        """Puts the function into the cell's network, if it has one."""
        if config.network is None:
            return
        resource = self.function.node.default_child
        assert isinstance(resource, lambda_.CfnFunction)
        resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(config.network.subnet_ids),
            security_group_ids=list(config.network.security_group_ids),
        )
        self.grant(_NETWORK_INTERFACES)


#: What Lambda needs of a function's role to attach it to subnets; its own managed policy says the same.
#: https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions
_NETWORK_INTERFACES = Grant(
    "NetworkInterfaces",
    (
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
    ),
    ("*",),
    wildcard_reason="Lambda makes the interfaces itself and checks this permission without naming a resource.",
)
