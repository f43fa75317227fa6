"""Dry runs: whether EC2 would launch nodes of an EC2NodeClass. Repeated when the class changes, every half hour, and
every two minutes after a denial.

The result is kept on the class: its condition says what EC2 refused, an annotation which content was tried and until
when the result holds.
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
from spotwright.model.kubernetes.meta import Condition, find_condition, parse_time
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
    """The dry run of a class that is valid otherwise. ``before``: the class as it was read."""
    if ports.dry_runs is None:
        return DryRunResult()
    digest = dry_run.inputs_digest(resolved, ports.facts)
    if dry_run_result := _cached_result(before, digest, now):
        return dry_run_result
    refusal = _DryRun(ports, ports.dry_runs, resolved, now).refusal()
    ttl = dry_run.lasts(refusal)
    return DryRunResult(refusal, f"{digest}@{(now + ttl).isoformat()}" if ttl else "")


def _cached_result(before: EC2NodeClass, digest: str, now: datetime) -> DryRunResult | None:
    cached_digest, _, until = before.metadata.annotations.get(labels.LAUNCH_TRIED, "").partition("@")
    if cached_digest != digest or not _is_ahead(until, now):
        return None
    match find_condition(before.conditions, readiness.VALIDATION_SUCCEEDED):
        case Condition(status="True"):
            return DryRunResult()
        case Condition(status="False", reason=reason, message=message) if reason in dry_run.LASTING_REASONS:
            return DryRunResult(Refusal(reason, message))
    return None


def _is_ahead(text: str, now: datetime) -> bool:
    until = parse_time(text)
    return until is not None and now < until <= now + dry_run.RESULT_TTL


class _DryRun(msgspec.Struct, frozen=True):
    """The dry run of one class, within EC2's request limits."""

    ports: CatalogPorts
    dry_runs: DryRunPort
    node_class: EC2NodeClass
    now: datetime

    def refusal(self) -> Refusal | Unanswered | None:
        """Why EC2 refuses, or could not be asked; None = it would launch."""
        family = families.ami_family(self.node_class)
        if isinstance(family, Refusal):
            return family
        stored = instance_types.read_catalog(self.ports.blobs, self.ports.state.catalog_key())
        types = instance_types.types_of(stored, self.node_class.name)
        target = dry_run.dry_run_target(self.node_class, self.ports.cluster.nodepools(), types)
        plan = dry_run.plan_dry_run(self.node_class, target, self.ports.facts, family)
        if isinstance(plan, Refusal):
            return plan
        template = self._template(plan)
        if not isinstance(template, tuple):
            return template
        return self._call(_FLEET, dry_run.create_fleet_dry_run(plan, template)) or self._run_instances(plan, template)

    def _template(self, plan: FleetPlan) -> tuple[str, str] | Refusal | Unanswered:
        """Id and version of a real template: no dry run works without one. Unused templates are deleted later."""
        template_request = plan.templates[0]
        try:
            if existing := self.dry_runs.launch_template(template_request.name, template_request.data):
                return existing
            if throttled := self._throttled(_CREATE_TEMPLATE):
                return throttled
            return self.dry_runs.ensure_launch_template(
                template_request.name, template_request.data, template_request.tags
            )
        except ApiError as error:
            return self._interpret(_CREATE_TEMPLATE, error)

    def _run_instances(self, plan: FleetPlan, template: tuple[str, str]) -> Refusal | Unanswered | None:
        """One subnet that works is enough; else the refusal for the first subnet counts."""
        first_refusal: Refusal | Unanswered | None = None
        for request in dry_run.run_instances_dry_runs(
            plan, template, [subnet.id for subnet in self.node_class.subnets]
        ):
            refusal = self._call(_RUN, request)
            if refusal is None:
                return None
            first_refusal = first_refusal or refusal
        return first_refusal

    def _call(self, operation: str, request: dict[str, object]) -> Refusal | Unanswered | None:
        if throttled := self._throttled(operation):
            return throttled
        try:
            self.dry_runs.dry_run(operation, request)
        except ApiError as error:
            return self._interpret(operation, error)
        return None

    def _throttled(self, operation: str) -> Unanswered | None:
        """EC2 counts dry runs like other calls; launches go first."""
        if rate_limits.acquire(self.ports.state, operation, caller=self.node_class.name, now=self.now):
            return Unanswered(f"ec2:{operation} is at its request limit; the dry run is tried again soon")
        return None

    def _interpret(self, operation: str, error: ApiError) -> Refusal | Unanswered:
        if isinstance(error, Throttled):
            rate_limits.slow_down(self.ports.state, operation, now=self.now)
        return dry_run.explain_error(operation, error, self.node_class)
