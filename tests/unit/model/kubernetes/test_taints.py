"""Which toleration tolerates which taint."""

import pytest

from spotwright.model.kubernetes.taints import Taint, Toleration, untolerated_taints

GPU = Taint("nvidia.com/gpu", "NoSchedule", "true")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("nvidia.com/gpu", "Equal", "true", "NoSchedule"), True),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("nvidia.com/gpu", "Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration("nvidia.com/gpu", "Equal", "false"), False),
        (Toleration("nvidia.com/gpu", "Equal", ""), False),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False),
        (Toleration("amd.com/gpu", "Exists"), False),
        (Toleration("", "Equal", "true"), False),
    ],
)
def test_a_toleration(toleration: Toleration, tolerates: bool) -> None:
    assert toleration.tolerates(GPU) is tolerates


@pytest.mark.parametrize(
    ("operator", "bound", "tolerates"), [("Gt", "5", True), ("Gt", "9", False), ("Lt", "9", True), ("Lt", "x", False)]
)
def test_numbers_are_compared(operator: str, bound: str, tolerates: bool) -> None:
    assert Toleration("risk", operator, bound).tolerates(Taint("risk", "NoSchedule", "7")) is tolerates


def test_the_taints_that_remain_keep_their_order() -> None:
    untolerated = (Taint("b", "NoSchedule"), Taint("a", "PreferNoSchedule"))
    assert (
        untolerated_taints((untolerated[0], GPU, untolerated[1]), [Toleration("nvidia.com/gpu", "Exists")])
        == untolerated
    )
