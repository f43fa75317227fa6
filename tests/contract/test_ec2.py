"""Ec2Port: the fake and EC2 obey one suite; a launch worked out by us is one that EC2 takes."""

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec
import pytest
import urllib3

from local.aws.strictness import Rule
from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import create_fleet, fleet_errors, fleet_plan
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.errors import ApiError, InvalidRequest, NotFound
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetResult
from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, ScheduledEvent, StatusCheck
from spotwright.model.karpenter.nodeclass import (
    AMI,
    CapacityReservation,
    EC2NodeClass,
    PlacementGroup,
    SecurityGroup,
    Subnet,
)
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation.clock import Clock
from spotwright.simulation.ec2 import FakeEc2
from spotwright.simulation.effects import Effects
from spotwright.workflows.ports.ec2 import Ec2Port
from tests.contract.conftest import LocalAws
from tests.unit.aws import samples

NUMBERS = itertools.count()
NOBODY = "i-0123456789abcdef0"
RETIRED, NOT_BEFORE = "instance-retirement", datetime(2030, 1, 1, tzinfo=UTC)


class World(Protocol):
    """EC2 as a launch meets it. ``sold_out``: (capacity type, type, zone) that have nothing, ``*`` for any."""

    ec2: Ec2Port
    cluster: str
    nodeclass: EC2NodeClass

    def sold_out(self, *offerings: tuple[str, str, str]) -> None: ...

    def reserve(self, instance_type: str, zone: str, count: int) -> str:
        """The id of a new capacity reservation that only who targets it may use."""
        ...

    def group(self, partitions: int) -> PlacementGroup:
        """A new placement group with partitions."""
        ...

    def fall_ill(self, instance: str, seconds: int) -> None:
        """EC2's check of the instance fails for so long; it is to be retired in a while."""
        ...

    def wait_for(self, instance: str, state: str) -> None:
        """Until the instance is in the state, to which it is on its way."""
        ...

    def ending_at_once(self) -> AbstractContextManager[None]:
        """Meanwhile instances do not shut down for a while before they have ended."""
        ...


class InMemory:
    def __init__(self, cluster: str) -> None:
        self._clock = Clock()
        self._fake = FakeEc2(cluster, self._clock, Effects(self._clock))
        self.ec2: Ec2Port = self._fake
        self.cluster = cluster
        self.nodeclass = samples.nodeclass()

    def sold_out(self, *offerings: tuple[str, str, str]) -> None:
        self._fake.capacity = dict.fromkeys(offerings, 0)

    def reserve(self, instance_type: str, zone: str, count: int) -> str:
        self._fake.reservations["cr-1"] = count
        return "cr-1"

    def group(self, partitions: int) -> PlacementGroup:
        self._fake.partitions["pg-1"] = partitions
        return PlacementGroup("pg-1", "kafka", "partition", partitions)

    def fall_ill(self, instance: str, seconds: int) -> None:
        self._fake.boot(instance)
        impairment = Impairment(StatusCheck.INSTANCE, datetime.now(UTC) - timedelta(seconds=seconds))
        self._fake.statuses[instance] = InstanceStatus(instance, (impairment,), (ScheduledEvent(RETIRED, NOT_BEFORE),))

    def wait_for(self, instance: str, state: str) -> None:
        while {each.id: each.state for each in self._fake.all_instances()}[instance] != state:
            self._clock.advance(1)

    @contextmanager
    def ending_at_once(self) -> Iterator[None]:
        self._fake.shutdown_seconds = 0
        yield


