"""What the context may say, what it may not, and that what it says holds everywhere."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_sqs as sqs

from infra.app import add_checks, new_app
from infra.config import FORWARDER_SETTINGS, KEYS_OF_CELLS, KEYS_OF_CLUSTERS, SETTINGS, Config, parse_config
from infra.fields import ConfigError
from tests.infra.conftest import BOUNDARY, ROOT, TOPIC, add_schema_checks, cluster
from tests.infra.template import Template

NETWORK = {"vpcId": "vpc-0123456a", "subnetIds": ["subnet-0123456a"], "securityGroupIds": ["sg-0123456a"]}


def context(**fields: Any) -> dict[str, Any]:
    return {"clusters": [cluster("one")], **fields}


def one(**fields: Any) -> dict[str, Any]:
    return {"clusters": [{**cluster("one"), **fields}]}


@pytest.mark.parametrize(
    ("given", "field", "value", "allowed"),
    [
        (None, "spotwright", "nothing", "an object"),
        ("{", "spotwright", "'{'", "a JSON object"),
        ([], "spotwright", "[]", "an object"),
        ({}, "spotwright.clusters", "nothing", "a list of 1 to 10 objects"),
        ({"clusters": []}, "spotwright.clusters", "[]", "a list of 1 to 10 objects"),
        ({"clusters": ["one"]}, "spotwright.clusters[0]", "'one'", "an object"),
        (context(cell="Main"), "spotwright.cell", "'Main'", "a lower-case word"),
        (context(cell=7), "spotwright.cell", "7", "a lower-case word"),
        (context(celll="x"), "spotwright.celll", "'x'", "did you mean cell? allowed here: alarmEmail, alarmTopicArn"),
        (context(architecture="arm"), "spotwright.architecture", "'arm'", "arm64, x86_64"),
        (context(logRetentionDays=8), "spotwright.logRetentionDays", "8", "1, 3, 5, 7"),
        (context(logRetentionDays=True), "spotwright.logRetentionDays", "true", "1, 3, 5, 7"),
        (context(decisionRetentionDays=0), "spotwright.decisionRetentionDays", "0", "from 1 to 3650"),
        (context(logLevel="debug"), "spotwright.logLevel", "'debug'", "DEBUG, INFO"),
        (context(rolePath="x"), "spotwright.rolePath", "'x'", "starts and ends with /"),
        (context(rolePath=f"/{'p' * 511}/"), "spotwright.rolePath", "'/ppp", "starts and ends with /"),
        (context(kmsKeyArn="alias/x"), "spotwright.kmsKeyArn", "'alias/x'", "not an alias"),
        (context(permissionsBoundary="a b"), "spotwright.permissionsBoundary", "'a b'", "ARN or name"),
        (context(alarmTopicArn="me"), "spotwright.alarmTopicArn", "'me'", "an SNS topic's ARN"),
        (context(alarmEmail="me"), "spotwright.alarmEmail", "'me'", "an e-mail address"),
        (context(alarmEmail="a@b.cd", alarmTopicArn=TOPIC), "spotwright.alarmEmail", "'a@b.cd'", "not both"),
        (context(memoryTable="arn:x"), "spotwright.memoryTable", "'arn:x'", "TableName of another cell's stack"),
        (context(tags={"aws:x": "y"}), "spotwright.tags", "'aws:x'", "do not start with aws:"),
        (context(tags={"x": 1}), "spotwright.tags.x", "1", "a text"),
        (context(removeDataOnDestroy="yes"), "spotwright.removeDataOnDestroy", "'yes'", "true or false"),
        (one(name="-"), "spotwright.clusters[0].name", "'-'", "an EKS cluster's name"),
        (one(nodeRoles=[]), "spotwright.clusters[0].nodeRoles", "[]", "IAM role names"),
        (one(nodeRoles="x"), "spotwright.clusters[0].nodeRoles", "'x'", "a list of IAM role names"),
        (
            one(nodeRoles=["arn:aws:iam::123456789012:role/a"]),
            "spotwright.clusters[0].nodeRoles[0]",
            "role/a",
            "not ARNs",
        ),
        (one(nodeRoles=["/nodes/a"]), "spotwright.clusters[0].nodeRoles[0]", "'/nodes/a'", "IAM role names"),
        (one(nodeRoles=[""]), "spotwright.clusters[0].nodeRoles[0]", "''", "IAM role names"),
        (
            one(forwarderArchitecture="x86_64"),
            "spotwright.clusters[0].forwarderArchitecture",
            "x86_64",
            "amd64 or arm64",
        ),
        (one(nodeRoles=["a b"]), "spotwright.clusters[0].nodeRoles[0]", "'a b'", "IAM role names"),
        (one(nodeRoles=["a", "a"]), "spotwright.clusters[0].nodeRoles", '["a","a"]', "each value once"),
        (one(forwarderImage=""), "spotwright.clusters[0].forwarderImage", "''", "an image reference"),
        (one(vpc={**NETWORK, "vpcId": "x"}), "spotwright.clusters[0].vpc.vpcId", "'x'", "a VPC id"),
        (one(vpc={**NETWORK, "subnets": 1}), "spotwright.clusters[0].vpc.subnets", "1", "subnetIds"),
        (one(settings={"NOPE": "1"}), "spotwright.clusters[0].settings", "'NOPE'", "PREFERENCE_POLICY"),
        (
            one(settings={"FEATURE_GATE": "x"}),
            "spotwright.clusters[0].settings",
            "'FEATURE_GATE'",
            "did you mean FEATURE_GATES? a map of PREFERENCE_POLICY",
        ),
        (one(settings={"WORK_UNITS": 9}), "spotwright.clusters[0].settings.WORK_UNITS", "9", 'allowed: a text: "9"'),
        (one(settings={"ISOLATED_VPC": True}), "spotwright.clusters[0].settings.ISOLATED_VPC", "true", 'text: "true"'),
        (context(settings={}), "spotwright.settings", "{}", "it belongs into an entry of clusters; allowed here"),
        (context(vpc=NETWORK), "spotwright.vpc", "vpc-0123456a", "it belongs into an entry of clusters; allowed here"),
        (one(kmsKeyArn="x"), "spotwright.clusters[0].kmsKeyArn", "'x'", "it belongs beside clusters, not into one"),
        (
            one(settings={"PREFERENCE_POLICY": "Maybe"}),
            "spotwright.clusters[0].settings",
            "'Maybe'",
            "Respect, Ignore",
        ),
        (
            one(settings={"BATCH_IDLE_DURATION": "1"}),
            "spotwright.clusters[0].settings.BATCH_IDLE_DURATION",
            "'1'",
            "a duration such as 1s",
        ),
        (
            one(nodeRolesWithAccessEntry=["other"]),
            "spotwright.clusters[0].nodeRolesWithAccessEntry",
            '["other"]',
            "names from nodeRoles",
        ),
        (
            one(windowsNodeRoles=["other"]),
            "spotwright.clusters[0].windowsNodeRoles",
            '["other"]',
            "names from nodeRoles",
        ),
        (
            one(skipChecks=["network", "netwrok"]),
            "spotwright.clusters[0].skipChecks[1]",
            "'netwrok'",
            "endpoint, network",
        ),
        (
            {"clusters": [cluster(f"c{n}", nodeRoles=[f"role-{r:050}" for r in range(6)]) for n in range(9)]},
            "spotwright.clusters",
            '["c0",',
            "4 KB",
        ),
        (
            one(nodeRoles=[f"role-{n:050}" for n in range(50)]),
            "spotwright.clusters[0].nodeRoles",
            "role-0000",
            "fit into a policy",
        ),
        (one(noderoles=["x"]), "spotwright.clusters[0].noderoles", '["x"]', "did you mean nodeRoles? allowed here"),
        (
            {"clusters": [{"nam": "one", "nodeRoles": ["x"]}]},
            "spotwright.clusters[0].name",
            "nothing",
            "spotwright.clusters[0].nam is there, did you mean name?",
        ),
        (
            {"clusters": [{"name": "one", "nodeRole": ["x"]}]},
            "spotwright.clusters[0].nodeRoles",
            "[]",
            "spotwright.clusters[0].nodeRole is there, did you mean nodeRoles?",
        ),
        ({"cluster": [cluster("a")]}, "spotwright.clusters", "nothing", "cluster is there, did you mean clusters?"),
        ({"clusters": [cluster("a"), cluster("a")]}, "spotwright.clusters", '["a","a"]', "each name once"),
        (
            {"clusters": [cluster("a"), cluster("b", vpc=NETWORK)]},
            "spotwright.clusters",
            "vpc-0123456a",
            "the same vpc",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_name(given: object, field: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(given)
    message = str(refused.value)
    assert message.startswith(f"{field}: got ")
    assert value in message
    assert allowed in message


def test_a_key_of_the_other_place_is_told_from_a_misspelt_one_for_every_key() -> None:
    with pytest.raises(ConfigError) as of_cell:
        parse_config(context(x=1))
    with pytest.raises(ConfigError) as of_cluster:
        parse_config(one(x=1))
    assert str(of_cell.value).endswith(f"allowed here: {', '.join(sorted([*KEYS_OF_CELLS, 'clusters']))}")
    assert str(of_cluster.value).endswith(f"allowed here: {', '.join(sorted(KEYS_OF_CLUSTERS))}")


def test_another_key_that_is_known_is_no_misspelt_one() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config({"clusters": [{"name": "one", "windowsNodeRoles": ["x"]}]})
    assert "did you mean" not in str(refused.value)


def test_the_command_ends_with_one_sentence_that_says_what_is_wrong() -> None:
    wrong = json.dumps({"spotwright": one(nodeRoles=5)})
    environment = {**os.environ, "CDK_CONTEXT_JSON": wrong}
    command = [sys.executable, "-m", "infra.app"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 1
    assert ended.stderr == (
        "error: spotwright.clusters[0].nodeRoles: got 5, allowed: a list of IAM role names, with the path if any"
        " (mine, nodes/mine), not ARNs, at least one\n"
    )


def test_what_is_not_said_has_defaults() -> None:
    assert parse_config(context()) == Config(clusters=parse_config(context()).clusters)


def test_the_command_line_gives_json_and_the_architecture_goes_first() -> None:
    config = parse_config(json.dumps(context(architecture="arm64")), "x86_64")
    assert config.architecture == "x86_64"
    with pytest.raises(ConfigError, match="architecture: got 'mips', allowed: arm64, x86_64"):
        parse_config(context(), "mips")


def test_the_published_context_is_sound() -> None:
    parse_config(json.loads((ROOT / "cdk.json").read_text())["context"]["spotwright"])


def test_boundary_and_path_hold_for_every_role(full: Template) -> None:
    roles = full.of("AWS::IAM::Role").values()
    assert {(role["PermissionsBoundary"], role["Path"]) for role in roles} == {(BOUNDARY, "/platform/")}


def test_tags_hold_for_everything_that_takes_them(full: Template) -> None:
    #: These resource types have no tags in CloudFormation, or none that CDK writes.
    untagged = {
        "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::Lambda::LayerVersion", "AWS::S3::BucketPolicy",
        "AWS::SQS::QueuePolicy", "AWS::Scheduler::Schedule", "Custom::SpotwrightBucketContents",
        "Custom::SpotwrightClusters", "Custom::SpotwrightInstall", "Custom::SpotwrightNodesLeft",
        "Custom::SpotwrightPreflight",
    }  # fmt: skip
    for id, resource in full.resources.items():
        if resource["Type"] not in untagged:
            assert {"Key": "team", "Value": "compute"} in resource["Properties"]["Tags"], id


def test_nothing_is_looked_up(plain: Template, full: Template) -> None:
    assert plain.missing == full.missing == []
    assert not (ROOT / "cdk.context.json").exists()


def test_no_partition_is_written_down(plain: Template, china: Template) -> None:
    assert "arn:aws:" not in json.dumps(plain.body)
    assert "arn:aws:" not in json.dumps(china.body)


def test_another_partition_has_its_own_arns(china: Template) -> None:
    act = {statement.sid: statement for statement in china.statements(china.cluster_role("one", "Act"))}
    assert act["PassNodeRoles"].resources == ("arn:aws-cn:iam::111122223333:role/KarpenterNodeRole-one",)
    assert act["Terminate"].resources == ("arn:aws-cn:ec2:cn-north-1:111122223333:instance/*",)
    boundaries = {role["PermissionsBoundary"] for role in china.of("AWS::IAM::Role").values()}
    assert boundaries == {"arn:aws-cn:iam::111122223333:policy/Boundary"}
    install = {statement.sid: statement for statement in china.statements(china.role_id("install"))}
    (policy,) = install["AdministerCluster"].conditions["ArnEquals"].values()
    assert policy.startswith("arn:aws-cn:eks::aws:")


def test_a_template_that_cloudformation_would_refuse_fails_the_tests() -> None:
    app = new_app({})
    add_schema_checks(app)
    sqs.CfnQueue(Stack(app, "Wrong"), "Queue", visibility_timeout=1_000_000)
    with pytest.raises(RuntimeError, match="VisibilityTimeout"):
        app.synth()


def test_a_finding_that_nobody_acknowledged_fails_the_synthesis() -> None:
    app = new_app({})
    add_checks(app)
    sqs.Queue(Stack(app, "Careless"), "Queue")
    with pytest.raises(RuntimeError, match="AwsSolutions-SQS4"):
        app.synth()


def test_every_setting_is_one_that_something_obeys() -> None:
    functions = [path.read_text() for path in (ROOT / "layers/core/python").rglob("*.py")]
    forwarder = [path.read_text() for path in (ROOT / "forwarder").rglob("*.py")]
    for name in SETTINGS:
        assert any(f'"{name}"' in code for code in functions), name
    for name in FORWARDER_SETTINGS:
        assert any(f'"{name}"' in code for code in forwarder), name


def test_every_setting_that_a_function_obeys_can_be_given() -> None:
    code = (ROOT / "layers/core/python/spotwright/settings.py").read_text()
    read = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', code)) - {"AWS_REGION", "SPOTWRIGHT_CLUSTERS"}
    obeyed = {name for name in read if not name.startswith("SPOTWRIGHT_")}
    assert "PREFERENCE_POLICY" in obeyed
    assert obeyed <= set(SETTINGS)
