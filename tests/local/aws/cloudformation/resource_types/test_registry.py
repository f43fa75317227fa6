"""Every kind of resource that the local CloudFormation knows."""

import json
from typing import Any

from tests.local.aws.cloudformation.stack_driver import StackDriver
from tests.local.aws.serverless import TRUST_LAMBDA, Aws


def test_every_kind_of_resource_comes_and_goes(aws: Aws) -> None:
    stack = StackDriver(aws, "everything")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    trust_scheduler = json.loads(json.dumps(TRUST_LAMBDA).replace("lambda", "scheduler"))

    def of(kind: str, **properties: Any) -> dict[str, Any]:
        return {"Type": f"AWS::{kind}", "Properties": properties}

    keys = {"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}]}
    keys |= {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}
    status = stack.create(
        {
            "Meta": of("CDK::Metadata", Analytics="v2"),
            "Role": of("IAM::Role", AssumeRolePolicyDocument=TRUST_LAMBDA, Path="/part/"),
            "SchedulerRole": of("IAM::Role", AssumeRolePolicyDocument=trust_scheduler),
            "Inline": of("IAM::Policy", PolicyName="p", PolicyDocument=policy, Roles=[{"Ref": "Role"}]),
            "Managed": of("IAM::ManagedPolicy", PolicyDocument=policy, Path="/part/", Roles=[{"Ref": "Role"}]),
            "Profile": of("IAM::InstanceProfile", Roles=[{"Ref": "Role"}]),
            "Key": of("KMS::Key", KeyPolicy=policy, EnableKeyRotation=True),
            "Alias": of("KMS::Alias", AliasName="alias/everything", TargetKeyId={"Ref": "Key"}),
            "Dead": of("SQS::Queue", MessageRetentionPeriod=1209600),
            "Queue": of(
                "SQS::Queue",
                KmsMasterKeyId={"Fn::GetAtt": ["Key", "Arn"]},
                RedrivePolicy={"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 3},
            ),
            "Letting": of("SQS::QueuePolicy", Queues=[{"Ref": "Queue"}], PolicyDocument=policy),
            "Rule": of(
                "Events::Rule",
                EventPattern={"source": ["aws.ec2"]},
                State="ENABLED",
                Targets=[{"Id": "T", "Arn": {"Fn::GetAtt": ["Queue", "Arn"]}}],
            ),
            "Group": of("Scheduler::ScheduleGroup", Name="everything"),
            "Schedule": of(
                "Scheduler::Schedule",
                GroupName={"Ref": "Group"},
                ScheduleExpression="rate(1 hour)",
                FlexibleTimeWindow={"Mode": "OFF"},
                State="DISABLED",
                Target={
                    "Arn": {"Fn::GetAtt": ["Queue", "Arn"]},
                    "RoleArn": {"Fn::GetAtt": ["SchedulerRole", "Arn"]},
                    "Input": "{}",
                    "RetryPolicy": {"MaximumRetryAttempts": 2},
                },
            ),
            "Bucket": of(
                "S3::Bucket",
                BucketEncryption={
                    "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
                },
                LifecycleConfiguration={"Rules": [{"Id": "old", "Status": "Enabled", "ExpirationInDays": 30}]},
                VersioningConfiguration={"Status": "Enabled"},
                PublicAccessBlockConfiguration={"BlockPublicAcls": True},
            ),
            "BucketPolicy": of("S3::BucketPolicy", Bucket={"Ref": "Bucket"}, PolicyDocument=policy),
            "Table": of(
                "DynamoDB::GlobalTable",
                **keys,
                BillingMode="PAY_PER_REQUEST",
                TimeToLiveSpecification={"AttributeName": "expires", "Enabled": True},
                SSESpecification={"SSEEnabled": True, "SSEType": "KMS"},
                Replicas=[
                    {
                        "Region": {"Ref": "AWS::Region"},
                        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
                    }
                ],
            ),
            "Plain": of("DynamoDB::Table", **keys, BillingMode="PAY_PER_REQUEST"),
            "Logs": of("Logs::LogGroup", RetentionInDays=7),
            "Topic": of("SNS::Topic", DisplayName="news"),
            "Subscription": of(
                "SNS::Subscription", TopicArn={"Ref": "Topic"}, Protocol="email", Endpoint="oncall@example.com"
            ),
            "Alarm": of(
                "CloudWatch::Alarm",
                MetricName="m",
                Namespace="n",
                Statistic="Sum",
                Period=60,
                EvaluationPeriods=1,
                Threshold=1,
                ComparisonOperator="GreaterThanThreshold",
                AlarmActions=[{"Ref": "Topic"}],
            ),
            "SumAlarm": of(
                "CloudWatch::Alarm",
                AlarmName="a-sum",
                AlarmDescription="of two metrics",
                Metrics=[
                    {"Id": "expr_1", "Expression": "SUM(METRICS())", "Label": "sum"},
                    *(
                        {
                            "Id": f"m{number}",
                            "MetricStat": {
                                "Metric": {
                                    "Namespace": "n",
                                    "MetricName": "m",
                                    "Dimensions": [{"Name": "service", "Value": f"s{number}"}],
                                },
                                "Period": 300,
                                "Stat": "Sum",
                            },
                            "ReturnData": False,
                        }
                        for number in range(2)
                    ),
                ],
                EvaluationPeriods=2,
                Threshold=1,
                ComparisonOperator="GreaterThanOrEqualToThreshold",
                TreatMissingData="notBreaching",
                AlarmActions=[{"Ref": "Topic"}],
                OKActions=[{"Ref": "Topic"}],
            ),
            "Dashboard": of(
                "CloudWatch::Dashboard",
                DashboardBody='{"widgets": []}',
                Tags=[{"Key": "team", "Value": "platform"}],
            ),
            "Parameter": of("SSM::Parameter", Type="String", Value="v", Tags={"a": "b"}),
            "Repository": of("ECR::Repository", ImageTagMutability="IMMUTABLE"),
            "Function": of(
                "Lambda::Function",
                Code={"ZipFile": "def handler(e, c):\n    return 7"},
                Handler="index.handler",
                Runtime="python3.13",
                Role={"Fn::GetAtt": ["Role", "Arn"]},
                LoggingConfig={"LogGroup": {"Ref": "Logs"}},
                Tags=[{"Key": "a", "Value": "b"}],
            ),
            "Permission": of(
                "Lambda::Permission",
                FunctionName={"Ref": "Function"},
                Action="lambda:InvokeFunction",
                Principal="events.amazonaws.com",
                SourceArn={"Fn::GetAtt": ["Rule", "Arn"]},
            ),
            "Mapping": of(
                "Lambda::EventSourceMapping",
                FunctionName={"Ref": "Function"},
                EventSourceArn={"Fn::GetAtt": ["Queue", "Arn"]},
                ScalingConfig={"MaximumConcurrency": 2},
                FunctionResponseTypes=["ReportBatchItemFailures"],
            ),
            "Version": of("Lambda::Version", FunctionName={"Ref": "Function"}),
            "LiveAlias": of(
                "Lambda::Alias",
                Name="live",
                FunctionName={"Ref": "Function"},
                FunctionVersion={"Fn::GetAtt": ["Version", "Version"]},
            ),
        }
    )
    assert status == "CREATE_COMPLETE", stack.reasons()
    assert aws.invoke(stack.ids()["Function"], Qualifier="live")[0] == 7
    assert stack.delete() == "DELETE_COMPLETE", stack.reasons()