class Real:
    """The local AWS: its network and images in a class, its control API for capacity."""

    def __init__(self, aws: LocalAws, cluster: str) -> None:
        client: Any = aws.client("ec2")
        self._client = client
        self._control = f"{aws.endpoint}/_local"
        self.ec2: Ec2Port = Ec2(client, cluster=cluster)
        self.cluster = cluster
        self.nodeclass = _class_in(client)

    def sold_out(self, *offerings: tuple[str, str, str]) -> None:
        rules = [{"capacityType": kind, "instanceType": name, "zone": zone} for kind, name, zone in offerings]
        body = json.dumps({"insufficient": rules})
        assert urllib3.request("POST", f"{self._control}/capacity", body=body).status == 200

    def reserve(self, instance_type: str, zone: str, count: int) -> str:
        reservation = self._client.create_capacity_reservation(
            InstanceType=instance_type, InstancePlatform="Linux/UNIX", AvailabilityZone=zone,
            InstanceCount=count, InstanceMatchCriteria="targeted",
        )  # fmt: skip
        return str(reservation["CapacityReservation"]["CapacityReservationId"])

    def group(self, partitions: int) -> PlacementGroup:
        placement_group = self._client.create_placement_group(
            GroupName=self.cluster, Strategy="partition", PartitionCount=partitions
        )
        return PlacementGroup(placement_group["PlacementGroup"]["GroupId"], self.cluster, "partition", partitions)

    def fall_ill(self, instance: str, seconds: int) -> None:
        over = {"Code": "instance-stop", "Description": "[Completed] it was moved"}
        retired = {"Code": RETIRED, "Description": "its host fails", "NotBefore": NOT_BEFORE.isoformat()}
        body = {"instanceId": instance, "impaired": {"InstanceStatus": seconds}, "events": [over, retired]}
        self.wait_for(instance, "running")
        assert urllib3.request("POST", f"{self._control}/status", body=json.dumps(body)).status == 200

    def wait_for(self, instance: str, state: str) -> None:
        while (
            self._client.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["State"]["Name"]
            != state
        ):
            time.sleep(0.1)

    @contextmanager
    def ending_at_once(self) -> Iterator[None]:
        self._shut_down(False)
        try:
            yield
        finally:
            self._shut_down(True)

    def _shut_down(self, is_slow: bool) -> None:
        body = json.dumps({Rule.INSTANCE_SHUTDOWN: is_slow})
        assert urllib3.request("POST", f"{self._control}/strictness", body=body).status == 200


def _class_in(client: Any) -> EC2NodeClass:
    discovery = [{"Name": "tag:karpenter.sh/discovery", "Values": [samples.CLUSTER]}]
    subnets = client.describe_subnets(Filters=discovery)["Subnets"]
    groups = client.describe_security_groups(Filters=discovery)["SecurityGroups"]
    name = "amazon-eks-node-al2023-x86_64-standard-1.35-*"
    image = client.describe_images(Filters=[{"Name": "name", "Values": [name]}])["Images"][0]["ImageId"]
    return samples.nodeclass(
        subnets=tuple(Subnet(subnet["SubnetId"], subnet["AvailabilityZone"]) for subnet in subnets),
        security_groups=tuple(SecurityGroup(group["GroupId"]) for group in groups),
        amis=(AMI(image),),
        resolved_instance_profile="",
    )


