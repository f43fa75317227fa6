"""What a cell remembers: one table of rows that move, one bucket of bodies that never change."""

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.config import Config
from infra.grants import Grant, acknowledge

#: Rows are never deleted: what is finished expires.
_ROW_ACTIONS = tuple(f"dynamodb:{call}" for call in ("BatchGetItem", "GetItem", "Query", "PutItem", "UpdateItem"))

#: Content-addressed and named by a decision; decisions themselves expire with them.
_EXPIRING_PREFIXES = ("decisions/", "snapshots/")

#: The forwarders write the bodies of their clusters' states below it, each anew at least every twelve hours.
_CLUSTER_STATES = "clusters/"
_CLUSTER_STATE_DAYS = 1


class State(Construct):
    """The table `state` and the bucket `decisions`, and what of them a role may be granted.

    The table goes with the stack: losing it costs at most the launches in flight, which are collected. The
    bucket holds the record of every decision, so it stays unless the context says `removeDataOnDestroy`.
    """

    def __init__(self, scope: Construct, config: Config, key: kms.IKey | None) -> None:
        super().__init__(scope, "State")
        self._memory_table = config.memory_table
        self.table = _table(self, key)
        self.bucket = _bucket(self, config, key)

    @property
    def rows(self) -> Grant:
        """Read and write every row."""
        index = f"{self.table.table_arn}/index/due"
        return Grant("Rows", _ROW_ACTIONS, (self.table.table_arn, index))

    def partition_rows(self, partition: str) -> Grant:
        """Write the rows of one partition only."""
        own = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [partition]}}
        return Grant("OwnRows", ("dynamodb:PutItem",), (self.table.table_arn,), own)

    def cluster_state(self, cluster: str) -> Grant:
        """Write the bodies of one cluster's state; reading and deleting is for others."""
        bodies = (self.bucket.arn_for_objects(f"{_CLUSTER_STATES}{cluster}/state/*"),)
        return Grant("ClusterState", ("s3:PutObject",), bodies, wildcard_reason=_BODIES)

    def account_rows(self, *calls: str) -> Grant:
        """What a function may ask of the account's memory in another cell's table: those partitions only."""
        shared = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["offering", "rate"]}}
        table = Stack.of(self).format_arn(service="dynamodb", resource="table", resource_name=self._memory_table)
        return Grant("Memory", tuple(f"dynamodb:{call}" for call in calls), (table,), shared)

    @property
    def read_bodies(self) -> tuple[Grant, ...]:
        """Read decisions, snapshots and catalogs. Listing tells an absent body (404) from a denied one (403)."""
        return (
            Grant("ReadBodies", ("s3:GetObject",), (self.bucket.arn_for_objects("*"),), wildcard_reason=_BODIES),
            Grant("SeeBodies", ("s3:ListBucket",), (self.bucket.bucket_arn,)),
        )

    @property
    def bodies(self) -> tuple[Grant, ...]:
        """Read and write decisions, snapshots and catalogs; nobody deletes one."""
        write = Grant("WriteBodies", ("s3:PutObject",), (self.bucket.arn_for_objects("*"),), wildcard_reason=_BODIES)
        return (*self.read_bodies, write)

    @property
    def empty_bucket(self) -> tuple[Grant, ...]:
        """Delete everything in the bucket, for the one who takes the stack down."""
        contents = (self.bucket.arn_for_objects("*"),)
        return (
            Grant("DeleteBodies", ("s3:DeleteObject", "s3:DeleteObjectVersion"), contents, wildcard_reason=_BODIES),
            Grant("ListBodies", ("s3:ListBucketVersions",), (self.bucket.bucket_arn,)),
        )


_BODIES = "Objects are named by the hash of their content, so their names are not known beforehand."


def _table(scope: Construct, key: kms.IKey | None) -> dynamodb.Table:
    table = dynamodb.Table(
        scope,
        "Table",
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute="expires",
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if key else dynamodb.TableEncryption.DEFAULT,
        encryption_key=key,
        removal_policy=RemovalPolicy.DESTROY,
    )
    table.add_global_secondary_index(
        index_name="due",
        partition_key=dynamodb.Attribute(name="timer", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="due", type=dynamodb.AttributeType.NUMBER),
        projection_type=dynamodb.ProjectionType.ALL,
    )
    return table


def _bucket(scope: Construct, config: Config, key: kms.IKey | None) -> s3.Bucket:
    bucket = s3.Bucket(
        scope,
        "Bucket",
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        lifecycle_rules=[
            s3.LifecycleRule(prefix=prefix, expiration=Duration.days(config.decision_retention_days))
            for prefix in _EXPIRING_PREFIXES
        ]
        + [s3.LifecycleRule(prefix=_CLUSTER_STATES, expiration=Duration.days(_CLUSTER_STATE_DAYS))],
        removal_policy=RemovalPolicy.DESTROY if config.remove_data_on_destroy else RemovalPolicy.RETAIN,
    )
    acknowledge(
        bucket,
        "AwsSolutions-S1",
        "Access is by the cell's own roles, each object is written once; CloudTrail data events record more "
        "than server access logs would, and need no second bucket.",
    )
    return bucket
