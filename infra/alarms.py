"""CloudWatch alarms, and the topic that they notify."""

from collections.abc import Iterable

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import Config
from spotwright.telemetry.rows import Alarm
from spotwright.telemetry.tables import metric_rows


class Alarms(Construct):
    """The alarms of Spotwright's own metrics; with those of queues and functions they go to one topic, if there is one.

    A failed message is reported alone, so that Lambda's own metric counts no error.
    """

    def __init__(self, scope: Construct, config: Config, other_alarms: Iterable[cloudwatch.Alarm]) -> None:
        super().__init__(scope, "Alarms")
        own = [self._alarm(metric.name, metric.alarm) for metric in metric_rows().values() if metric.alarm]
        if config.alarm_topic_arn:
            topic = sns.Topic.from_topic_arn(self, "Topic", config.alarm_topic_arn)
            for alarm in (*own, *other_alarms):
                alarm.add_alarm_action(actions.SnsAction(topic))

    def _alarm(self, metric: str, alarm: Alarm) -> cloudwatch.Alarm:
        """Over all clusters and functions, those included that join later, which takes a query."""
        query = cloudwatch.MathExpression(
            expression=f"SELECT SUM({metric}) FROM Spotwright", label=metric, period=Duration.minutes(1)
        )
        return cloudwatch.Alarm(
            self,
            metric,
            alarm_description=alarm.meaning,
            metric=query,
            threshold=1,
            evaluation_periods=alarm.minutes,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