@pytest.fixture(params=["fake", "ec2"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """EC2 with a cluster nobody used before."""
    cluster = f"cluster-{next(NUMBERS)}"
    built: World
    if request.param == "fake":
        built = InMemory(cluster)
    else:
        aws: LocalAws = request.getfixturevalue("local_aws")
        built = Real(aws, cluster)
        _with_profile(built, aws)
    yield built
    built.sold_out()
    if left := [instance.id for instance in built.ec2.instances_of_cluster()]:
        built.ec2.terminate(left)


def _with_profile(world: Any, aws: LocalAws) -> None:
    iam: Any = aws.client("iam")
    iam.create_instance_profile(InstanceProfileName=f"{world.cluster}-profile")
    iam.add_role_to_instance_profile(
        InstanceProfileName=f"{world.cluster}-profile", RoleName=f"KarpenterNodeRole-{samples.CLUSTER}"
    )
    world.nodeclass = msgspec.structs.replace(world.nodeclass, resolved_instance_profile=f"{world.cluster}-profile")


def planned(
    world: World, *names: str, capacity_type: str = "spot", further: tuple[NodeSelectorRequirement, ...] = ()
) -> FleetPlan:
    wanted = samples.new_node(*names, requirements=(samples.capacity_types(capacity_type), *further))
    facts = msgspec.structs.replace(samples.FACTS, name=world.cluster)
    plan = fleet_plan.plan_fleet(
        wanted, world.nodeclass, samples.types(*names, of=world.nodeclass), facts, UnavailableOfferings()
    )
    assert isinstance(plan, FleetPlan), plan
    return plan


def request_of(world: World, fleet: FleetPlan, *, id: str, count: int = 1, attempt: int = 0) -> Mapping[str, Any]:
    versions = {
        template_request.name: world.ec2.ensure_launch_template(
            template_request.name, template_request.data, template_request.tags
        )
        for template_request in fleet.templates
    }
    token = create_fleet.client_token(f"{world.cluster}-{id}", attempt)
    return create_fleet.create_fleet_request(fleet, versions, launch_id=id, count=count, client_token=token)


def bought(world: World, *names: str, id: str = "l1", count: int = 1, capacity_type: str = "spot") -> FleetResult:
    fleet = planned(world, *names, capacity_type=capacity_type)
    return world.ec2.create_fleet(request_of(world, fleet, id=id, count=count))


def test_a_launch_gives_as_many_instances_as_were_asked_for(world: World) -> None:
    result = bought(world, "c5.large", "m5.large", count=3)
    assert len({instance.id for instance in result.instances}) == 3
    for instance in result.instances:
        assert (instance.instance_type, instance.capacity_type) in {("c5.large", "spot"), ("m5.large", "spot")}
        assert instance.zone in samples.ZONES
        assert instance.image_id == world.nodeclass.amis[-1].id or instance.image_id == "ami-x86_64-standard"


@pytest.mark.parametrize("capacity_type", ["spot", "on-demand"])
def test_an_instance_is_found_by_its_launch_and_its_cluster(world: World, capacity_type: str) -> None:
    (instance,) = bought(world, "c5.large", id="mine", capacity_type=capacity_type).instances
    bought(world, "c5.large", id="other")
    (listed,) = world.ec2.instances_of_launch("mine")
    assert (listed.id, listed.instance_type, listed.zone, listed.capacity_type) == (
        instance.id,
        "c5.large",
        instance.zone,
        capacity_type,
    )
    assert listed.tags[labels.NODEPOOL] == "default"
    assert listed.tags[labels.EC2NODECLASS] == "default"
    assert listed.tags[labels.cluster_tag(world.cluster)] == "owned"
    assert len(world.ec2.instances_of_cluster()) == 2
    assert [found.id for found in world.ec2.instances_by_id({instance.id, NOBODY})] == [instance.id]
    assert world.ec2.instance(instance.id) is not None
    assert world.ec2.instances_of_launch("nobody's") == ()


def test_an_instance_in_trouble_is_shown_with_what_it_is_and_since_when(world: World) -> None:
    sick, well = bought(world, "c5.large", count=2).instances
    assert {sick.id, well.id}.isdisjoint(status.instance_id for status in world.ec2.unhealthy_instances())
    began = datetime.now(UTC)
    world.fall_ill(sick.id, 300)
    ended = datetime.now(UTC)
    (status,) = (each for each in world.ec2.unhealthy_instances() if each.instance_id in (sick.id, well.id))
    assert (status.instance_id, status.events) == (sick.id, (ScheduledEvent(RETIRED, NOT_BEFORE),))
    (impairment,) = status.impairments
    assert impairment.check == StatusCheck.INSTANCE
    fell_ill, second = impairment.since + timedelta(seconds=300), timedelta(seconds=1)
    assert began - second < fell_ill < ended + second


def test_the_same_request_twice_is_one_launch(world: World) -> None:
    request = request_of(world, planned(world, "c5.large"), id="l1")
    assert world.ec2.create_fleet(request) == world.ec2.create_fleet(request)
    assert len(world.ec2.instances_of_launch("l1")) == 1


def test_a_token_with_another_request_is_refused(world: World) -> None:
    fleet = planned(world, "c5.large")
    world.ec2.create_fleet(request_of(world, fleet, id="l1"))
    with pytest.raises(InvalidRequest) as refused:
        world.ec2.create_fleet(request_of(world, fleet, id="l1", count=2))
    assert refused.value.code == "IdempotentParameterMismatch"


def test_another_attempt_is_another_launch(world: World) -> None:
    fleet = planned(world, "c5.large")
    for attempt in (0, 1):
        world.ec2.create_fleet(request_of(world, fleet, id="l1", attempt=attempt))
    assert len(world.ec2.instances_of_launch("l1")) == 2


def test_an_empty_offering_is_passed_over(world: World) -> None:
    world.sold_out(("spot", "c5.large", "*"))
    result = bought(world, "c5.large", "m5.large")
    assert [instance.instance_type for instance in result.instances] == ["m5.large"]


def test_nothing_left_is_an_answer_and_not_a_failure(world: World) -> None:
    world.sold_out(("spot", "*", "*"))
    result = bought(world, "c5.large")
    assert result.instances == ()
    assert result.errors
    for error in result.errors:
        assert (error.code, error.instance_type, error.capacity_type) == (
            "InsufficientInstanceCapacity",
            "c5.large",
            "spot",
        )
        assert error.zone in samples.ZONES
    assert fleet_errors.launch_failure(result.errors).insufficient_capacity
    assert fleet_errors.offering_failures(result.errors, now_ms=0)


def into_reservation(world: World, count: int, reserved: int) -> tuple[str, FleetResult]:
    """(reservation, answer) of a launch of so many into a reservation of so many, with all else sold out."""
    name, zone = "c5a.large", world.nodeclass.subnets[0].zone
    id = world.reserve(name, zone, reserved)
    own = msgspec.structs.replace(
        world.nodeclass,
        capacity_reservations=(CapacityReservation(id, name, zone, available_instance_count=reserved),),
    )
    wanted = samples.new_node(name, requirements=(samples.capacity_types("reserved"),))
    facts = msgspec.structs.replace(samples.FACTS, name=world.cluster)
    fleet = fleet_plan.plan_fleet(wanted, own, samples.types(name, of=own), facts, UnavailableOfferings())
    assert isinstance(fleet, FleetPlan), fleet
    world.sold_out(("on-demand", "*", "*"))
    return id, world.ec2.create_fleet(request_of(world, fleet, id=f"into-{id}", count=count))


def test_a_launch_into_a_reservation_runs_there_whatever_is_sold_out(world: World) -> None:
    id, answer = into_reservation(world, 2, 2)
    assert (len(answer.instances), answer.errors) == (2, ())
    for instance in answer.instances:
        running = world.ec2.instance(instance.id)
        assert running is not None
        assert (running.capacity_type, running.reservation_id) == ("reserved", id)


def test_beyond_a_reservation_there_is_nothing_and_its_pool_says_why(world: World) -> None:
    _, answer = into_reservation(world, 3, 1)
    assert len(answer.instances) == 1
    (error,) = answer.errors
    assert (error.code, error.instance_type) == ("ReservationCapacityExceeded", "c5a.large")
    assert fleet_errors.launch_failure(answer.errors).insufficient_capacity


def test_a_template_is_made_once_for_its_content(world: World) -> None:
    (template_request,) = planned(world, "c5.large").templates
    first = world.ec2.ensure_launch_template(template_request.name, template_request.data, template_request.tags)
    assert (
        world.ec2.ensure_launch_template(template_request.name, template_request.data, template_request.tags) == first
    )
    assert first[1] == "1"


def test_other_content_under_the_same_name_is_another_version(world: World) -> None:
    (template_request,) = planned(world, "c5.large").templates
    first = world.ec2.ensure_launch_template(template_request.name, template_request.data, template_request.tags)
    changed = dict(template_request.data) | {"Monitoring": {"Enabled": True}}
    second = world.ec2.ensure_launch_template(template_request.name, changed, template_request.tags)
    assert second == (first[0], "2")
    assert (
        world.ec2.ensure_launch_template(template_request.name, template_request.data, template_request.tags) == first
    )


def test_a_terminated_instance_leaves_the_cluster_and_terminating_twice_is_fine(world: World) -> None:
    first, second = (bought(world, "c5.large", id=f"l{number}").instances[0].id for number in (1, 2))
    assert not world.ec2.terminate([first])
    world.ec2.terminate([first])
    shown = {running.id: running.state for running in world.ec2.instances_of_cluster()}
    assert shown[second] in ("pending", "running")
    assert shown.get(first) in (None, "shutting-down")
    instance = world.ec2.instance(first)
    assert instance is None or instance.state in ("shutting-down", "terminated")
    world.wait_for(first, "terminated")
    assert world.ec2.terminate([first, second]) == {first}


def test_what_ends_at_once_is_said_to_have_ended(world: World) -> None:
    ids = [bought(world, "c5.large", id=f"l{number}").instances[0].id for number in (1, 2)]
    with world.ending_at_once():
        assert world.ec2.terminate(ids) == set(ids)
        assert world.ec2.terminate(ids) == set(ids)
    instance = world.ec2.instance(ids[0])
    assert instance is not None
    assert instance.state == "terminated"


def test_one_unknown_id_keeps_all_of_a_call_from_being_terminated(world: World) -> None:
    instance_id = bought(world, "c5.large").instances[0].id
    with pytest.raises(NotFound):
        world.ec2.terminate([instance_id, NOBODY])
    instance = world.ec2.instance(instance_id)
    assert instance is not None
    assert instance.state in ("pending", "running")


def test_an_instance_that_never_was_is_none(world: World) -> None:
    assert world.ec2.instance(NOBODY) is None


def test_what_is_no_instance_id_is_refused(world: World) -> None:
    with pytest.raises(ApiError, match="Invalid id"):
        world.ec2.instance("")


def test_tags_are_added(world: World) -> None:
    (instance,) = bought(world, "c5.large").instances
    world.ec2.tag(instance.id, {"Name": "ip-10-0-0-1", labels.NODECLAIM: "default-abcde"})
    tagged = world.ec2.instance(instance.id)
    assert tagged is not None
    assert tagged.tags["Name"] == "ip-10-0-0-1"
    assert tagged.tags[labels.NODECLAIM] == "default-abcde"
    assert tagged.tags[labels.LAUNCH_TAG] == "l1"


def test_templates_are_found_by_cluster_and_class_and_go_once(local_aws: LocalAws) -> None:
    world = Real(local_aws, f"cluster-{next(NUMBERS)}")
    _with_profile(world, local_aws)
    client: Any = local_aws.client("ec2")
    ec2 = Ec2(client, cluster=world.cluster)
    (template_request,) = planned(world, "c5.large").templates
    id, _ = ec2.ensure_launch_template(template_request.name, template_request.data, template_request.tags)
    (launch_template,) = ec2.launch_templates("default")
    assert launch_template.id == id
    assert ec2.launch_templates() == (launch_template,)
    assert ec2.launch_templates("other") == ()
    for _ in range(2):
        ec2.delete_launch_template(id)
    assert ec2.launch_templates() == ()


def test_a_new_template_is_awaited_before_it_is_launched_from(local_aws: LocalAws) -> None:
    world = Real(local_aws, f"cluster-{next(NUMBERS)}")
    _with_profile(world, local_aws)
    url = f"{local_aws.endpoint}/_local/strictness"
    try:
        for number in range(3):
            world.nodeclass = msgspec.structs.replace(world.nodeclass, user_data=f"#!/bin/sh\necho {number}\n")
            fleet = planned(world, "c5.large")
            assert urllib3.request("POST", url, body='{"launch-template-propagation": true}').status == 200
            assert world.ec2.create_fleet(request_of(world, fleet, id=f"l{number}")).instances
    finally:
        urllib3.request("POST", url, body='{"launch-template-propagation": false}')
        world.ec2.terminate([instance.id for instance in world.ec2.instances_of_cluster()])


def test_a_template_of_the_cluster_that_no_nodepool_has_is_not_among_ours(local_aws: LocalAws) -> None:
    """Managed node groups tag theirs with the cluster, too; whatever is listed is deleted when it is not used."""
    world = Real(local_aws, f"cluster-{next(NUMBERS)}")
    _with_profile(world, local_aws)
    client: Any = local_aws.client("ec2")
    ec2 = Ec2(client, cluster=world.cluster)
    (template_request,) = planned(world, "c5.large").templates
    tags = {key: value for key, value in template_request.tags.items() if key != labels.NODEPOOL}
    ec2.ensure_launch_template(f"eks-{next(NUMBERS)}", template_request.data, tags)
    assert ec2.launch_templates() == ()


@pytest.mark.parametrize("partition", ["", "2"])
def test_an_instance_says_in_which_partition_of_its_group_it_is(world: World, partition: str) -> None:
    group = world.group(3)
    world.nodeclass = msgspec.structs.replace(world.nodeclass, placement_group=group)
    pinned = (NodeSelectorRequirement(labels.PLACEMENT_GROUP_PARTITION, "In", (partition,)),) if partition else ()
    fleet = planned(world, "c5.large", further=pinned)
    world.ec2.create_fleet(request_of(world, fleet, id="l1", count=3))
    instances = world.ec2.instances_of_launch("l1")
    assert sorted(instance.partition_number for instance in instances) == ([2, 2, 2] if partition else [1, 2, 3])
    assert {instance.placement_group_id for instance in instances} == {group.id}
