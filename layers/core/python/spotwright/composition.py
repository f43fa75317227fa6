"""The composition root: the one place that reads the environment, makes clients, and wires ports for a cluster.

What is made here lives as long as the process; nothing in it can go stale unnoticed: credentials and tokens renew
themselves, catalogs are content-addressed, facts about the cluster are read again after ten minutes.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from spotwright import settings
from spotwright.adapters import aws_sessions, eks
from spotwright.adapters.catalogs import Catalogs
from spotwright.adapters.dynamodb import DynamoState
from spotwright.adapters.ec2 import Ec2
from spotwright.adapters.eks_token import RENEW_AFTER_SECONDS, kubernetes_token
from spotwright.adapters.kubernetes import KubernetesCluster
from spotwright.adapters.kubernetes_transport import Transport
from spotwright.adapters.s3 import S3Blobs
from spotwright.adapters.sqs import SqsDoorbells
from spotwright.model.snapshot import Settings
from spotwright.settings import Environment
from spotwright.workflows.ports import ClusterFacts

FACTS_SECONDS: Final = 600
# The functions that change something in EC2 or on claims and nodes; the others only read the cluster.
ACTING: Final = frozenset({"lifecycle", "catalog"})


@dataclass(frozen=True)
class Ports:
    """Everything a workflow may reach of one cluster."""

    cluster: KubernetesCluster
    ec2: Ec2
    state: DynamoState
    blobs: S3Blobs
    bells: SqsDoorbells
    catalogs: Catalogs
    facts: ClusterFacts
    settings: Settings
    node_roles: tuple[str, ...]
    region: str
    role_arn: str


@cache
def _environment() -> Environment:
    return settings.environment(os.environ)


def environment(variables: Mapping[str, str]) -> Environment:
    """The deployment that ``variables`` describe; read once for the process's own."""
    return _environment() if variables is os.environ else settings.environment(variables)


def ports(cluster: str) -> Ports:
    """The ports of one cluster of the cell, as the running function may use them."""
    return _ports(cluster, int(time.monotonic() // FACTS_SECONDS))


@cache
def _ports(cluster: str, _period: int) -> Ports:
    own, deployed = _environment().clusters[cluster], _environment()
    acting = os.environ.get("POWERTOOLS_SERVICE_NAME", "") in ACTING
    role = own.act_role_arn if acting else own.read_role_arn
    facts = eks.cluster_facts(aws_sessions.eks(role), cluster)
    blobs = S3Blobs(aws_sessions.client("s3"), bucket=deployed.bucket, cluster=cluster)
    return Ports(
        cluster=KubernetesCluster(cluster, _transport(facts, role)),
        ec2=Ec2(aws_sessions.ec2(role), cluster=cluster, once=aws_sessions.ec2_once(role)),
        state=DynamoState(aws_sessions.client("dynamodb"), table=deployed.table, cluster=cluster),
        blobs=blobs,
        bells=SqsDoorbells(aws_sessions.client("sqs"), urls=deployed.queues),
        catalogs=Catalogs(blobs),
        facts=facts,
        settings=settings.decision_settings(own.settings),
        node_roles=own.node_roles,
        region=deployed.region,
        role_arn=role,
    )


def _transport(facts: ClusterFacts, role: str) -> Transport:
    return Transport(
        endpoint=facts.endpoint,
        certificate_authority=facts.certificate_authority,
        token=_renewed(lambda: kubernetes_token(aws_sessions.sts(role), facts.name)),
    )


def _renewed(make: Callable[[], str]) -> Callable[[], str]:
    """A token that is made anew before the cluster would refuse it."""
    made: list[tuple[float, str]] = []

    def token() -> str:
        if not made or time.monotonic() - made[-1][0] > RENEW_AFTER_SECONDS:
            made[:] = [(time.monotonic(), make())]
        return made[-1][1]

    return token
