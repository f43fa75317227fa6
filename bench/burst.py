"""A burst of pods against the local AWS in this process, in virtual time, until every node is launched."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from botocore.config import Config

from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.aws.images import families
from spotwright.aws.instance_types import offerings
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.refusal import Refusal
from spotwright.decisions.decision import Launch, decode_decision
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, SecurityGroup, Subnet
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.ports.doorbells import Doorbell

MAX_SECONDS = 600
PROFILE = "bench-profile"

type IsEmpty = Callable[[str, str, str], bool]


class BurstResult(msgspec.Struct, frozen=True):
    """What a burst came to. ``calls``: EC2 actions. ``rounds``: number of decisions → pods; ``decided_often``:
    pods with more than two decisions.
    """

    nodes: int
    placed: int
    offerings: int
    empty_offerings: int
    calls: Counter[str]
    throttled: int
    rounds: Counter[int]
    decided_often: int
    seconds: int


class Burst(World):
    """A world without schedules: what a burst comes to is not helped by a sweep that happens to pass."""

    def _schedules(self) -> None:
        return


class Scheduler:
    """In place of machines, which would take minutes: a pod that was seen has no node yet, and that is all."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reconcile(self) -> None:
        for pod in self._world.cluster.all("pods"):
            if not pod.unschedulable and not pod.node_name:
                self._world.cluster.update("pods", pod.key, unschedulable=True)


def run_burst(
    directory: Path, *, region: str, cluster: str, shapes: Sequence[tuple[int, int]], pods: int, cpus: tuple[str, ...],
    is_empty: IsEmpty,
) -> BurstResult:  # fmt: skip
    """Launch for ``pods`` pods of these shapes while the offerings that ``is_empty`` names have no capacity."""
    with local_account(directory, region, cluster) as (account, client):
        ec2 = client("ec2")
        node_class = account_nodeclass(ec2, client("iam"), cluster)
        types = _types(ec2, client("pricing"), region, node_class)
        world = Burst(types, cluster)
        world.ec2 = Ec2(ec2, cluster=cluster)  # type: ignore[assignment]
        world.kubelets = Scheduler(world)  # type: ignore[assignment]
        account.request_limits.clock = lambda: world.clock.now().timestamp()
        sold = _offered(types)
        empty = sorted(offering for offering in sold if is_empty(*offering))
        account.capacity.replace(
            {"insufficient": [{"capacityType": kind, "instanceType": name, "zone": zone} for kind, name, zone in empty]}
        )
        before = len(account.emulator.call_log.since(0))
        seconds = _burst(world, node_class, shapes, pods, cpus)
        calls = [call for call in account.emulator.call_log.since(before) if call["service"] == "ec2"]
        return _counted(world, calls, len(sold), len(empty), seconds)


def _burst(
    world: World, node_class: EC2NodeClass, shapes: Sequence[tuple[int, int]], pods: int, cpus: tuple[str, ...]
) -> int:
    """Seconds until every claim of every decision has its instance and nothing is left to plan."""
    world.cluster.put("ec2nodeclasses", node_class)
    sizes = NodeSelectorRequirement(labels.INSTANCE_PREFIX + "cpu", Operator.IN, cpus)
    world.cluster.put(
        "nodepools", builders.nodepool(requirements=(sizes, *builders.capacity_types("spot", "on-demand")))
    )
    for number, (millicores, mebibytes) in enumerate(shapes):
        template = builders.pod(f"work{number}", cpu_millicores=millicores, memory_bytes=mebibytes * 2**20)
        world.deploy(template, pods // len(shapes) + (number < pods % len(shapes)))
    world.forwarder_runs = False
    world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")])
    begun = world.clock.now()
    world.run(MAX_SECONDS, until=lambda: _is_settled(world))
    return int((world.clock.now() - begun).total_seconds())


def _is_settled(world: World) -> bool:
    planning = any(message.queue == "provision" for message in world.doorbells.messages)
    return (
        bool(world.claims())
        and not planning
        and not world.state.launches()
        and not world.state.cluster_row.pending_decisions
    )


def _counted(world: World, calls: list[dict[str, Any]], offered: int, empty: int, seconds: int) -> BurstResult:
    rounds: Counter[str] = Counter()
    placed: dict[str, bool] = {}
    launched = {claim.name for claim in world.claims() if claim.provider_id}
    for launch in _launches(world):
        rounds.update(launch.node.pods)
        placed |= dict.fromkeys(launch.node.pods, launched.issuperset(launch.claims))
    by_rounds = Counter(rounds.values())
    return BurstResult(
        nodes=len(launched),
        placed=sum(placed.values()),
        offerings=offered,
        empty_offerings=empty,
        calls=Counter(call["action"] for call in calls),
        throttled=sum(call.get("error") == "RequestLimitExceeded" for call in calls),
        rounds=by_rounds,
        decided_often=sum(count for number, count in by_rounds.items() if number > 2),
        seconds=seconds,
    )


def _launches(world: World) -> Iterator[Launch]:
    """Of every decision, in the order in which they became true."""
    bodies = (body for key, body in world.blobs.bodies.items() if key.startswith("decisions/"))
    for decision in sorted(map(decode_decision, bodies), key=lambda decision: decision.cluster_version):
        yield from decision.launches


@contextmanager
def local_account(directory: Path, region: str, cluster: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    """The local AWS, and clients of its administrator. Imported here, because it imports moto."""
    from local.aws.in_process import run_in_process
    from local.aws.strictness import WITHOUT_DELAYS

    with run_in_process(directory, region=region, cluster=cluster, lenient=WITHOUT_DELAYS) as account:
        yield account, lambda service: account.client(service, config=Config(retries={"total_max_attempts": 1}))


def account_nodeclass(ec2: Any, iam: Any, cluster: str) -> EC2NodeClass:
    """A class that is ready, with the account's own network and image."""
    discovery = [{"Name": "tag:karpenter.sh/discovery", "Values": [cluster]}]
    name = "amazon-eks-node-al2023-x86_64-standard-1.35-*"
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": [name]}])["Images"][0]["ImageId"]
    iam.create_instance_profile(InstanceProfileName=PROFILE)
    iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=f"KarpenterNodeRole-{cluster}")
    subnets = ec2.describe_subnets(Filters=discovery)["Subnets"]
    groups = ec2.describe_security_groups(Filters=discovery)["SecurityGroups"]
    return builders.nodeclass(
        subnets=tuple(Subnet(subnet["SubnetId"], subnet["AvailabilityZone"]) for subnet in subnets),
        security_groups=tuple(SecurityGroup(group["GroupId"]) for group in groups),
        amis=(AMI(image, requirements=(NodeSelectorRequirement(labels.ARCH, Operator.IN, ("amd64",)),)),),
        resolved_instance_profile=PROFILE,
    )


def _types(ec2: Any, prices: Any, region: str, node_class: EC2NodeClass) -> Catalog:
    """Every type that the account can buy, as the catalog function makes them."""
    family = families.ami_family(node_class)
    assert not isinstance(family, Refusal), family
    sells = Ec2Region(ec2, prices, region=region).read(datetime.now(UTC))
    return Catalog({"": offerings.instance_types(sells, offerings.offering_context(node_class, family), Overheads())})


def _offered(catalog: Catalog) -> set[tuple[str, str, str]]:
    return {
        (offering.capacity_type, instance_type.name, offering.zone)
        for instance_type in catalog.instance_types("")
        for offering in instance_type.offerings
        if offering.available
    }
