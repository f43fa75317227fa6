"""Drift as `kubectl get nodeclaims -o wide` shows it on the deployed stack."""

import json
from typing import Any

import pytest

from tests.e2e.world import World

pytestmark = pytest.mark.stack


def drifted(world: World) -> tuple[str, str]:
    """Status and reason of the one claim's condition; empty where it has none."""
    (claim,) = world.objects("nodeclaims")
    found = [one for one in claim["status"]["conditions"] if one["type"] == "Drifted"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def patch(world: World, kind: str, spec: dict[str, Any]) -> None:
    world.stack.kubectl("patch", kind, "default", "--type", "merge", "-p", json.dumps({"spec": spec}))


def demanding(key: str, operator: str, value: str) -> dict[str, Any]:
    return {"template": {"spec": {"requirements": [{"key": key, "operator": operator, "values": [value]}]}}}


def annotated(annotations: dict[str, str] | None) -> dict[str, Any]:
    return {"template": {"metadata": {"annotations": annotations}}}


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


def test_a_claim_drifts_while_its_pool_or_class_is_another(world: World) -> None:
    world.scale(1)
    world.until("the pod runs", lambda: world.running("inflate") == 1, seconds=120)
    for reason, kind, there, back in CHANGES:
        patch(world, kind, there)
        says(world, "True", reason)
        wide = world.stack.kubectl("get", "nodeclaims", "-o", "wide").stdout.splitlines()
        assert wide[0].split()[-1] == "DRIFTED"
        assert wide[1].split()[-1] == "True"
        patch(world, kind, back)
        says(world, "", "")
    assert world.running("inflate") == 1


def says(world: World, *wanted: str) -> None:
    world.until(f"the claim says {' '.join(wanted) or 'nothing'}", lambda: drifted(world) == wanted, seconds=60)
