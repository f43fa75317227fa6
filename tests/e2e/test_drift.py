"""Drift as `kubectl get nodeclaims -o wide` shows it on the deployed stack."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.deployed_stack import DeployedStack

pytestmark = pytest.mark.stack


def drifted(deployed_stack: DeployedStack) -> tuple[str, str]:
    """Status and reason of the one claim's condition; empty where it has none."""
    (claim,) = deployed_stack.objects("nodeclaims")
    found = [one for one in claim["status"]["conditions"] if one["type"] == "Drifted"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def patch(deployed_stack: DeployedStack, kind: str, spec: dict[str, Any]) -> None:
    deployed_stack.stack.kubectl("patch", kind, "default", "--type", "merge", "-p", json.dumps({"spec": spec}))


def demanding(key: str, operator: str, value: str) -> dict[str, Any]:
    return {"template": {"spec": {"requirements": [{"key": key, "operator": operator, "values": [value]}]}}}


def annotated(annotations: dict[str, str] | None) -> dict[str, Any]:
    return {"template": {"metadata": {"annotations": annotations}}}


@pytest.fixture
def undisturbed(deployed_stack: DeployedStack) -> Iterator[None]:
    """What has drifted is not replaced: how soon that would be is a matter of luck."""
    deployed_stack.stack.control("POST", "/_local/functions/disrupt", {"enabled": False})
    yield
    deployed_stack.stack.control("POST", "/_local/functions/disrupt", {"enabled": True})


CHANGES: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("NodePoolDrifted", "nodepool", annotated({"note": "a"}), annotated(None)),
    ("NodeClassDrift", "ec2nodeclass", {"tags": {"intent": "batch"}}, {"tags": {"intent": "apps"}}),
    (
        "RequirementsDrifted",
        "nodepool",
        demanding("karpenter.k8s.aws/instance-cpu", "Gt", "64"),
        demanding("kubernetes.io/arch", "In", "amd64"),
    ),
)


@pytest.mark.usefixtures("undisturbed")
def test_a_claim_drifts_while_its_pool_or_class_is_another(deployed_stack: DeployedStack) -> None:
    deployed_stack.scale(1)
    deployed_stack.wait_until("the pod runs", lambda: deployed_stack.running("inflate") == 1, seconds=120)
    for reason, kind, there, back in CHANGES:
        patch(deployed_stack, kind, there)
        says(deployed_stack, "True", reason)
        wide = deployed_stack.stack.kubectl("get", "nodeclaims", "-o", "wide").stdout.splitlines()
        assert wide[0].split()[-1] == "DRIFTED"
        assert wide[1].split()[-1] == "True"
        patch(deployed_stack, kind, back)
        says(deployed_stack, "", "")
    assert deployed_stack.running("inflate") == 1


def says(deployed_stack: DeployedStack, *wanted: str) -> None:
    deployed_stack.wait_until(
        f"the claim says {' '.join(wanted) or 'nothing'}", lambda: drifted(deployed_stack) == wanted, seconds=60
    )
