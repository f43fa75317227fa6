"""What is kept, how it is protected, and what a destroyed stack leaves."""

from tests.infra.template import Template, statements


def test_rows_expire_wait_and_can_be_brought_back(plain: Template) -> None:
    (table,) = plain.of("AWS::DynamoDB::Table").values()
    keys = {(each["AttributeName"], each["AttributeType"]) for each in table["AttributeDefinitions"]}
    assert keys == {("pk", "S"), ("sk", "S"), ("timer", "S"), ("due", "N")}
    assert [each["AttributeName"] for each in table["KeySchema"]] == ["pk", "sk"]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "due"
    assert [each["AttributeName"] for each in index["KeySchema"]] == ["timer", "due"]
    assert index["Projection"] == {"ProjectionType": "ALL"}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"


def test_bodies_are_private_encrypted_and_fetched_over_tls(plain: Template) -> None:
    (bucket,) = plain.of("AWS::S3::Bucket").values()
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert "VersioningConfiguration" not in bucket
    (policy,) = plain.of("AWS::S3::BucketPolicy").values()
    conditions = [
        statement.conditions for statement in statements(policy["PolicyDocument"]) if statement.effect == "Deny"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in conditions
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in conditions


def test_decisions_snapshots_and_cluster_states_expire_and_catalogs_stay(plain: Template, full: Template) -> None:
    for template, days in ((plain, 30), (full, 90)):
        (bucket,) = template.of("AWS::S3::Bucket").values()
        rules = bucket["LifecycleConfiguration"]["Rules"]
        assert {(rule["Prefix"], rule["ExpirationInDays"]) for rule in rules} == {
            ("decisions/", days),
            ("snapshots/", days),
            ("clusters/", 1),
        }


def test_a_destroyed_stack_leaves_the_record_of_decisions_and_nothing_else(plain: Template) -> None:
    kept = [id for id, resource in plain.resources.items() if resource.get("DeletionPolicy", "Delete") != "Delete"]
    (bucket,) = plain.of("AWS::S3::Bucket")
    assert kept == [bucket]


def test_a_destroyed_stack_leaves_nothing_if_the_context_says_so(full: Template) -> None:
    assert all(resource.get("DeletionPolicy", "Delete") == "Delete" for resource in full.resources.values())
    ((contents_id, contents),) = full.of("Custom::SpotwrightBucketContents").items()
    (bucket,) = full.of("AWS::S3::Bucket")
    assert contents["Bucket"] == f"<{bucket}>"
    # Deleted in reverse: first nobody is woken any more, then the bucket is emptied, then deleted.
    feeds = [resource for resource in full.resources.values() if resource["Type"] == "AWS::Lambda::EventSourceMapping"]
    assert all(contents_id in feed["DependsOn"] for feed in feeds)


def test_a_customers_key_encrypts_everything_that_is_kept(full: Template) -> None:
    from tests.infra.conftest import KEY

    (table,) = full.of("AWS::DynamoDB::Table").values()
    assert table["SSESpecification"] == {"KMSMasterKeyId": KEY, "SSEEnabled": True, "SSEType": "KMS"}
    (bucket,) = full.of("AWS::S3::Bucket").values()
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"KMSMasterKeyID": KEY, "SSEAlgorithm": "aws:kms"}
    for kind, field in {
        "AWS::SQS::Queue": "KmsMasterKeyId",
        "AWS::Logs::LogGroup": "KmsKeyId",
        "AWS::Lambda::Function": "KmsKeyArn",
        "AWS::Scheduler::Schedule": "KmsKeyArn",
    }.items():
        assert {resource[field] for resource in full.of(kind).values()} == {KEY}


def test_whoever_touches_encrypted_things_may_use_the_key(full: Template) -> None:
    from tests.infra.conftest import KEY

    clusters = {full.cluster_role(cluster, name) for cluster in ("one", "two") for name in ("Read", "Act")}
    for role in set(full.of("AWS::IAM::Role")) - clusters:
        granted = [statement for statement in full.statements(role) if statement.sid == "UseKey"]
        assert [statement.resources for statement in granted] == [(KEY,)]


def test_without_a_key_queues_are_encrypted_all_the_same(plain: Template) -> None:
    assert all(resource["SqsManagedSseEnabled"] is True for resource in plain.of("AWS::SQS::Queue").values())
