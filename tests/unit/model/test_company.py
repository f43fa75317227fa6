"""Which pods a selector selects, and which host ports clash."""

import pytest

from spotwright.model.company import HostPort, selects
from spotwright.model.requirements import Selector


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ((), True),
        ((Selector("app", "In", ("web", "api")),), True),
        ((Selector("app", "In", ("api",)),), False),
        ((Selector("app", "NotIn", ("api",)),), True),
        ((Selector("tier", "NotIn", ("api",)),), True),
        ((Selector("tier", "Exists"),), False),
        ((Selector("tier", "DoesNotExist"),), True),
        ((Selector("app", "Exists"), Selector("tier", "Exists")), False),
    ],
)
def test_a_label_selector(selector: tuple[Selector, ...] | None, selected: bool) -> None:
    assert selects(selector, {"app": "web"}) is selected


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "0.0.0.0"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "::"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80), HostPort(81), False),
    ],
)
def test_a_port_can_be_bound_once_per_address(one: HostPort, other: HostPort, clash: bool) -> None:
    assert one.clashes(other) is clash
    assert other.clashes(one) is clash
