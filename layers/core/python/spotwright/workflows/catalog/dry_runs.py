"""Asking EC2 whether it would launch a class' nodes, once for what the class says, and again after half an hour.

The answer's home is the class: the condition holds what was said, an annotation which content it was about and until
when it holds.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.images import families
from spotwright.aws.launch import dry_run
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.aws.nodeclass import readiness
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.errors import ApiError, Throttled
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.meta import Condition, find_condition
from spotwright.workflows.account import rate_limits
from spotwright.workflows.catalog import instance_types
from spotwright.workflows.ports.bundles import CatalogPorts
from spotwright.workflows.ports.ec2 import DryRunPort

_CREATE_TEMPLATE: Final = "CreateLaunchTemplate"
_FLEET: Final = "CreateFleet"
_RUN: Final = "RunInstances"


class DryRunResult(msgspec.Struct, frozen=True):
    """``refusal`` None: EC2 would launch. ``annotation``: the annotation to write behind the condition, "" = none."""

    refusal: Refusal | Unanswered | None = None
    annotation: str = ""


def dry_run_launch(ports: CatalogPorts, before: EC2NodeClass, resolved: EC2NodeClass, *, now: datetime) -> DryRunResult:
    """What EC2 says of a class that is right in everything else. ``before``: the class as it was read."""
    if ports.dry_runs is None:
        return DryRunResult()
    digest = dry_run.inputs_digest(resolved, ports.facts)
    if dry_run_result := _cached_result(before, digest, now):
        return dry_run_result
    said = _DryRun(ports, ports.dry_runs, resolved, now).refusal()
    lasting = said is None or (isinstance(said, Refusal) and said.reason in dry_run.LASTING_REASONS)
    return DryRunResult(said, f"{digest}@{(now + dry_run.RESULT_TTL).isoformat()}" if lasting else "")


def _cached_result(before: EC2NodeClass, digest: str, now: datetime) -> DryRunResult | None:
    about, _, until = before.metadata.annotations.get(labels.LAUNCH_TRIED, "").partition("@")
    if about != digest or not _is_ahead(until, now):
        return None
    match find_condition(before.conditions, readiness.VALIDATION_SUCCEEDED):
        case Condition(status="True"):
            return DryRunResult()
        case Condition(status="False", reason=reason, message=message) if reason in dry_run.LASTING_REASONS:
            return DryRunResult(Refusal(reason, message))
    return None


def _is_ahead(text: str, now: datetime) -> bool:
    """False for what is no time: anybody may write an annotation."""
    try:
        return now < datetime.fromisoformat(text) <= now + dry_run.RESULT_TTL
    except (TypeError, ValueError):
        return False


class _DryRun(msgspec.Struct, frozen=True):
    """Asking for one class, at EC2's pace."""

    ports: CatalogPorts
    dry_runs: DryRunPort
    node_class: EC2NodeClass
    now: datetime

    def refusal(self) -> Refusal | Unanswered | None:
        """What EC2 refuses, or could not be asked; None: it would launch."""
        family = families.ami_family(self.node_class)
        if isinstance(family, Refusal):
            return family
        stored = instance_types.read_catalog(self.ports.blobs, self.ports.state.catalog_key())
        types = instance_types.types_of(stored, self.node_class.name)
        chosen = dry_run.dry_run_target(self.node_class, self.ports.cluster.nodepools(), types)
        plan = dry_run.plan_dry_run(self.node_class, chosen, self.ports.facts, family)
        if isinstance(plan, Refusal):
            return plan
        made = self._template(plan)
        if not isinstance(made, tuple):
            return made
        return self._call(_FLEET, dry_run.create_fleet_dry_run(plan, made)) or self._run_instances(plan, made)

    def _template(self, plan: FleetPlan) -> tuple[str, str] | Refusal | Unanswered:
        """A template is really made, since nothing can be tried without one; it goes like any other that grew old."""
        template_request = plan.templates[0]
        try:
            if found := self.dry_runs.launch_template(template_request.name, template_request.data):
                return found
            if waits := self._throttled(_CREATE_TEMPLATE):
                return waits
            return self.dry_runs.ensure_launch_template(
                template_request.name, template_request.data, template_request.tags
            )
        except ApiError as error:
            return self._interpret(_CREATE_TEMPLATE, error)

    def _run_instances(self, plan: FleetPlan, made: tuple[str, str]) -> Refusal | Unanswered | None:
        """One subnet that works is enough; else the first one's answer counts."""
        first: Refusal | Unanswered | None = None
        for request in dry_run.run_instances_dry_runs(plan, made, [subnet.id for subnet in self.node_class.subnets]):
            said = self._call(_RUN, request)
            if said is None:
                return None
            first = first or said
        return first

    def _call(self, operation: str, request: dict[str, object]) -> Refusal | Unanswered | None:
        if waits := self._throttled(operation):
            return waits
        try:
            self.dry_runs.dry_run(operation, request)
        except ApiError as error:
            return self._interpret(operation, error)
        return None

    def _throttled(self, operation: str) -> Unanswered | None:
        """EC2 counts calls that only ask like those that act: launches go first."""
        if rate_limits.acquire(self.ports.state, operation, caller=self.node_class.name, now=self.now):
            return Unanswered(f"ec2:{operation} is at its request limit; the dry run is tried again soon")
        return None

    def _interpret(self, operation: str, error: ApiError) -> Refusal | Unanswered:
        if isinstance(error, Throttled):
            rate_limits.slow_down(self.ports.state, operation, now=self.now)
        return dry_run.explain_error(operation, error, self.node_class)
