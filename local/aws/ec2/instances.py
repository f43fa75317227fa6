"""Instances from launch to an hour after their end: moto holds address, interface and volumes, we the rest.

pending -> running after PENDING_SECONDS; shutting-down -> terminated by the rule instance-shutdown, without which
TerminateInstances answers that the instance has ended. Every change is an EC2 Instance State-change Notification on the
default event bus.
"""

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.core.types import Base64EncodedString
from moto.ec2.models import ec2_backends

from local.aws.ec2 import events
from local.aws.emulator import Emulator
from local.aws.strictness import Rule
from local.aws.timers import Timers

PENDING_SECONDS = 1.0
# EC2 shows a terminated instance for about an hour.
TERMINATED_SECONDS = 3600.0
# A subnet with more free addresses does not give the one of an instance that ended to the next one.
PLENTY_OF_ADDRESSES = 2_000

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
USER_SHUTDOWN = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
SPOT_TERMINATION = (
    "Server.SpotInstanceTermination",
    "Server.SpotInstanceTermination: Instance terminated due to a Spot service interruption",
)


@dataclass(frozen=True)
class LaunchSpecification:
    """Everything an instance is launched with, template and request merged. `user_data` is base64.

    `capacity_reservation_id` is the one it uses, `capacity_reservation_target` the one it asked for; "" = none.
    `partition_number` is the partition of the placement group that was asked for, 0 = any.
    """

    instance_type: str
    image_id: str
    architecture: str
    subnet_id: str
    zone: str
    capacity_type: str
    security_groups: tuple[str, ...] = ()
    user_data: str | None = None
    profile_arn: str | None = None
    profile_id: str | None = None
    role_arn: str | None = None
    metadata_options: Mapping[str, Any] = field(default_factory=dict)
    block_devices: Sequence[Mapping[str, Any]] = ()
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    detailed_monitoring: bool = False
    fleet_id: str | None = None
    key_name: str | None = None
    client_token: str = ""
    capacity_reservation_id: str = ""
    capacity_reservation_target: str = ""
    capacity_reservation_preference: str = "open"
    tenancy: str = "default"
    placement_group_id: str = ""
    partition_number: int = 0


@dataclass
class Instance:
    """One instance. `moto_instance` is moto's own object."""

    id: str
    launch: LaunchSpecification
    moto_instance: Any
    launch_time: datetime
    reservation_id: str
    spot_request_id: str | None
    partition_number: int = 0
    state: str = "pending"
    state_reason: tuple[str, str] = ("", "")
    state_changed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    #: Since when a status check fails, by its name in the answer: SystemStatus, InstanceStatus, AttachedEbsStatus.
    impaired_since: dict[str, datetime] = field(default_factory=dict)
    scheduled_events: list[dict[str, Any]] = field(default_factory=list)
    #: Its address is given to nobody else though it has ended.
    keeps_address: bool = False
    #: Of all changes of state, the number of its last one.
    change: int = 0


