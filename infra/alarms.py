"""Who is told, and of what: dead letters and waiting messages, failing functions, work that is not done."""

from collections.abc import Iterable

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import Config

#: Metric of ours → minutes in a row → what it means. A failed message is reported alone, so Lambda counts no error.
ALARMED_METRICS = {
    "WorkFailed": (
        5,
        "Work on a cluster fails and is repeated: an API server, EC2 or the table does not answer. Nothing is deleted.",
    ),
    "DisruptionBreakerOpen": (
        1,
        "Disruption went faster than it should and has stopped itself; NodePools have an event that says until when.",
    ),
    "StepsInterrupted": (
        10,
        "Steps of launches or claims fail and are repeated: EC2 throttles, or an API server does not answer.",
    ),
    "OrphansRefused": (1, "Too many instances look orphaned at once; none is touched until somebody has looked."),
}


class Alarms(Construct):
    """The cell's own alarms; together with those of queues and functions they go to one topic, if there is one."""

    def __init__(self, scope: Construct, config: Config, other_alarms: Iterable[cloudwatch.Alarm]) -> None:
        super().__init__(scope, "Alarms")
        own = [self._alarm(metric, minutes, why) for metric, (minutes, why) in ALARMED_METRICS.items()]
        if config.alarm_topic_arn:
            topic = sns.Topic.from_topic_arn(self, "Topic", config.alarm_topic_arn)
            for alarm in (*own, *other_alarms):
                alarm.add_alarm_action(actions.SnsAction(topic))

    def _alarm(self, metric: str, minutes: int, why: str) -> cloudwatch.Alarm:
        """Over all clusters and functions, those included that join later, which takes a query."""
        query = cloudwatch.MathExpression(
            expression=f"SELECT SUM({metric}) FROM Spotwright", label=metric, period=Duration.minutes(1)
        )
        return cloudwatch.Alarm(
            self,
            metric,
            alarm_description=why,
            metric=query,
            threshold=1,
            evaluation_periods=minutes,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
