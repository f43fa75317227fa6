"""What is wrong with a kubelet configuration."""

import pytest

from spotwright.aws.kubelet import fields, validation


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"maxPods": 0, "podsPerCore": 4},
        {"kubeReserved": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "1000"}},
        {"systemReserved": {"cpu": "1"}},
        {
            "syncFrequency": "1m30s",
            "featureGates": {"A": True},
            "serializeImagePulls": False,
            "clusterDNS": ["10.0.0.10"],
        },
        {"evictionHard": {"memory.available": "5%", "nodefs.inodesFree": "100%", "pid.available": "100"}},
        {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
        {"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80},
        {"topologyManagerPolicy": "best-effort", "memorySwap": {"swapBehavior": "NoSwap"}},
    ],
)
def test_fine(fine: dict[str, object]) -> None:
    assert validation.kubelet_errors(fine) == ()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"registerWithTaints": []}, "registerWithTaints"),
        ({"maxPods": -1}, "maxPods"),
        ({"maxPods": "110"}, "maxPods"),
        ({"maxPod": 110}, "maxPod"),
        ({"serializeImagePulls": "false"}, "serializeImagePulls"),
        ({"syncFrequency": "soon"}, "syncFrequency"),
        ({"clusterDNS": "10.0.0.10"}, "clusterDNS"),
        ({"systemReserved": {"cpu": 1}}, "systemReserved"),
        (
            {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "-1m"}},
            "evictionSoftGracePeriod.memory.available",
        ),
        ({"podsPerCore": True}, "podsPerCore"),
        ({"kubeReserved": {"disk": "1Gi"}}, "kubeReserved.disk"),
        ({"kubeReserved": {"cpu": "vcpus*10"}}, "kubeReserved.cpu"),
        ({"systemReserved": {"memory": "-1Gi"}}, "systemReserved.memory"),
        ({"systemReserved": ["cpu"]}, "systemReserved"),
        ({"evictionHard": {"memory.free": "1Gi"}}, "evictionHard.memory.free"),
        ({"evictionHard": {"memory.available": "101%"}}, "evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "x%"}}, "evictionHard.memory.available"),
        ({"evictionHard": "5%"}, "evictionHard"),
        ({"evictionSoft": {"memory.available": "1Gi"}}, "evictionSoft"),
        ({"imageGCHighThresholdPercent": 101}, "imageGCHighThresholdPercent"),
        ({"imageGCLowThresholdPercent": -1}, "imageGCLowThresholdPercent"),
        ({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}, "imageGCHighThresholdPercent"),
    ],
)
def test_wrong(wrong: dict[str, object], field: str) -> None:
    (problem,) = validation.kubelet_errors(wrong)
    assert problem.startswith(f"spec.kubelet.{field}:")


def test_everything_wrong_is_said_at_once() -> None:
    assert len(validation.kubelet_errors({"maxPods": -1, "podsPerCore": -1, "registerWithTaints": []})) == 3


def test_formulas_are_told_from_mistakes() -> None:
    assert validation.expression_fields({"maxPods": "min(110, vcpus * 8)"})
    (expression,) = validation.expression_fields({"kubeReserved": {"cpu": "100m", "memory": "vcpus*10"}})
    assert expression.startswith("spec.kubelet.kubeReserved.memory")
    assert validation.expression_fields({"maxPods": 20, "systemReserved": {"memory": "-1Gi"}}) == ()


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"topologyManagerPolicy": "restricted", "maxPods": 3}, ["topologyManagerPolicy"]),
        ({"podsPerCore": 2}, ["podsPerCore"]),
        ({"clusterDNS": ["10.0.0.10", "10.0.0.11"]}, ["clusterDNS"]),
        ({"cpuCFSQuota": True, "evictionHard": {"memory.available": "5%"}}, []),
    ],
)
def test_what_bottlerocket_has_no_setting_for(given: dict[str, object], names: list[str]) -> None:
    errors = fields.unsupported_fields(given, "Bottlerocket", pods_per_core=False)
    assert [error.split(":")[0].removeprefix("spec.kubelet.") for error in errors] == names
