"""How many addresses a subnet has left: what EC2 said, less what launches took since.

EC2 describes subnets every few minutes. A launch takes an address for each instance at once, and for the pods of each
node some more within two minutes, when the node joins. The first is certain, the second is what Karpenter expects, too:
as many as the smallest type of the launch runs pods. Nodes whose pods have addresses elsewhere (custom networking) take
fewer: so an expected shortage makes a launch prefer other subnets, and only a certain one closes the subnet.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from spotwright.aws.instance_types.unavailable_offerings import SUBNET_KIND, FreeAddresses
from spotwright.model.ec2.fleet import LaunchedIntoSubnet, OfferingHealth, SubnetAddresses

# Only subnets with fewer free addresses than this are looked after: a larger one outlasts most bursts.
FEW_ADDRESSES: Final = 4096
# A description counts this long; EC2NodeClasses are resolved every five minutes.
DESCRIPTION_MS: Final = 20 * 60 * 1000
# How far EC2's description may be behind the instances that were launched.
DESCRIBE_LAG_MS: Final = 30_000
# Nodes have the addresses for their pods this long after their launch.
JOINING_MS: Final = 2 * 60 * 1000
# A request without an answer is forgotten after this time.
UNANSWERED_MS: Final = 10 * 60 * 1000


def record_description(
    before: OfferingHealth | None, subnet: str, zone: str, free_addresses: int, *, now_ms: int
) -> OfferingHealth | None:
    """The health row of a subnet that EC2 has described; None = it has plenty, or the row says so already."""
    known = before.subnet if before else None
    if free_addresses >= FEW_ADDRESSES and known is None:
        return None
    health = before or OfferingHealth(SUBNET_KIND, subnet, zone, 0, "")
    if free_addresses >= FEW_ADDRESSES:
        return msgspec.structs.replace(health, subnet=None)
    launches = _since(known.launches if known else {}, now_ms - JOINING_MS)
    described = SubnetAddresses(free_addresses, now_ms, launches)
    return None if known == described else msgspec.structs.replace(health, subnet=described)


def record_launch(
    before: OfferingHealth, launch: str, *, instances: int, addresses: int, now_ms: int
) -> OfferingHealth | None:
    """The health row of a subnet after a launch into it was requested or answered; None = nothing to record.

    ``instances``: those that EC2 started there; ``addresses``: what they and their pods are expected to take. Both 0:
    the launch took none after all.
    """
    if before.subnet is None:
        return None
    kept = _since(before.subnet.launches, now_ms - UNANSWERED_MS)
    launches = {name: launched for name, launched in kept.items() if name != launch}
    if instances or addresses:
        launches[launch] = LaunchedIntoSubnet(now_ms, instances, addresses)
    if launches == before.subnet.launches:
        return None
    return msgspec.structs.replace(before, subnet=msgspec.structs.replace(before.subnet, launches=launches))


def free_addresses(health: OfferingHealth, *, now_ms: int) -> FreeAddresses | None:
    """What is left in a subnet; None when nothing is known of it, or not any more."""
    described = health.subnet
    if described is None or now_ms - described.described_at_ms > DESCRIPTION_MS:
        return None
    at = described.described_at_ms
    started = _since(described.launches, at - DESCRIBE_LAG_MS)
    joining = _since(described.launches, at - JOINING_MS)
    return FreeAddresses(
        certain=described.free_addresses - sum(launched.instances for launched in started.values()),
        expected=described.free_addresses - sum(launched.addresses for launched in joining.values()),
    )


def _since(launches: Mapping[str, LaunchedIntoSubnet], at_ms: int) -> dict[str, LaunchedIntoSubnet]:
    return {name: launched for name, launched in launches.items() if launched.at_ms > at_ms}
