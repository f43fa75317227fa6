"""What wakes the functions besides each other: EC2's and Health's events, and the clock."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from infra.config import Config
from infra.grants import Grant, grant
from infra.queues import WorkQueue

#: Construct id → pattern, of what EC2 will do in two minutes or recommends. Sources and detail types as EC2 and Health
#: send them: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-events.html
_WARNINGS = {
    "SpotInterruption": events.EventPattern(source=["aws.ec2"], detail_type=["EC2 Spot Instance Interruption Warning"]),
    "RebalanceRecommendation": events.EventPattern(
        source=["aws.ec2"], detail_type=["EC2 Instance Rebalance Recommendation"]
    ),
    "CapacityReservationInterruption": events.EventPattern(
        source=["aws.ec2"], detail_type=["EC2 Capacity Reservation Instance Interruption Warning"]
    ),
}
#: Of what happens to any instance of the account, and of what is days ahead.
_CHANGES = {
    "StateChange": events.EventPattern(
        source=["aws.ec2"],
        detail_type=["EC2 Instance State-change Notification"],
        detail={"state": ["stopping", "stopped", "shutting-down", "terminated"]},
    ),
    "ScheduledChange": events.EventPattern(
        source=["aws.health"],
        detail_type=["AWS Health Event"],
        detail={"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    ),
}

#: A spot warning comes two minutes ahead; later than this the sweep has found the instance gone.
_OLDEST_EVENT = Duration.minutes(5)


class Interruptions(Construct):
    """Five rules that put events, as they are, into the two queues of `interrupt`; nobody else may write there."""

    def __init__(self, scope: Construct, *, warnings: WorkQueue, changes: WorkQueue) -> None:
        super().__init__(scope, "Interruptions")
        self.rules = [*self._rules(_WARNINGS, warnings.queue), *self._rules(_CHANGES, changes.queue)]

    def _rules(self, patterns: Mapping[str, events.EventPattern], queue: sqs.Queue) -> list[events.Rule]:
        target = targets.SqsQueue(queue, max_event_age=_OLDEST_EVENT)
        rules = [events.Rule(self, name, event_pattern=pattern, targets=[target]) for name, pattern in patterns.items()]
        queue.add_to_resource_policy(_only_from(rules, queue))
        return rules


def _only_from(rules: list[events.Rule], queue: sqs.IQueue) -> iam.PolicyStatement:
    """`interrupt` believes what it reads, so even the account's own roles may not write to its queues."""
    return iam.PolicyStatement(
        sid="OnlyOurRulesSend",
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["sqs:SendMessage"],
        resources=[queue.queue_arn],
        conditions={"ArnNotEquals": {"aws:SourceArn": [rule.rule_arn for rule in rules]}},
    )


@dataclass(frozen=True, slots=True)
class _Tick:
    queue: str
    kind: str
    rate: str


_REGION = "CatalogRegion"
#: Sweep's gears and the evaluation of disruption; types and prices as often as Karpenter (12 h), the state of
#: classes as often as its security groups (5 min).
_TICKS = {
    "SweepPoll": _Tick("sweep", "poll", "rate(1 minute)"),
    "SweepFull": _Tick("sweep", "full", "rate(10 minutes)"),
    "DisruptEvaluate": _Tick("disrupt", "evaluate", "rate(1 minute)"),
    _REGION: _Tick("catalog", "region", "rate(12 hours)"),
    "CatalogNodeClasses": _Tick("catalog", "nodeclasses", "rate(5 minutes)"),
}
#: Only where a cluster of the cell follows zonal shifts.
_SHIFTS = {"CatalogShifts": _Tick("catalog", "shifts", "rate(1 minute)")}


class Schedules(Construct):
    """The clock: each schedule rings one doorbell for every cluster of the cell."""

    def __init__(
        self,
        scope: Construct,
        config: Config,
        queues: Mapping[str, WorkQueue],
        *,
        key: kms.IKey | None,
        use_key: tuple[Grant, ...],
    ) -> None:
        super().__init__(scope, "Schedules")
        self._key = key
        self.group_name = f"Spotwright-{config.cell}"
        self._group = scheduler.CfnScheduleGroup(self, "Group", name=self.group_name)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=self._own_schedules()),
            path=config.role_path,
            description=f"Spotwright {config.cell}: schedules ring doorbells",
        )
        follows = any(cluster.settings.get("ENABLE_ZONAL_SHIFT") == "true" for cluster in config.clusters)
        ticks = _TICKS | (_SHIFTS if follows else {})
        rung = sorted({tick.queue for tick in ticks.values()})
        grant(self.role, *(queues[name].send for name in rung), *use_key)
        self._schedules = {id: self._schedule(id, tick, queues[tick.queue]) for id, tick in ticks.items()}

    def begin_after(self, open: Sequence[IDependable], *, early: Sequence[IDependable]) -> None:
        """The clock starts when clusters are open to the functions; the region is read while they are opened."""
        for id, schedule in self._schedules.items():
            schedule.node.add_dependency(*(early if id == _REGION else open))

    def _own_schedules(self) -> dict[str, object]:
        """The schedules of this cell's group and no others may use the role.

        https://docs.aws.amazon.com/scheduler/latest/UserGuide/cross-service-confused-deputy-prevention.html
        """
        own = {"aws:SourceAccount": Stack.of(self).account, "aws:SourceArn": self._group.attr_arn}
        return {"StringEquals": own}

    def _schedule(self, id: str, tick: _Tick, queue: WorkQueue) -> scheduler.CfnSchedule:
        schedule = scheduler.CfnSchedule(
            self,
            id,
            description=f"Rings {tick.queue}: {tick.kind}",
            group_name=self._group.ref,
            schedule_expression=tick.rate,
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            kms_key_arn=self._key.key_arn if self._key else None,
            target=scheduler.CfnSchedule.TargetProperty(
                arn=queue.queue.queue_arn,
                role_arn=self.role.role_arn,
                input=_doorbell(tick.kind),
                # The next tick says the same, so an old one is not worth a retry.
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=2
                ),
            ),
        )
        schedule.node.add_dependency(self.role)
        return schedule


def _doorbell(kind: str) -> str:
    return json.dumps({"schema": 1, "cluster": "*", "kind": kind, "key": "", "epoch": 0})
