"""The stacks that the infra tests look at, each synthesised once per session and without building the layer."""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Before aws_cdk, which reads what this package says to it; hence the imports inside functions below.
from infra.app import add_checks, add_stack, new_app
from tests.infra.template import Template

if TYPE_CHECKING:
    from aws_cdk import App, CloudFormationValidatePlugin, Environment

ROOT = Path(__file__).resolve().parents[2]
KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-0000-4000-8000-0123456789ab"
BOUNDARY = "arn:aws:iam::111122223333:policy/limits/Boundary"
MEMORY = "Spotwright-main-StateTable01234567-ABCDEFGHIJKL"
TOPIC = "arn:aws:sns:eu-central-1:111122223333:alarms"


def cluster(name: str, **fields: Any) -> dict[str, Any]:
    """A cluster's context with every field that must be there."""
    return {"name": name, "nodeRoles": [f"KarpenterNodeRole-{name}"], "forwarderImage": "forwarder:1", **fields}


def synthesise(spotwright: object, env: "Environment | None" = None) -> Template:
    """The template of one context."""
    return _synthesised(_app(spotwright), env)


def assembly(spotwright: object) -> Path:
    """The folder of what was synthesised: templates, and the files of assets."""
    app = _app(spotwright)
    add_stack(app, None)
    return Path(app.synth().directory)


def checked(spotwright: object) -> Template:
    """The template of one context, under cdk-nag and CloudFormation's schemas; raises for what they find."""
    app = _app(spotwright)
    add_checks(app)
    add_schema_checks(app)
    return _synthesised(app, None)


@cache
def _schemas() -> "CloudFormationValidatePlugin":
    """Loading the schemas takes seconds, so it is done once."""
    from aws_cdk import CloudFormationValidatePlugin

    return CloudFormationValidatePlugin()


def add_schema_checks(app: "App") -> None:
    """CDK's own check, whose findings are warnings unless the context says otherwise."""
    from aws_cdk import Validations

    app.node.set_context("@aws-cdk/core:validateAgainstDefaultRules", True)
    Validations.of(app).add_plugins(_schemas())


def _app(spotwright: object) -> "App":
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    return new_app({**flags, "spotwright": spotwright, "aws:cdk:bundling-stacks": []})


def _synthesised(app: "App", env: "Environment | None") -> Template:
    stack = add_stack(app, env)
    directory = Path(app.synth().directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    body = json.loads((directory / f"{stack.stack_name}.template.json").read_text())
    return Template(body, manifest.get("missing", []))


@pytest.fixture(scope="session")
def plain() -> Template:
    """What cdk.json says as it is published: one cluster and defaults."""
    return checked(json.loads((ROOT / "cdk.json").read_text())["context"]["spotwright"])


@pytest.fixture(scope="session")
def full() -> Template:
    """Two clusters in one cell, in a VPC, with everything that the context can say."""
    network = {
        "vpcId": "vpc-0123456a",
        "subnetIds": ["subnet-0123456a", "subnet-0123456b"],
        "securityGroupIds": ["sg-0123456a"],
    }
    return checked(
        {
            "cell": "blue",
            "clusters": [
                cluster("one", vpc=network, settings={"PREFERENCE_POLICY": "Ignore", "BATCH_MAX_DURATION": "20s"}),
                cluster(
                    "two",
                    vpc=network,
                    nodeRoles=["nodes/two-a", "two-b", "two-windows"],
                    nodeRolesWithAccessEntry=["two-b"],
                    windowsNodeRoles=["two-windows"],
                ),
            ],
            "architecture": "x86_64",
            "permissionsBoundary": BOUNDARY,
            "rolePath": "/platform/",
            "tags": {"team": "compute"},
            "logLevel": "DEBUG",
            "logRetentionDays": 7,
            "decisionRetentionDays": 90,
            "kmsKeyArn": KEY,
            "alarmTopicArn": TOPIC,
            "memoryTable": MEMORY,
            "removeDataOnDestroy": True,
        }
    )


@pytest.fixture(scope="session")
def china() -> Template:
    """A deployment to another partition."""
    from aws_cdk import Environment

    env = Environment(account="111122223333", region="cn-north-1")
    return synthesise({"clusters": [cluster("one")], "permissionsBoundary": "Boundary"}, env)