class Instances:
    """The instances of the account, by id, oldest first. Safe to call from any thread."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._lock = threading.RLock()
        self._instances: dict[str, Instance] = {}
        self._changes = 0
        self._timers = emulator.component(Timers)
        self.backend: Any = ec2_backends[emulator.account][emulator.region]

    def all(self) -> list[Instance]:
        with self._lock:
            return list(self._instances.values())

    def changed_since(self, change: int) -> tuple[list[Instance], int]:
        """Those whose state changed after that change, 0 = all, and the number of the last change."""
        with self._lock:
            return [instance for instance in self._instances.values() if instance.change > change], self._changes

    def find(self, instance_id: str) -> Instance | None:
        return self._instances.get(instance_id)

    def shown(self) -> list[Instance]:
        """Those that EC2's answers hold by now."""
        return [instance for instance in self.all() if self._is_shown(instance.id)]

    def find_shown(self, instance_id: str) -> Instance | None:
        return self.find(instance_id) if self._is_shown(instance_id) else None

    def _is_shown(self, instance_id: str) -> bool:
        return self._emulator.strictness.is_seen(Rule.INSTANCE_PROPAGATION, instance_id)

    def tags(self, instance_id: str) -> dict[str, str]:
        return dict(self.backend.tags.get(instance_id, {}))

    def launch(self, launch: LaunchSpecification, count: int) -> list[Instance]:
        """Start `count` equal instances; raises what moto raises when a subnet is full."""
        with self._lock:
            reservation = self._run(launch, count)
            started = [self._keep(launch, machine, reservation.id) for machine in reservation.instances]
        for instance in started:
            self._emulator.strictness.note(Rule.INSTANCE_PROPAGATION, instance.id)
            events.emit_state_change(self._emulator, instance.id, "pending")
            self._later(PENDING_SECONDS, instance, "pending", "running")
        return started

    def _run(self, launch: LaunchSpecification, count: int) -> Any:
        return self.backend.run_instances(
            image_id=launch.image_id,
            count=count,
            user_data=Base64EncodedString(launch.user_data) if launch.user_data else None,
            security_group_names=[],
            security_group_ids=list(launch.security_groups),
            instance_type=launch.instance_type,
            is_instance_type_default=False,
            subnet_id=launch.subnet_id,
            region_name=self._emulator.region,
            key_name=launch.key_name,
            associate_public_ip=False,
            lifecycle="spot" if launch.capacity_type == "spot" else None,
            block_device_mappings=[dict(device) for device in launch.block_devices],
            tags={kind: dict(tags) for kind, tags in launch.tags.items() if kind in ("instance", "volume")},
        )

    def _keep(self, launch: LaunchSpecification, machine: Any, reservation_id: str) -> Instance:
        _set_moto_state(machine, "pending")
        for interface in machine.nics.values():
            interface.delete_on_termination = True
            interface.add_tags(dict(launch.tags.get("network-interface", {})))
        spot_request = f"sir-{uuid.uuid4().hex[:8]}" if launch.capacity_type == "spot" else None
        instance = Instance(machine.id, launch, machine, datetime.now(UTC), reservation_id, spot_request)
        self._instances[machine.id] = instance
        self._count_change(instance)
        return instance

    def terminate(self, instance_id: str, reason: tuple[str, str] = USER_SHUTDOWN) -> tuple[str, str]:
        """(previous state, state now); a second call changes nothing."""
        seconds = self._emulator.strictness.seconds(Rule.INSTANCE_SHUTDOWN, instance_id)
        after = "shutting-down" if seconds else "terminated"
        with self._lock:
            instance = self._instances[instance_id]
            before = instance.state
            if before in ("shutting-down", "terminated"):
                return before, before
            instance.state_reason = reason
            self._change(instance, after)
        events.emit_state_change(self._emulator, instance_id, after)
        if seconds:
            self._later(seconds, instance, after, "terminated")
        return before, after

    def _later(self, seconds: float, instance: Instance, before: str, after: str) -> None:
        self._timers.start(seconds, lambda: self._advance(instance, before, after))

    def _advance(self, instance: Instance, before: str, after: str) -> None:
        with self._lock:
            if instance.state != before:
                return
            self._change(instance, after)
        events.emit_state_change(self._emulator, instance.id, after)

    def _change(self, instance: Instance, state: str) -> None:
        if state == "terminated":
            instance.moto_instance.terminate()
            self._keep_address(instance)
            self._timers.start(TERMINATED_SECONDS, lambda: self._forget(instance))
        instance.state = state
        instance.state_changed_at = datetime.now(UTC)
        _set_moto_state(instance.moto_instance, state)
        self._count_change(instance)

    def _count_change(self, instance: Instance) -> None:
        self._changes += 1
        instance.change = self._changes

    def _forget(self, instance: Instance) -> None:
        with self._lock:
            self._instances.pop(instance.id, None)
            self.backend.reservations.pop(instance.reservation_id, None)
            self.backend.tags.pop(instance.id, None)
            if instance.keeps_address:
                subnet = self.backend.get_subnet(instance.launch.subnet_id)
                subnet.del_subnet_ip(instance.moto_instance.private_ip)

    def _keep_address(self, instance: Instance) -> None:
        """Give the next instance another address while the subnet has plenty: nodes are called after their address,
        and whoever waits for a node to be gone would take the next one for it. It counts as free."""
        subnet = self.backend.get_subnet(instance.launch.subnet_id)
        if subnet.available_ip_address_count > PLENTY_OF_ADDRESSES:
            subnet.request_ip(instance.moto_instance.private_ip, instance=instance.moto_instance)
            instance.keeps_address = True


def _set_moto_state(machine: Any, state: str) -> None:
    machine._state.name = state
    machine._state.code = STATE_CODES[state]
