"""EC2 in memory (Ec2Port): instant fleets with client tokens and pools that run dry, templates, instances.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html.
"""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.errors import ApiError, InvalidRequest, NotFound
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.ec2.instance_status import InstanceStatus
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects

SHUTDOWN_SECONDS: Final = 30
LIVE_STATES: Final = ("pending", "running", "stopping", "stopped", "shutting-down")

type CapacityPool = tuple[str, str, str]


class FakeEc2:
    """See Ec2Port. ``capacity``: instances left by (capacity type, type, zone), ``*`` for any; absent = plenty.

    ``error_codes``: what a pool without capacity says in place of InsufficientInstanceCapacity. ``reservations``:
    instances left by capacity reservation. ``free_addresses``: by subnet; absent = plenty, and an instance takes a
    single address. ``partitions``: how many a placement group has, by its id; the partition of an instance
    younger than ``partition_lag_seconds`` is not shown. ``lag_seconds``: an instance younger than that is not shown at
    all. ``listed_ids``: the ids that lists show, None = all; reads by id see all. ``statuses``: of instances that are
    not well, by id. ``shutdown_seconds``: until one that shuts down is terminated.
    """

    def __init__(self, cluster: str, clock: Clock, effects: Effects) -> None:
        self._cluster, self._clock, self._effects = cluster, clock, effects
        self._numbers = itertools.count(1)
        self._answers: dict[str, tuple[str, FleetResult]] = {}
        self._templates: dict[str, list[str]] = {}
        self._started_from: dict[str, str] = {}
        self._ending: dict[str, float] = {}
        self.capacity: dict[CapacityPool, int] = {}
        self.error_codes: dict[CapacityPool, str] = {}
        self.reservations: dict[str, int] = {}
        self.free_addresses: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        self.partition_lag_seconds = 0.0
        self.lag_seconds = 0.0
        self.shutdown_seconds: float = SHUTDOWN_SECONDS
        self.listed_ids: frozenset[str] | None = None
        self.instances: dict[str, Instance] = {}
        self.requests: list[Mapping[str, Any]] = []
        self.statuses: dict[str, InstanceStatus] = {}

    def create_fleet(self, request: Mapping[str, Any]) -> FleetResult:
        body = json.dumps(request, sort_keys=True)
        token = str(request["ClientToken"])
        if token in self._answers and self._answers[token][0] != body:
            raise InvalidRequest("the client token was used with other parameters", code="IdempotentParameterMismatch")
        with self._effects.record("ec2", "create_fleet", token):
            if token not in self._answers:
                self.requests.append(request)
                self._answers[token] = (body, self._launch(request))
        return self._answers[token][1]

    def _launch(self, request: Mapping[str, Any]) -> FleetResult:
        target = request["TargetCapacitySpecification"]
        capacity_type = target["DefaultTargetCapacityType"]
        tags = _tags(request, "instance")
        overrides = sorted(
            (
                override | {"template": self._template(config["LaunchTemplateSpecification"])}
                for config in request["LaunchTemplateConfigs"]
                for override in config["Overrides"]
            ),
            key=lambda override: override.get("Priority", 0),
        )
        market = labels.SPOT if capacity_type == labels.SPOT else labels.ON_DEMAND
        instances: list[Instance] = []
        errors: dict[CapacityPool, FleetError] = {}
        while len(instances) < target["TotalTargetCapacity"]:
            option = next((option for option in overrides if self._take(market, option, errors)), None)
            if option is None:
                break
            instances.append(self._start(market, option, tags))
        # EC2 answers with pools, not with what of them was reserved.
        as_answered = tuple(
            msgspec.structs.replace(instance, capacity_type=market, reservation_id="") for instance in instances
        )
        return FleetResult(as_answered, tuple(errors[pool] for pool in sorted(errors)))

    def _take(self, capacity_type: str, option: Mapping[str, Any], errors: dict[CapacityPool, FleetError]) -> bool:
        instance_type, zone = option["InstanceType"], option["AvailabilityZone"]
        pool, subnet = (capacity_type, instance_type, zone), option["SubnetId"]
        if self.free_addresses.get(subnet, 1) <= 0:
            message = f"Insufficient free addresses in subnet '{subnet}'"
            code = "InsufficientFreeAddressesInSubnet"
            errors[pool] = FleetError(code, message, instance_type, zone, capacity_type, subnet)
            return False
        reservation = _reservation(option)
        if reservation:
            return self._take_reserved(reservation, pool, option, errors)
        for key in itertools.product((capacity_type, "*"), (instance_type, "*"), (zone, "*")):
            left = self.capacity.get(key)
            if left is not None and left <= 0:
                code = self.error_codes.get(pool, "InsufficientInstanceCapacity")
                errors[pool] = FleetError(
                    code, "There is no capacity", instance_type, zone, capacity_type,
                    option["SubnetId"],
                )  # fmt: skip
                return False
        if pool in self.capacity:
            self.capacity[pool] -= 1
        return True

    def _take_reserved(
        self, reservation: str, pool: CapacityPool, option: Mapping[str, Any], errors: dict[CapacityPool, FleetError]
    ) -> bool:
        if self.reservations.get(reservation, 0) <= 0:
            code, message = "ReservationCapacityExceeded", "The reservation has no instances left"
            errors[pool] = FleetError(code, message, pool[1], pool[2], pool[0], option["SubnetId"])
            return False
        self.reservations[reservation] -= 1
        return True

    def _start(self, capacity_type: str, option: Mapping[str, Any], tags: dict[str, str]) -> Instance:
        number = next(self._numbers)
        if option["SubnetId"] in self.free_addresses:
            self.free_addresses[option["SubnetId"]] -= 1
        template = json.loads(option["template"])
        reservation, placement = _reservation(option), template.get("Placement", {})
        group = placement.get("GroupId", "")
        instance = Instance(
            id=f"i-{number:017x}",
            instance_type=option["InstanceType"],
            zone=option["AvailabilityZone"],
            capacity_type=labels.RESERVED if reservation else capacity_type,
            state="pending",
            image_id=option.get("ImageId", ""),
            subnet_id=option["SubnetId"],
            private_dns_name=f"ip-10-0-{number // 250}-{number % 250}.internal",
            launch_time=self._clock.seconds(),
            tags=tags,
            security_groups=tuple(sorted(template["NetworkInterfaces"][0]["Groups"])),
            reservation_id=reservation,
            placement_group_id=group,
            partition_number=placement.get("PartitionNumber")
            or (self._emptiest_partition(group) if self.partitions.get(group) else 0),
        )
        self.instances[instance.id] = instance
        self._started_from[instance.id] = option["template"]
        return instance

    def _emptiest_partition(self, group: str) -> int:
        """The partition of a group that has the fewest instances."""
        partitions = [
            instance.partition_number for instance in self.live_instances() if instance.placement_group_id == group
        ]
        return min(range(1, self.partitions[group] + 1), key=partitions.count)

    def _template(self, named: Mapping[str, Any]) -> str:
        """The body of a template's version; InvalidRequest when there is none."""
        for number, name in enumerate(self._templates):
            versions = self._templates[name]
            if named["LaunchTemplateId"] == f"lt-{number:017x}" and int(named["Version"]) <= len(versions):
                return versions[int(named["Version"]) - 1]
        raise InvalidRequest(f"no launch template {named}", code="InvalidLaunchTemplateId.NotFound")

    def template_data(self, instance_id: str) -> Any:
        """What an instance was started from: RequestLaunchTemplateData."""
        return json.loads(self._started_from[instance_id])

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
        self._effects.before_read("ec2", "launch_template")
        body, versions = json.dumps(data, sort_keys=True), tuple(self._templates.get(name, ()))
        if body not in versions:
            return None
        return f"lt-{list(self._templates).index(name):017x}", str(versions.index(body) + 1)

    def ensure_launch_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[str, str]:
        body = json.dumps(data, sort_keys=True)
        versions = self._templates.setdefault(name, [])
        if body not in versions:
            with self._effects.record("ec2", "ensure_launch_template", name):
                versions += [] if body in versions else [body]
        return f"lt-{list(self._templates).index(name):017x}", str(versions.index(body) + 1)

    def instances_of_launch(self, launch: str) -> tuple[Instance, ...]:
        self._effects.before_read("ec2", "instances_of_launch")
        return tuple(instance for instance in self._listed() if instance.tags.get(labels.LAUNCH_TAG) == launch)

    def instances_of_cluster(self) -> tuple[Instance, ...]:
        self._effects.before_read("ec2", "instances_of_cluster")
        return tuple(
            instance
            for instance in self._listed()
            if instance.state in LIVE_STATES
            and instance.tags.get(labels.CLUSTER_NAME_TAG) == self._cluster
            and labels.NODEPOOL in instance.tags
        )

    def instances_by_id(self, instance_ids: Collection[str]) -> tuple[Instance, ...]:
        self._effects.before_read("ec2", "instances_by_id")
        return tuple(instance for instance in self._listed() if instance.id in instance_ids)

    def instance(self, instance_id: str) -> Instance | None:
        self._effects.before_read("ec2", "instance")
        if not instance_id.startswith("i-"):
            raise ApiError(f'Invalid id: "{instance_id}"', code="InvalidInstanceID.Malformed")
        return next((instance for instance in self._visible() if instance.id == instance_id), None)

    def unhealthy_instances(self) -> tuple[InstanceStatus, ...]:
        self._effects.before_read("ec2", "unhealthy_instances")
        running = {instance.id for instance in self._listed() if instance.state == "running"}
        return tuple(self.statuses[id] for id in sorted(running & self.statuses.keys()))

    def terminate(self, instance_ids: Sequence[str]) -> frozenset[str]:
        for instance_id in instance_ids:
            if instance_id not in self.instances:
                raise NotFound(f"The instance ID '{instance_id}' does not exist", code="InvalidInstanceID.NotFound")
        with self._effects.record("ec2", "terminate", " ".join(instance_ids)):
            for instance_id in instance_ids:
                self.stop(instance_id, after_seconds=0)
        ended = (instance.id for instance in self._listed_instances() if instance.state == "terminated")
        return frozenset(ended) & frozenset(instance_ids)

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        with self._effects.record("ec2", "tag", instance_id):
            if instance_id not in self.instances:
                raise NotFound(f"{instance_id} is not there", code="InvalidInstanceID.NotFound")
            before = self.instances[instance_id]
            self.instances[instance_id] = msgspec.structs.replace(before, tags=before.tags | dict(tags))

    # What EC2 does by itself

    def stop(self, instance_id: str, *, after_seconds: float) -> None:
        """Shut an instance down from a time on; it is terminated ``shutdown_seconds`` later."""
        if instance_id in self.instances:
            reservation = self.instances[instance_id].reservation_id
            if instance_id not in self._ending and reservation in self.reservations:
                self.reservations[reservation] += 1
            at = self._clock.now().timestamp() + after_seconds
            self._ending[instance_id] = min(at, self._ending.get(instance_id, at))

    def is_stopping(self) -> bool:
        """Whether an instance is to shut down at a time to come."""
        now = self._clock.now().timestamp()
        return any(at > now for at in self._ending.values())

    def end_reservation(self, id: str) -> None:
        """It is cancelled, or its time is over: instances in it run on, as on-demand."""
        self.reservations.pop(id)
        for key, instance in self.instances.items():
            if instance.reservation_id == id:
                self.instances[key] = msgspec.structs.replace(
                    instance, capacity_type=labels.ON_DEMAND, reservation_id=""
                )

    def add_instance(self, instance: Instance, *, like: str) -> None:
        """An instance that nobody here asked for, started from the same template as ``like``."""
        self.instances[instance.id] = instance
        self._started_from[instance.id] = self._started_from[like]

    def forget_instance(self, instance_id: str) -> None:
        """EC2 no longer knows the id."""
        self.instances.pop(instance_id, None)

    def all_instances(self) -> tuple[Instance, ...]:
        """All instances it knows, terminated ones too."""
        return self._listed_instances()

    def live_instances(self) -> tuple[Instance, ...]:
        return tuple(instance for instance in self._listed_instances() if instance.state in ("pending", "running"))

    def boot(self, instance_id: str) -> None:
        self.instances[instance_id] = msgspec.structs.replace(self.instances[instance_id], state="running")

    def forget_templates(self) -> None:
        """Somebody deleted them all."""
        self._templates.clear()

    def _visible(self) -> tuple[Instance, ...]:
        """As EC2 shows them: what was just launched comes later."""
        now = self._clock.now()
        return tuple(
            instance
            for instance in self._listed_instances()
            if instance.launch_time is None or (now - instance.launch_time).total_seconds() >= self.lag_seconds
        )

    def _listed(self) -> tuple[Instance, ...]:
        return tuple(
            instance for instance in self._visible() if self.listed_ids is None or instance.id in self.listed_ids
        )

    def _listed_instances(self) -> tuple[Instance, ...]:
        instances = self.instances.copy()
        return tuple(self._with_state(instances[key]) for key in sorted(instances))

    def _with_state(self, instance: Instance) -> Instance:
        ends, now = self._ending.get(instance.id), self._clock.now().timestamp()
        if (
            instance.partition_number
            and instance.launch_time
            and now - instance.launch_time.timestamp() < self.partition_lag_seconds
        ):
            instance = msgspec.structs.replace(instance, partition_number=0)
        if ends is None or now < ends:
            return instance
        state = "terminated" if now >= ends + self.shutdown_seconds else "shutting-down"
        return msgspec.structs.replace(instance, state=state)


def _reservation(option: Mapping[str, Any]) -> str:
    """The capacity reservation that an override's template targets, "" = none."""
    stated = json.loads(option["template"]).get("CapacityReservationSpecification", {})
    return str(stated.get("CapacityReservationTarget", {}).get("CapacityReservationId", ""))


def _tags(request: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {
        tag["Key"]: tag["Value"]
        for tag_specification in request.get("TagSpecifications", ())
        if tag_specification["ResourceType"] == kind
        for tag in tag_specification["Tags"]
    }
