"""What the preflight says where a program, or the API server, does not answer it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotwright.cli.inputs.preflight_facts import endpoints_for, in_cluster, why_it_builds_nothing, why_not_answered
from spotwright.errors import ApiError, Denied, Unavailable
from spotwright.workflows.install.preflight.facts import NotAsked, Subnet, Target


def program(folder: Path, text: str) -> str:
    path = folder / "builder"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'Server Version: 28'", ""),
        ("echo 'WARNING: no swap limit' >&2", ""),
        ("echo 'ERROR: Cannot connect to the Docker daemon.' >&2; exit 1", "Cannot connect to the Docker daemon."),
        ("exit 3", "info ended with 3"),
    ],
)
def test_a_program_that_builds_no_images_says_why(text: str, said: str, tmp_path: Path) -> None:
    found = why_it_builds_nothing(program(tmp_path, text))
    assert found.endswith(said)
    assert bool(found) == bool(said)


def test_without_a_program_nothing_is_asked() -> None:
    assert why_it_builds_nothing("") == ""
    assert "No such file" in why_it_builds_nothing("/nowhere/docker")


@pytest.mark.parametrize(
    ("failure", "parts"),
    [
        (Denied("GET /apis: 401 Unauthorized"), ("refuses you (GET /apis: 401", "access entry in dev", "cdk deploy")),
        (Unavailable("https://x does not answer"), ("does not answer you (https://x", "from its VPC", "cdk deploy")),
    ],
)
def test_who_is_refused_is_told_what_to_do(failure: ApiError, parts: tuple[str, ...]) -> None:
    reason = why_not_answered(Target("dev", "eu-west-1"), failure).reason
    for part in parts:
        assert part in reason


@pytest.mark.parametrize("described", [{"certificateAuthority": {}}, {}, {"endpoint": "https://x"}])
def test_a_cluster_that_eks_makes_or_could_not_make_has_no_api_server(described: dict[str, Any]) -> None:
    eks = SimpleNamespace(describe_cluster=lambda **_: {"cluster": {"name": "dev", **described}})
    for found in in_cluster(eks, Target("dev", "eu-west-1")):
        assert isinstance(found, NotAsked)
        assert "no API server yet" in found.reason


def test_an_endpoint_counts_where_the_subnets_without_a_way_to_the_internet_use_it() -> None:
    found = {"VpcEndpointType": "Gateway", "State": "available", "ServiceName": "com.amazonaws.eu-west-1.s3"}
    pages = [{"VpcEndpoints": [{**found, "RouteTableIds": ["rtb-closed"]}]}]
    ec2 = SimpleNamespace(
        meta=SimpleNamespace(region_name="eu-west-1"),
        get_paginator=lambda _operation: SimpleNamespace(paginate=lambda **_: pages),
    )
    target = Target("dev", "eu-west-1", vpc_id="vpc-1")
    closed, opened = Subnet("vpc-1", "", "rtb-closed"), Subnet("vpc-1", "nat", "rtb-open")
    assert endpoints_for(ec2, target, {"subnet-1": closed, "subnet-2": opened}) == frozenset({"s3"})
    another = Subnet("vpc-1", "", "rtb-without")
    assert endpoints_for(ec2, target, {"subnet-1": closed, "subnet-2": another}) == frozenset()
    assert endpoints_for(ec2, target, NotAsked("denied")) == NotAsked("denied")
