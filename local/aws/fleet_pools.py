"""The capacity pools of a fleet request and the order in which EC2 tries them, by allocation strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from local.aws.offerings import Offerings
from local.aws.request import AwsError

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
class Pool:
    """One override of one template: a type in a zone. `position` is its place in the request."""

    position: int
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


def ordered(pools: Sequence[Pool], offerings: Offerings, *, capacity_type: str, strategy: str) -> list[Pool]:
    """The pools in the order they are tried. Raises AwsError for a strategy EC2 does not know."""
    known = SPOT_STRATEGIES if capacity_type == "spot" else ON_DEMAND_STRATEGIES
    if strategy not in known:
        raise AwsError("InvalidParameterValue", f"Value ({strategy}) for parameter AllocationStrategy is invalid.")

    def key(pool: Pool) -> tuple[Any, ...]:
        price = _price(pool, offerings, capacity_type)
        depth = offerings.spot_depth(pool.instance_type, pool.zone) if capacity_type == "spot" else 0
        match strategy:
            case "prioritized":
                return (pool.priority, price, pool.position)
            case "capacity-optimized":
                return (-depth, price, pool.position)
            case "capacity-optimized-prioritized":
                return (depth <= SHALLOW_POOL, pool.priority, -depth, pool.position)
            case "price-capacity-optimized":
                return (depth <= SHALLOW_POOL, price, pool.position)
            case _:
                return (price, pool.position)

    return sorted(pools, key=key)


def _price(pool: Pool, offerings: Offerings, capacity_type: str) -> Decimal:
    if not offerings.exists(pool.instance_type):
        return _UNPRICED
    if capacity_type == "spot":
        return offerings.spot_price(pool.instance_type, pool.zone) or _UNPRICED
    return offerings.on_demand_price(pool.instance_type) or _UNPRICED


def shares(count: int, pools: Sequence[Pool], strategy: str) -> list[tuple[Pool, int]]:
    """How many of `count` to ask of each pool first: all of the best, unless the strategy is diversified."""
    if strategy != "diversified":
        return [(pool, 0) for pool in pools]
    even, extra = divmod(count, len(pools))
    return [(pool, even + (index < extra)) for index, pool in enumerate(pools)]
