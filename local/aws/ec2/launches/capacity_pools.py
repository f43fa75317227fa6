"""The capacity pools of a fleet request and the order in which EC2 tries them, by allocation strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from local.aws.calls.request import AwsError
from local.aws.ec2.catalog.offerings import Offerings

ON_DEMAND_STRATEGIES = ("lowest-price", "prioritized")
SPOT_STRATEGIES = (
    "lowest-price",
    "diversified",
    "capacity-optimized",
    "capacity-optimized-prioritized",
    "price-capacity-optimized",
)
# price-capacity-optimized leaves out the pools with the least spare capacity while there are others.
SHALLOW_POOL = 2
_UNPRICED = Decimal("Infinity")


@dataclass(frozen=True)
class CapacityPool:
    """One override of one template: a type in a zone. `index` is its place in the request."""

    index: int
    specification: Mapping[str, Any]
    data: Mapping[str, Any]
    override: Mapping[str, Any]
    zone: str

    @property
    def instance_type(self) -> str:
        return str(self.data.get("InstanceType") or "")

    @property
    def priority(self) -> float:
        """Lower is tried first; an override without priority comes last."""
        priority = self.override.get("Priority")
        return float("inf") if priority is None else float(priority)


def allocation_order(
    pools: Sequence[CapacityPool], offerings: Offerings, *, capacity_type: str, strategy: str
) -> list[CapacityPool]:
    """The pools in the order they are tried. Raises AwsError for a strategy EC2 does not know."""
    known = SPOT_STRATEGIES if capacity_type == "spot" else ON_DEMAND_STRATEGIES
    if strategy not in known:
        raise AwsError("InvalidParameterValue", f"Value ({strategy}) for parameter AllocationStrategy is invalid.")

    def key(pool: CapacityPool) -> tuple[Any, ...]:
        price = _price(pool, offerings, capacity_type)
        depth = offerings.spot_depth(pool.instance_type, pool.zone) if capacity_type == "spot" else 0
        match strategy:
            case "prioritized":
                return (pool.priority, price, pool.index)
            case "capacity-optimized":
                return (-depth, price, pool.index)
            case "capacity-optimized-prioritized":
                return (depth <= SHALLOW_POOL, pool.priority, -depth, pool.index)
            case "price-capacity-optimized":
                return (depth <= SHALLOW_POOL, price, pool.index)
            case _:
                return (price, pool.index)

    return sorted(pools, key=key)


def _price(pool: CapacityPool, offerings: Offerings, capacity_type: str) -> Decimal:
    if not offerings.exists(pool.instance_type):
        return _UNPRICED
    if capacity_type == "spot":
        return offerings.spot_price(pool.instance_type, pool.zone) or _UNPRICED
    return offerings.on_demand_price(pool.instance_type) or _UNPRICED


def initial_shares(count: int, pools: Sequence[CapacityPool], strategy: str) -> list[tuple[CapacityPool, int]]:
    """How many of `count` to ask of each pool first: all of the best, unless the strategy is diversified."""
    if strategy != "diversified":
        return [(pool, 0) for pool in pools]
    even, extra = divmod(count, len(pools))
    return [(pool, even + (index < extra)) for index, pool in enumerate(pools)]
