"""What ``interrupt`` is wired to: rows and doorbells of every cluster of the cell, and the tags of instances.

It reaches no cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spotwright.adapters.aws import clients
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.adapters.aws.sqs import SqsDoorbells
from spotwright.settings import Environment


@dataclass(frozen=True)
class InterruptClients:
    """Where a notice is written down and who is rung for it."""

    state: DynamoState
    doorbells: SqsDoorbells


def ports(environment: Environment) -> Mapping[str, InterruptClients]:
    """By cluster."""
    table, queues = clients.client("dynamodb"), clients.client("sqs")
    bells = SqsDoorbells(queues, urls=environment.queues)
    return {
        name: InterruptClients(DynamoState(table, table=environment.table, cluster=name), bells)
        for name in environment.clusters
    }


def instances() -> Ec2:
    """The instances of the region, whosever they are; an answer is waited for two seconds at most."""
    return Ec2(clients.ec2_in_a_hurry(), cluster="")
