"""CloudWatch alarms, each by cluster, queue, function or cell, and the topic that they notify."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra import alarm_rows as rows
from infra.config import Config
from infra.functions import Function
from infra.grants import acknowledge
from infra.queues import WorkQueue
from infra.triggers import Interruptions, Schedules
from spotwright.telemetry.rows import Alarm, Metric
from spotwright.telemetry.tables import metric_rows

_NAMESPACE = "Spotwright"

#: A full sweep wakes `lifecycle` every ten minutes, the others have schedules. `provision`, `interrupt` wait for work.
_WOKEN_BY_SCHEDULES = ("sweep", "disrupt", "catalog", "lifecycle")


@dataclass(frozen=True, slots=True)
class Watched:
    """What of the stack is watched besides Spotwright's own metrics."""

    queues: Mapping[str, WorkQueue]
    functions: Mapping[str, Function]
    interruptions: Interruptions
    schedules: Schedules


class Alarms(Construct):
    """`Spotwright-<cell>-<cluster, queue or function>-<alarm>`; all go to one topic, if there is one.

    Each cluster has its own, so that an alarm names the cluster. A failed message is reported alone, so that Lambda's
    own metric counts no error.
    """

    def __init__(self, scope: Construct, config: Config, watched: Watched, key: kms.IKey | None) -> None:
        super().__init__(scope, "Alarms")
        self._cell = config.cell
        alarms = [*self._of_clusters(config), *self._of_queues(watched), *self._of_functions(watched)]
        alarms += self._of_cell(config, watched)
        # Nothing is missed before the clock runs; and alarms go before it when the stack does.
        for alarm in alarms:
            alarm.node.add_dependency(watched.schedules)
        topic = self._topic(config, key)
        if topic is not None:
            for alarm in alarms:
                alarm.add_alarm_action(actions.SnsAction(topic))
                alarm.add_ok_action(actions.SnsAction(topic))

    def _of_clusters(self, config: Config) -> list[cloudwatch.Alarm]:
        return [
            self._alarm(metric.alarm, cluster.name, [_own(metric, function, cluster.name) for function in functions])
            for cluster in config.clusters
            for metric in metric_rows().values()
            if metric.alarm
            # What `interrupt` reads is of no cluster until it is recorded.
            and (functions := [function for function in metric.functions if function != "interrupt"])
        ]

    def _of_queues(self, watched: Watched) -> list[cloudwatch.Alarm]:
        alarms = []
        for name, queue in watched.queues.items():
            dead = queue.dead_letters.metric_approximate_number_of_messages_visible()
            age = queue.queue.metric_approximate_age_of_oldest_message()
            alarms += [
                self._alarm(rows.DEAD_LETTERS, name, [dead]),
                self._alarm(rows.MESSAGES_WAIT, name, [age], threshold=queue.visibility_seconds + 1),
            ]
        return alarms

    def _of_functions(self, watched: Watched) -> list[cloudwatch.Alarm]:
        functions = watched.functions
        return [
            *(
                self._alarm(rows.ERRORS, name, [function.function.metric_errors()])
                for name, function in functions.items()
            ),
            *(
                self._alarm(rows.THROTTLES, name, [function.function.metric_throttles()])
                for name, function in functions.items()
            ),
            *(
                self._alarm(rows.NOT_INVOKED, name, [functions[name].function.metric_invocations()])
                for name in _WOKEN_BY_SCHEDULES
            ),
        ]

    def _of_cell(self, config: Config, watched: Watched) -> list[cloudwatch.Alarm]:
        failed = [
            _metric("AWS/Events", "FailedInvocations", RuleName=rule.rule_name) for rule in watched.interruptions.rules
        ]
        dropped = _metric("AWS/Scheduler", "InvocationDroppedCount", ScheduleGroup=watched.schedules.group_name)
        unrecorded = _metric(_NAMESPACE, "WorkFailed", service="interrupt")
        return [
            self._alarm(rows.NOTICES_NOT_RECORDED, "interrupt", [unrecorded]),
            self._alarm(rows.FAILED_INVOCATIONS, "events", failed),
            self._alarm(rows.SCHEDULES_FAIL, "schedules", [dropped]),
        ]

    def _alarm(
        self, row: Alarm, subject: str, metrics: Sequence[cloudwatch.Metric], threshold: int | None = None
    ) -> cloudwatch.Alarm:
        """Over the sum of the metrics. ``threshold``: instead of the row's."""
        comparison, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        return cloudwatch.Alarm(
            self,
            f"{subject}{row.name}",
            alarm_name=f"Spotwright-{self._cell}-{subject}-{row.name}",
            alarm_description=row.description(subject),
            metric=_sum(row, metrics),
            threshold=threshold or row.threshold,
            evaluation_periods=row.minutes // row.period_minutes,
            comparison_operator=(
                comparison.LESS_THAN_THRESHOLD if row.is_missed else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
            ),
            treat_missing_data=missing.BREACHING if row.is_missed else missing.NOT_BREACHING,
        )

    def _topic(self, config: Config, key: kms.IKey | None) -> sns.ITopic | None:
        """The topic of the context, or a new one with its address; None = alarms are shown and tell nobody."""
        if config.alarm_topic_arn:
            return sns.Topic.from_topic_arn(self, "Topic", config.alarm_topic_arn)
        if not config.alarm_email:
            return None
        topic = sns.Topic(self, "Topic", master_key=key, enforce_ssl=True)
        if key is None:
            acknowledge(
                topic,
                "AwsSolutions-SNS2",
                "CloudWatch cannot publish to a topic under AWS's own key for SNS; alarms hold no secrets.",
            )
        topic.add_to_resource_policy(_from_alarms(topic))
        topic.add_subscription(subscriptions.EmailSubscription(config.alarm_email))
        return topic


def _from_alarms(topic: sns.Topic) -> iam.PolicyStatement:
    """The alarms of this account may publish.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Notify_Users_Alarm_Changes.html
    """
    return iam.PolicyStatement(
        sid="AlarmsPublish",
        principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
        actions=["sns:Publish"],
        resources=[topic.topic_arn],
        conditions={"StringEquals": {"aws:SourceAccount": Stack.of(topic).account}},
    )


def _own(metric: Metric, function: str, cluster: str) -> cloudwatch.Metric:
    """What a function writes of a cluster; Powertools adds the dimension `service`."""
    return _metric(_NAMESPACE, metric.name, cluster=cluster, service=function)


def _metric(namespace: str, name: str, **dimensions: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(namespace=namespace, metric_name=name, dimensions_map=dimensions)


def _sum(row: Alarm, metrics: Sequence[cloudwatch.Metric]) -> cloudwatch.IMetric:
    """Of what has a value, so that a function that has nothing to say hides no other."""
    period = Duration.minutes(row.period_minutes)
    periodic = [metric.with_(period=period, statistic=row.statistic) for metric in metrics]
    if len(periodic) == 1:
        return periodic[0]
    parts = {f"m{number}": metric for number, metric in enumerate(periodic)}
    return cloudwatch.MathExpression(expression="SUM(METRICS())", using_metrics=parts, period=period, label=row.name)
