"""The real CDK command line: bootstrap, deploy, diff, deploy again, change, destroy; every one ends well."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.local.aws.serverless import ACCOUNT, REGION, ROOT, TRUST_LAMBDA, Aws

CDK = ROOT / "node_modules" / ".bin" / "cdk"
ENVIRONMENT = f"aws://{ACCOUNT}/{REGION}"
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"


def role(name: str) -> str:
    return f"arn:${{AWS::Partition}}:iam::{ACCOUNT}:role/cdk-hnb659fds-{name}-role-{ACCOUNT}-{REGION}"


def assembly(folder: Path, code: str, colour: str) -> Path:
    """A cloud assembly as an app would synthesise it: one function with its asset, one queue."""
    out = folder / f"cdk-{colour}"
    asset = out / "asset.fn"
    asset.mkdir(parents=True)
    (asset / "handler.py").write_text(code)
    template = {
        "Resources": {
            "Queue": {"Type": "AWS::SQS::Queue"},
            "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": TRUST_LAMBDA}},
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "FunctionName": "tiny",
                    "Runtime": "python3.13",
                    "Handler": "handler.handler",
                    "Timeout": 60,
                    "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                    "Code": {"S3Bucket": ASSETS, "S3Key": "fn.zip"},
                    "Environment": {"Variables": {"COLOUR": colour}},
                },
            },
        },
        "Outputs": {"Url": {"Value": {"Ref": "Queue"}}},
    }
    (out / "Tiny.template.json").write_text(json.dumps(template))
    files = {
        "fn": _file("asset.fn", "zip", "fn.zip"),
        "template": _file("Tiny.template.json", "file", f"{colour}.json"),
    }
    (out / "Tiny.assets.json").write_text(json.dumps({"version": "48.0.0", "files": files, "dockerImages": {}}))
    (out / "manifest.json").write_text(json.dumps({"version": "48.0.0", "artifacts": _artifacts(colour)}))
    return out


def _file(path: str, packaging: str, key: str) -> dict[str, Any]:
    place = {"bucketName": ASSETS, "objectKey": key, "region": REGION, "assumeRoleArn": role("file-publishing")}
    return {"source": {"path": path, "packaging": packaging}, "destinations": {"here": place}}


def _artifacts(colour: str) -> dict[str, Any]:
    stack = {
        "templateFile": "Tiny.template.json",
        "assumeRoleArn": role("deploy"),
        "cloudFormationExecutionRoleArn": role("cfn-exec"),
        "stackTemplateAssetObjectUrl": f"s3://{ASSETS}/{colour}.json",
        "requiresBootstrapStackVersion": 6,
        "bootstrapStackVersionSsmParameter": "/cdk-bootstrap/hnb659fds/version",
    }
    return {
        "Tiny.assets": {"type": "cdk:asset-manifest", "properties": {"file": "Tiny.assets.json"}},
        "Tiny": {
            "type": "aws:cloudformation:stack",
            "environment": ENVIRONMENT,
            "properties": stack,
            "dependencies": ["Tiny.assets"],
        },
    }


class Cli:
    def __init__(self, aws: Aws, home: Path) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AWS_ENDPOINT_URL": aws.endpoint,
            "AWS_ENDPOINT_URL_S3_FOR_CLOUDFORMATION": f"https://s3.{REGION}.amazonaws.com",
            "AWS_ACCESS_KEY_ID": "local-admin",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CI": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "true",
        }

    def __call__(self, *arguments: str) -> str:
        """Standard output and error of one command, which must end with 0."""
        done = subprocess.run(
            [str(CDK), *arguments, "--no-notices", "--ci"],
            env=self.environment,
            cwd=self.environment["HOME"],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr


@pytest.mark.stack
def test_the_whole_life_of_a_stack(aws: Aws, tmp_path: Path) -> None:
    cdk = Cli(aws, tmp_path)
    code = "import os\ndef handler(e, c):\n    return os.environ['COLOUR']"
    blue, red = (str(assembly(tmp_path, code, colour)) for colour in ("blue", "red"))
    cdk("bootstrap", ENVIRONMENT)
    cdk("deploy", "-a", blue, "--require-approval", "never")
    assert aws.invoke("tiny")[0] == "blue"
    assert "There were no differences" in cdk("diff", "-a", blue)
    assert "no changes" in cdk("deploy", "-a", blue, "--require-approval", "never")
    cdk("deploy", "-a", red, "--require-approval", "never")
    assert aws.invoke("tiny")[0] == "red"
    cdk("destroy", "-a", red, "--force")
    assert "tiny" not in [one["FunctionName"] for one in aws.client("lambda").list_functions()["Functions"]]
