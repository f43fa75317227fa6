"""EC2 with the rights of one cluster's *act* role."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from spotwright.model.ec2.fleet import FleetResult, Instance, LaunchTemplate
from spotwright.model.ec2.instance_status import InstanceStatus


class Ec2Port(Protocol):
    """EC2 with the rights of one cluster's *act* role (reads too)."""

    def create_fleet(self, request: Mapping[str, Any]) -> FleetResult:
        """Send a stored request verbatim (its ClientToken makes it idempotent)."""
        ...

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
        """(id, version number as text) of the template ``name`` holding exactly ``data``, if there is one."""
        ...

    def ensure_launch_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[str, str]:
        """(id, version number as text) of the template ``name`` holding exactly ``data``; created when missing."""
        ...

    def instances_of_launch(self, launch: str) -> tuple[Instance, ...]: ...
    def instances_of_cluster(self) -> tuple[Instance, ...]: ...

    def instances_by_id(self, instance_ids: Collection[str]) -> tuple[Instance, ...]:
        """Those of these instances that EC2 lists, terminated ones too; by id. Absence from it proves nothing."""
        ...

    def instance(self, instance_id: str) -> Instance | None:
        """A direct read by id; None only when EC2 itself says NotFound."""
        ...

    def unhealthy_instances(self) -> tuple[InstanceStatus, ...]:
        """The instances of the region, of any cluster and of none, that have a failing check or a scheduled event."""
        ...

    def terminate(self, instance_ids: Sequence[str]) -> frozenset[str]:
        """One call; ended ones may be among them: those that are terminated by now. One that EC2 does not know
        (NotFound), or that we may not end, keeps all of them."""
        ...

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None: ...


class InstanceTagsPort(Protocol):
    def instances_by_id(self, instance_ids: Collection[str]) -> tuple[Instance, ...]:
        """Those that EC2 lists, of any cluster and of none."""
        ...


class LaunchTemplatePort(Protocol):
    def launch_templates(self, node_class: str = "") -> tuple[LaunchTemplate, ...]:
        """This cluster's templates, of one class when it is named; by id."""
        ...

    def delete_launch_template(self, template_id: str) -> None: ...
    def instances_of_cluster(self) -> tuple[Instance, ...]:
        """What may have been started from them; see Ec2Port."""
        ...


class DryRunPort(Protocol):
    """Calls that find out whether EC2 would do something."""

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None: ...

    def ensure_launch_template(
        self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]
    ) -> tuple[str, str]: ...

    def dry_run(self, operation: str, request: Mapping[str, Any]) -> None:
        """CreateFleet or RunInstances with DryRun set; nothing is raised when EC2 would do it."""
        ...
