"""Whether the account may run what the NodePools may ask for."""

from typing import Any

import pytest

from spotwright.workflows.install.preflight.checks import Status, run_checks
from spotwright.workflows.install.preflight.facts import Facts, NodePoolDemand, NotAsked, Target
from spotwright.workflows.install.preflight.vcpu_quotas import nodepool_demand, usual_quotas

ON_DEMAND, SPOT = usual_quotas()
TARGET = Target("dev", "eu-west-1")
COMMAND = "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code"


def nodepool(*requirements: tuple[str, str, list[str]], cpu: object = None) -> dict[str, Any]:
    stated = [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements]
    limits = {} if cpu is None else {"limits": {"cpu": cpu}}
    return {"metadata": {"name": "p"}, "spec": {"template": {"spec": {"requirements": stated}}} | limits}


def told(nodepools: Any, **quotas: int) -> tuple[Status, str]:
    codes = {"on_demand": ON_DEMAND.code, "spot": SPOT.code, "g": "L-DB2E81BA"}
    facts = Facts(nodepools=nodepools, vcpu_quotas={codes[name]: vcpus for name, vcpus in quotas.items()})
    (check,) = run_checks(TARGET, facts, ("vcpu-quotas",))
    return check.status, check.message


@pytest.mark.parametrize(
    ("manifest", "quotas", "vcpus"),
    [
        (nodepool(), {"L-1216C47A"}, None),
        (nodepool(("karpenter.sh/capacity-type", "In", ["spot", "on-demand"])), {"L-1216C47A", "L-34B43A08"}, None),
        (nodepool(("karpenter.sh/capacity-type", "NotIn", ["on-demand"])), {"L-34B43A08"}, None),
        (nodepool(("karpenter.sh/capacity-type", "In", ["reserved"])), {"L-1216C47A"}, None),
        (nodepool(("karpenter.k8s.aws/instance-category", "In", ["c", "m", "g"])), {"L-1216C47A", "L-DB2E81BA"}, None),
        (nodepool(("karpenter.k8s.aws/instance-family", "In", ["p5", "p4d"])), {"L-417A185B"}, None),
        (
            nodepool(
                ("karpenter.k8s.aws/instance-category", "In", ["g", "c"]),
                ("node.kubernetes.io/instance-type", "In", ["inf2.xlarge"]),
            ),
            {"L-1945791B"},
            None,
        ),
        (nodepool(("karpenter.k8s.aws/instance-category", "NotIn", ["t"]), cpu="1k"), {"L-1216C47A"}, 1000),
        (nodepool(cpu=16), {"L-1216C47A"}, 16),
        (nodepool(cpu="0"), {"L-1216C47A"}, 0),
        (nodepool(("karpenter.sh/capacity-type", "Exists", [])), {"L-1216C47A", "L-34B43A08"}, None),
        (nodepool(("karpenter.k8s.aws/instance-category", "In", ["u"])), {"L-43DA4232"}, None),
        (
            nodepool(
                ("karpenter.k8s.aws/instance-category", "NotIn", ["t"]),
                ("karpenter.k8s.aws/instance-category", "In", ["g", "t"]),
            ),
            {"L-DB2E81BA"},
            None,
        ),
    ],
)
def test_a_nodepool_says_which_quotas_it_needs(manifest: dict[str, Any], quotas: set[str], vcpus: int | None) -> None:
    demand = nodepool_demand(manifest)
    assert ({quota.code for quota in demand.quotas}, demand.vcpus) == (quotas, vcpus)


def test_a_new_account_is_warned() -> None:
    for nodepools in ((), NotAsked("nobody asked")):
        status, said = told(nodepools, on_demand=5, spot=640)
        assert status is Status.WARNING
        assert said == (
            "EC2 lets the account run 5 vCPUs of standard (A, C, D, H, I, M, R, T, Z) on-demand instances (quota"
            f" L-1216C47A): {COMMAND} L-1216C47A --desired-value 256 --region eu-west-1"
        )


def test_what_nodepools_may_ask_for_is_what_is_needed() -> None:
    small = NodePoolDemand("small", (ON_DEMAND,), 16)
    large = NodePoolDemand("large", (ON_DEMAND, SPOT), 1000)
    endless = NodePoolDemand("endless", (SPOT,), None)
    assert told((small,), on_demand=16, spot=5)[0] is Status.OK
    status, said = told((small, large), on_demand=640, spot=1000)
    assert status is Status.WARNING
    assert "on-demand instances (quota L-1216C47A), and NodePools small, large may ask for 1016: " in said
    assert "--quota-code L-1216C47A --desired-value 1016" in said
    assert "L-34B43A08" not in said
    assert told((endless,), spot=64)[0] is Status.OK
    assert "and NodePool endless may ask for more: " in told((endless,), spot=32)[1]
    many = tuple(NodePoolDemand(f"p{number}", (ON_DEMAND,), 100) for number in range(5))
    assert "NodePools p0, p1, p2 and 2 more may ask for 500: " in told(many, on_demand=256, spot=5)[1]


def test_a_quota_that_the_region_lacks_is_not_told_of() -> None:
    assert told((), on_demand=640)[0] is Status.OK


def test_a_region_without_any_of_the_quotas_is_named() -> None:
    status, said = told((NodePoolDemand("gpu", (ON_DEMAND,), None),))
    assert (status, said) == (
        Status.NOT_CHECKED,
        "Service Quotas has no value of L-1216C47A (standard (A, C, D, H, I, M, R, T, Z) on-demand) in eu-west-1",
    )


def test_who_may_not_read_quotas_is_told_so() -> None:
    facts = Facts(vcpu_quotas=NotAsked("servicequotas:GetServiceQuota of L-1216C47A is denied to you (AccessDenied)"))
    (check,) = run_checks(TARGET, facts, ("vcpu-quotas",))
    assert (check.status, "is denied to you" in check.message) == (Status.NOT_CHECKED, True)
