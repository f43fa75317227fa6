"""Asking EC2 whether it would launch a class' nodes, once for what the class says, and again after half an hour.

The answer's home is the class: the condition holds what was said, an annotation which content it was about and until
when it holds.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws import families, nodeclass, trial
from spotwright.aws.launch import FleetPlan
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.failures import Failure, Throttled
from spotwright.model import labels
from spotwright.model.nodeclass import EC2NodeClass
from spotwright.model.objects import Condition, condition
from spotwright.workflows import catalog_types, pacing
from spotwright.workflows.catalog_ports import Cataloguing, TrialPort

_CREATE_TEMPLATE: Final = "CreateLaunchTemplate"
_FLEET: Final = "CreateFleet"
_RUN: Final = "RunInstances"


class Answer(msgspec.Struct, frozen=True):
    """``said`` None: EC2 would launch. ``remember``: the annotation to write behind the condition, "" = none."""

    said: Refusal | Unanswered | None = None
    remember: str = ""


def answer(ports: Cataloguing, before: EC2NodeClass, resolved: EC2NodeClass, *, now: datetime) -> Answer:
    """What EC2 says of a class that is right in everything else. ``before``: the class as it was read."""
    if ports.trials is None:
        return Answer()
    digest = trial.digest(resolved, ports.facts)
    if known := _remembered(before, digest, now):
        return known
    said = _tried(ports, ports.trials, resolved, now)
    lasting = said is None or (isinstance(said, Refusal) and said.reason in trial.REASONS)
    return Answer(said, f"{digest}@{(now + trial.HOLDS).isoformat()}" if lasting else "")


def _remembered(before: EC2NodeClass, digest: str, now: datetime) -> Answer | None:
    about, _, until = before.metadata.annotations.get(labels.LAUNCH_TRIED, "").partition("@")
    if about != digest or not _is_ahead(until, now):
        return None
    match condition(before.conditions, nodeclass.VALIDATION):
        case Condition(status="True"):
            return Answer()
        case Condition(status="False", reason=reason, message=message) if reason in trial.REASONS:
            return Answer(Refusal(reason, message))
    return None


def _is_ahead(text: str, now: datetime) -> bool:
    """False for what is no time: anybody may write an annotation."""
    try:
        return now < datetime.fromisoformat(text) <= now + trial.HOLDS
    except (TypeError, ValueError):
        return False


def _tried(
    ports: Cataloguing, trials: TrialPort, node_class: EC2NodeClass, now: datetime
) -> Refusal | Unanswered | None:
    family = families.of(node_class)
    if isinstance(family, Refusal):
        return family
    stored = catalog_types.stored(ports.blobs, ports.state.catalog_key())
    chosen = trial.subject(node_class, ports.cluster.nodepools(), catalog_types.types_of(stored, node_class.name))
    plan = trial.fleet(node_class, chosen, ports.facts, family)
    if isinstance(plan, Refusal):
        return plan
    made = _template(ports, trials, node_class, plan, now)
    if not isinstance(made, tuple):
        return made
    fleet = _asked(ports, trials, _FLEET, node_class, trial.fleet_request(plan, made), now)
    return fleet or _runs(ports, trials, node_class, plan, made, now)


def _template(
    ports: Cataloguing, trials: TrialPort, node_class: EC2NodeClass, plan: FleetPlan, now: datetime
) -> tuple[str, str] | Refusal | Unanswered:
    """A template is really made, since nothing can be tried without one; it goes like any other that grew old."""
    made = plan.templates[0]
    try:
        if found := trials.launch_template(made.name, made.data):
            return found
        if waits := _waits(ports, _CREATE_TEMPLATE, node_class, now):
            return waits
        return trials.ensure_launch_template(made.name, made.data, made.tags)
    except Failure as error:
        return _understood(ports, _CREATE_TEMPLATE, error, node_class, now)


def _runs(
    ports: Cataloguing,
    trials: TrialPort,
    node_class: EC2NodeClass,
    plan: FleetPlan,
    made: tuple[str, str],
    now: datetime,
) -> Refusal | Unanswered | None:
    """One subnet that works is enough; else the first one's answer counts."""
    first: Refusal | Unanswered | None = None
    for request in trial.run_requests(plan, made, [one.id for one in node_class.subnets]):
        said = _asked(ports, trials, _RUN, node_class, request, now)
        if said is None:
            return None
        first = first or said
    return first


def _asked(
    ports: Cataloguing,
    trials: TrialPort,
    operation: str,
    node_class: EC2NodeClass,
    request: dict[str, object],
    now: datetime,
) -> Refusal | Unanswered | None:
    if waits := _waits(ports, operation, node_class, now):
        return waits
    try:
        trials.dry_run(operation, request)
    except Failure as error:
        return _understood(ports, operation, error, node_class, now)
    return None


def _waits(ports: Cataloguing, operation: str, node_class: EC2NodeClass, now: datetime) -> Unanswered | None:
    """EC2 counts calls that only ask like those that act: launches go first."""
    if pacing.wait_seconds(ports.state, operation, key=node_class.name, now=now):
        return Unanswered(f"ec2:{operation} is called as often as EC2 allows: tried again soon")
    return None


def _understood(
    ports: Cataloguing, operation: str, error: Failure, node_class: EC2NodeClass, now: datetime
) -> Refusal | Unanswered:
    if isinstance(error, Throttled):
        pacing.slow_down(ports.state, operation, now=now)
    return trial.outcome(operation, error, node_class)
