"""What the environment tells a function, read once and frozen."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.aws.instance_types.capacity import Overheads
from spotwright.errors import InvalidRequest
from spotwright.model.quoting import quote
from spotwright.model.snapshot import (
    CAPACITY_BUFFER,
    NODE_OVERLAY,
    NODE_REPAIR,
    RESERVED_CAPACITY,
    SPOT_TO_SPOT_CONSOLIDATION,
    STATIC_CAPACITY,
    Settings,
)

type RawSettings = Mapping[str, str | int | float | bool]

# The check for others that provision nodes in the cluster: of the preflight, the installation and the sweep.
PROVISIONER: Final = "provisioner"
QUEUES = ("provision", "lifecycle", "notices", "catalog", "disrupt", "sweep")


class ClusterSettings(msgspec.Struct, frozen=True, rename="camel"):
    """One cluster of the cell: the roles to assume, the node roles it may pass, and Karpenter's settings.

    ``skip_checks``: those of its checks that do not apply, of which PROVISIONER alone matters to functions.
    """

    read_role_arn: str
    act_role_arn: str
    node_roles: tuple[str, ...] = ()
    skip_checks: tuple[str, ...] = ()
    settings: dict[str, str | int | float | bool] = {}


class Environment(msgspec.Struct, frozen=True):
    """The deployment: cell, table, bucket, queue URLs by name, clusters by name.

    ``memory_table``: the table of another cell, in which all cells of the account learn together; "" = the own one.
    """

    cell: str
    table: str
    bucket: str
    queues: dict[str, str]
    clusters: dict[str, ClusterSettings]
    region: str
    memory_table: str = ""


def environment(variables: Mapping[str, str]) -> Environment:
    """Read the variables that the stack sets; raises InvalidRequest naming the one that is wrong."""
    try:
        clusters = msgspec.json.decode(variables["SPOTWRIGHT_CLUSTERS"], type=dict[str, ClusterSettings])
        return Environment(
            cell=variables["SPOTWRIGHT_CELL"],
            table=variables["SPOTWRIGHT_TABLE"],
            bucket=variables["SPOTWRIGHT_BUCKET"],
            queues={name: variables.get(f"SPOTWRIGHT_{name.upper()}_QUEUE_URL", "") for name in QUEUES},
            clusters=clusters,
            region=variables.get("AWS_REGION", ""),
            memory_table=variables.get("SPOTWRIGHT_MEMORY_TABLE", ""),
        )
    except KeyError as missing:
        raise InvalidRequest(f"environment variable {missing} is not set") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"environment variable SPOTWRIGHT_CLUSTERS: {error}") from None


# Karpenter's feature gates, with its defaults.
FEATURE_GATES: Final = {
    RESERVED_CAPACITY: True,
    NODE_OVERLAY: False,
    STATIC_CAPACITY: False,
    CAPACITY_BUFFER: False,
    NODE_REPAIR: False,
    SPOT_TO_SPOT_CONSOLIDATION: False,
}
# The gate of Karpenter's AWS provider, in a setting of its own (AWS_FEATURE_GATES).
NODE_CLASS_CEL: Final = "NodeClassCEL"

# What one core searches in a second: plans of `make bench-cases` took 48,000 to 100,000 units a processor second.
UNITS_PER_SECOND: Final = 50_000


def parse_feature_gates(given: str, further: Sequence[str] = ()) -> dict[str, bool]:
    """``NodeOverlay=true,ReservedCapacity=false`` as all of Karpenter's gates; raises InvalidRequest.

    ``further``: gates that are allowed besides and off by default.
    """
    gates = FEATURE_GATES | dict.fromkeys(further, False)
    for entry in filter(None, (entry.strip() for entry in given.split(","))):
        name, _, value = (part.strip() for part in entry.partition("="))
        if name not in gates:
            raise InvalidRequest(
                f"{name} is no feature gate{_similar(name, gates)}; there are {', '.join(sorted(gates))}"
            )
        if value.lower() not in ("true", "false"):
            raise InvalidRequest(f"feature gate {name} is true or false, found {value or 'nothing'}: write {name}=true")
        gates[name] = value.lower() == "true"
    return gates


def _similar(name: str, known: Iterable[str]) -> str:
    # Imported where it is needed: a function that starts has no misspelt gates.
    from difflib import get_close_matches

    by_lower = {gate.lower(): gate for gate in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f", did you mean {by_lower[near[0]]}?" if near else ""


def _gates(given: str) -> tuple[str, ...]:
    """The names of the gates that are on, sorted; raises InvalidRequest."""
    try:
        gates = parse_feature_gates(given)
    except InvalidRequest as error:
        raise InvalidRequest(f"setting FEATURE_GATES: {error}") from None
    return tuple(sorted(name for name, wanted in gates.items() if wanted))


def _whole(given: Mapping[str, str | int | float | bool], name: str, default: int, least: int, most: int) -> int:
    value = str(given.get(name, default))
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
        raise InvalidRequest(f"setting {name}: {quote(value)} is not a whole number from {least} to {most}")
    return int(value)


def _ceiling(given: Mapping[str, str | int | float | bool], name: str, default: int) -> int:
    """A ceiling of what is done in a time; 0 = none."""
    return _whole(given, name, default, 0, 10**6)


def _work_units(given: Mapping[str, str | int | float | bool], default: int) -> int:
    """The budget of the search; seconds become units here: a decision knows no clock, a replay needs none."""
    value = str(given.get("WORK_UNITS", default))
    if not value.endswith("s"):
        return _whole(given, "WORK_UNITS", default, 1, 10**9)
    seconds = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)s", value)
    if seconds is None or not 0 < float(seconds[1]) <= 600:
        raise InvalidRequest(
            f"setting WORK_UNITS: {quote(value)} is neither a whole number nor seconds from 0.001s to 600s"
        )
    return max(1, int(float(seconds[1]) * UNITS_PER_SECOND))


def decision_settings(given: Mapping[str, str | int | float | bool]) -> Settings:
    """A cluster's settings as a decision needs them; names are Karpenter's. Raises InvalidRequest."""
    defaults = Settings()
    policies = {
        "PREFERENCE_POLICY": ("Respect", "Ignore"),
        "MIN_VALUES_POLICY": ("Strict", "BestEffort"),
        "FOLLOW_PLAN": ("Nominate", "Off"),
    }
    for name, allowed in policies.items():
        if name in given and given[name] not in allowed:
            raise InvalidRequest(f"setting {name}: {quote(given[name])} is not one of {', '.join(allowed)}")
    followers = given.get("FOLLOWER_SELECTORS")
    return Settings(
        feature_gates=_gates(str(given.get("FEATURE_GATES", ""))),
        preference_policy=str(given.get("PREFERENCE_POLICY", defaults.preference_policy)),
        min_values_policy=str(given.get("MIN_VALUES_POLICY", defaults.min_values_policy)),
        follower_selectors=tuple(str(followers).split(",")) if followers else defaults.follower_selectors,
        work_units=_work_units(given, defaults.work_units),
        largest_node_share=_whole(given, "LARGEST_NODE_SHARE", defaults.largest_node_share, 1, 100),
        largest_zone_share=_whole(given, "LARGEST_ZONE_SHARE", defaults.largest_zone_share, 1, 100),
        follow_plan=str(given.get("FOLLOW_PLAN", defaults.follow_plan)),
        max_launches_per_minute=_ceiling(given, "MAX_LAUNCHES_PER_MINUTE", defaults.max_launches_per_minute),
        max_nodes_per_hour=_ceiling(given, "MAX_NODES_PER_HOUR", defaults.max_nodes_per_hour),
        max_dollars_per_hour=_ceiling(given, "MAX_DOLLARS_PER_HOUR", defaults.max_dollars_per_hour),
        max_evictions_per_hour=_ceiling(given, "MAX_EVICTIONS_PER_HOUR", defaults.max_evictions_per_hour),
        breaker_percent=_whole(given, "BREAKER_PERCENT", defaults.breaker_percent, 1, 100),
    )


class CatalogSettings(msgspec.Struct, frozen=True):
    """A cluster's settings as its catalog needs them; names are Karpenter's."""

    overheads: Overheads = Overheads()
    isolated_vpc: bool = False
    reserved_capacity: bool = True
    zonal_shift: bool = False
    dry_runs: bool = True


def catalog_settings(given: RawSettings) -> CatalogSettings:
    """Raises InvalidRequest naming the setting that means nothing."""
    defaults = Overheads()
    share = str(given.get("VM_MEMORY_OVERHEAD_PERCENT", defaults.vm_memory_overhead_percent))
    try:
        if not 0 <= float(share) < 1:
            raise ValueError
    except ValueError:
        raise InvalidRequest(f"setting VM_MEMORY_OVERHEAD_PERCENT: {quote(share)} is not a share from 0 to 1") from None
    enis = str(given.get("RESERVED_ENIS", defaults.reserved_enis))
    if not enis.isdecimal():
        raise InvalidRequest(f"setting RESERVED_ENIS: {quote(enis)} is not a number from 0 up")
    return CatalogSettings(
        overheads=Overheads(share, int(enis), is_gate_on(given, "AWS_FEATURE_GATES", NODE_CLASS_CEL)),
        isolated_vpc=_is_on(given, "ISOLATED_VPC"),
        reserved_capacity=RESERVED_CAPACITY in _gates(str(given.get("FEATURE_GATES", ""))),
        zonal_shift=_is_on(given, "ENABLE_ZONAL_SHIFT"),
        dry_runs=not _is_on(given, "DISABLE_DRY_RUN"),
    )


def _is_on(given: RawSettings, setting: str) -> bool:
    return _truth(setting, str(given.get(setting, "false")))


def is_gate_on(given: RawSettings, setting: str, name: str) -> bool:
    """Whether a feature gate is on: ``Name=true,Other=false``; gates that nobody knows are ignored."""
    stated = dict(one.strip().partition("=")[::2] for one in str(given.get(setting, "")).split(",") if one.strip())
    return _truth(f"{setting}: {name}", stated.get(name, "false"))


def _truth(what: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidRequest(f"setting {what}: {quote(value)} is neither true nor false")
    return value.lower() == "true"
