"""Which pods a selector selects, and which host ports clash."""

import pytest

from spotwright.model.kubernetes.pod_constraints import HostPort, selects
from spotwright.model.requirements import NodeSelectorRequirement


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ((), True),
        ((NodeSelectorRequirement("app", "In", ("web", "api")),), True),
        ((NodeSelectorRequirement("app", "In", ("api",)),), False),
        ((NodeSelectorRequirement("app", "NotIn", ("api",)),), True),
        ((NodeSelectorRequirement("tier", "NotIn", ("api",)),), True),
        ((NodeSelectorRequirement("tier", "Exists"),), False),
        ((NodeSelectorRequirement("tier", "DoesNotExist"),), True),
        ((NodeSelectorRequirement("app", "Exists"), NodeSelectorRequirement("tier", "Exists")), False),
    ],
)
def test_a_label_selector(selector: tuple[NodeSelectorRequirement, ...] | None, selected: bool) -> None:
    assert selects(selector, {"app": "web"}) is selected


@pytest.mark.parametrize(
    ("host_port", "other_host_port", "clash"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "0.0.0.0"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "::"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80), HostPort(81), False),
    ],
)
def test_a_port_can_be_bound_once_per_address(host_port: HostPort, other_host_port: HostPort, clash: bool) -> None:
    assert host_port.conflicts_with(other_host_port) is clash
    assert other_host_port.conflicts_with(host_port) is clash
