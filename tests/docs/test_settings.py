"""docs/settings.md says of each setting what the code does with it."""

import json
import re
from pathlib import Path

import pytest

from forwarder.settings import settings as forwarder_settings
from infra.config import FORWARDER_SETTINGS, SETTINGS, parse_config
from infra.fields import ConfigError
from spotwright.settings import catalog_settings, decision_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()
# name → (meaning, allowed, default, beside Karpenter)
ROWS = {
    cells[0].strip("` "): tuple(cell.strip() for cell in cells[1:])
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for cells in [line.strip("|").split("|")]
}
EVERY = (*SETTINGS, *FORWARDER_SETTINGS)
WHOLE_PERCENT = ("0", "101", "1.5", "many", "")
TRUTH = ("yes", "1", "")
# What the page does not allow; the range's ends are what the page says.
REFUSED = {
    "BATCH_IDLE_DURATION": ("1", "1h", "-1s", ""),
    "BATCH_MAX_DURATION": ("10", "soon", ""),
    "PREFERENCE_POLICY": ("respect", ""),
    "MIN_VALUES_POLICY": ("Loose",),
    "FEATURE_GATES": ("Consolidation=true", "NodeOverlay", "NodeOverlay=on"),
    "WORK_UNITS": ("0", "1000000001", "0s", "601s", "1m"),
    "LARGEST_NODE_SHARE": WHOLE_PERCENT,
    "LARGEST_ZONE_SHARE": WHOLE_PERCENT,
    "FOLLOW_PLAN": ("On",),
    "BREAKER_PERCENT": WHOLE_PERCENT,
    "MAX_LAUNCHES_PER_MINUTE": ("-1", "1000001", "1.5", "none", ""),
    "MAX_NODES_PER_HOUR": ("-1", "1000001", "1.5", "none", ""),
    "MAX_DOLLARS_PER_HOUR": ("-1", "1000001", "1.5", "$5", ""),
    "MAX_EVICTIONS_PER_HOUR": ("-1", "1000001", "1.5", "few", ""),
    "VM_MEMORY_OVERHEAD_PERCENT": ("-0.1", "1", "7%"),
    "RESERVED_ENIS": ("-1", "1.5", ""),
    "ISOLATED_VPC": TRUTH,
    "ENABLE_ZONAL_SHIFT": TRUTH,
    "AWS_FEATURE_GATES": ("NodeClassCEL=maybe",),
    "DISABLE_DRY_RUN": TRUTH,
}


def deployed(**settings: str) -> dict[str, object]:
    """A configuration with these settings, as it is told to the functions and the forwarder."""
    cluster = {"name": "c", "nodeRoles": ["r"], "forwarderImage": "i", "settings": settings}
    (made,) = parse_config({"clusters": [cluster]}).clusters
    return made.environment | made.forwarder_settings


def quoted(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def test_every_setting_stands_on_the_page_and_no_other() -> None:
    assert sorted(ROWS) == sorted(EVERY)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_not_given_is_as_its_default_says(name: str) -> None:
    (default,) = quoted(ROWS[name][2])
    assert decision_settings({name: default}) == decision_settings({})
    assert catalog_settings({name: default}) == catalog_settings({})
    assert deployed(**{name: default})


@pytest.mark.parametrize("name", FORWARDER_SETTINGS)
def test_the_forwarders_defaults_are_those_of_the_page(name: str) -> None:
    variables = {
        "SPOTWRIGHT_CLUSTER": "c", "SPOTWRIGHT_TABLE": "t", "SPOTWRIGHT_BUCKET": "b",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443", "SPOTWRIGHT_PROVISION_QUEUE_URL": "p", "SPOTWRIGHT_LIFECYCLE_QUEUE_URL": "l",
        "SPOTWRIGHT_CATALOG_QUEUE_URL": "c", "SPOTWRIGHT_DISRUPT_QUEUE_URL": "d", "SPOTWRIGHT_SWEEP_QUEUE_URL": "s",
    }  # fmt: skip
    (default,) = quoted(ROWS[name][2])
    assert forwarder_settings(variables | {name: default}) == forwarder_settings(variables)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in EVERY
        for value in quoted(ROWS[name][1])
        if name not in ("FEATURE_GATES", "FOLLOWER_SELECTORS") and (name, value) != ("VM_MEMORY_OVERHEAD_PERCENT", "1")
    ],
)
def test_what_the_page_allows_is_taken(name: str, value: str) -> None:
    assert deployed(**{name: value})


@pytest.mark.parametrize("gate", quoted(ROWS["FEATURE_GATES"][1]))
def test_each_gate_of_the_page_can_be_turned(gate: str) -> None:
    on, off = (decision_settings({"FEATURE_GATES": f"{gate}={value}"}).feature_gates for value in ("true", "false"))
    assert set(on) - set(off) == {gate}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in REFUSED for value in REFUSED[name]])
def test_what_the_page_does_not_allow_is_refused_by_name_and_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refusal:
        deployed(**{name: value})
    assert value in str(refusal.value)


def test_the_example_is_a_configuration_and_the_readme_leads_to_the_page() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (cluster,) = parse_config(json.loads("{" + example + "}")["spotwright"]).clusters
    assert cluster.settings["WORK_UNITS"] == "0.6s"
    assert "(docs/settings.md)" in (ROOT / "README.md").read_text()
    short = re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)`", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert short
    assert all(quoted(ROWS[name][2]) == (default,) for name, default in short)
