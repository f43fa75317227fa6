"""Reads the environment, makes clients, and wires the ports of a cluster.

Adapters live as long as the process, and none goes stale: credentials and tokens are renewed, catalogs are
content-addressed, facts about the cluster are read again after ten minutes, and heartbeats after seconds.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from threading import Lock, RLock
from typing import Final, Self, overload

from spotwright import settings
from spotwright.adapters.aws import clients
from spotwright.adapters.aws.dynamodb.cluster_facts import ClusterFactsRow
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.adapters.aws.eks.cluster_facts import describe_cluster
from spotwright.adapters.aws.eks.token import RENEW_AFTER_SECONDS, kubernetes_token
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.aws.s3.catalogs import Catalogs
from spotwright.adapters.aws.shipped_cluster_state import ShippedClusterState
from spotwright.adapters.aws.sqs import SqsDoorbells
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.adapters.other_provisioners import OtherProvisioners
from spotwright.errors import ApiError
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.snapshot import Settings
from spotwright.settings import PROVISIONER, Environment
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.state import RECENT_SECONDS

log: Final = logging.getLogger("spotwright.composition")

FACTS_SECONDS: Final = 600
# The functions that change EC2 resources, claims or nodes; other functions only read the cluster.
ACTING_FUNCTIONS: Final = frozenset({"lifecycle", "catalog"})
# The function that keeps what EKS says of a cluster; it runs every few minutes.
KEEPS_FACTS: Final = "catalog"


class _made_once[T](cached_property[T]):
    """See cached_property; of several threads of a cluster the first makes the value, and the others wait for it."""

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if not isinstance(instance, ClusterClients):
            return super().__get__(instance, owner)
        with instance.making:
            return super().__get__(instance, owner)


class ClusterClients:
    """All adapters of a cluster; an adapter is made when it is first used.

    A client takes tens of milliseconds of a cold start, and few functions need all of them.
    """

    def __init__(
        self, cluster: str, deployed: Environment, role_arn: str, known_facts: ClusterFacts | None = None
    ) -> None:
        """``known_facts``: what EKS said of the cluster before."""
        self._name, self._deployed, self._cluster_environment = cluster, deployed, deployed.clusters[cluster]
        self._known_facts = known_facts
        # A fresh process asks for its adapters in several threads.
        self.making = RLock()
        self.region, self.node_roles, self.role_arn = deployed.region, self._cluster_environment.node_roles, role_arn

    @_made_once
    def settings(self) -> Settings:
        return settings.decision_settings(self._cluster_environment.settings)

    @_made_once
    def facts(self) -> ClusterFacts:
        """What EKS says of the cluster; while it does not answer, what it said before, which seldom changes.

        The catalog function keeps what it said for processes that begin meanwhile.
        """
        try:
            facts = describe_cluster(clients.eks(self.role_arn), self._name)
        except ApiError as error:
            known = self._known_facts or self._kept_facts.read()
            if known is None:
                raise
            log_line(log, log_lines.CLUSTER_NOT_DESCRIBED, cluster=self._name, code=error.code, error=str(error))
            return known
        if _function_name() == KEEPS_FACTS:
            self._kept_facts.write(facts)
        return facts

    @property
    def _kept_facts(self) -> ClusterFactsRow:
        return ClusterFactsRow(Table(clients.client("dynamodb"), self._deployed.table), self._name)

    def facts_so_far(self) -> ClusterFacts | None:
        """The facts, if they were read already; those from before, if there are any."""
        return self.__dict__.get("facts", self._known_facts)

    @_made_once
    def cluster(self) -> KubernetesCluster:
        return KubernetesCluster(self._name, _transport(self.facts, self.role_arn))

    @property
    def events(self) -> KubernetesCluster:
        return self.cluster

    @_made_once
    def other_provisioners(self) -> OtherProvisioners:
        is_looked_for = PROVISIONER not in self._cluster_environment.skip_checks
        return OtherProvisioners(self.cluster, self.facts, is_looked_for=is_looked_for)

    @_made_once
    def ec2(self) -> Ec2:
        role = self.role_arn
        return Ec2(clients.ec2(role), cluster=self._name, without_retries=clients.ec2_without_retries(role))

    @_made_once
    def state(self) -> DynamoState:
        deployed, client = self._deployed, clients.client("dynamodb")
        return DynamoState(
            client,
            table=deployed.table,
            cluster=self._name,
            memory_table=deployed.memory_table,
            recent_seconds=RECENT_SECONDS,
        )

    @_made_once
    def blobs(self) -> S3Blobs:
        return S3Blobs(clients.client("s3"), bucket=self._deployed.bucket, cluster=self._name)

    @_made_once
    def cluster_state(self) -> ShippedClusterState:
        client = clients.client("dynamodb")
        return ShippedClusterState(client, self.blobs, table=self._deployed.table, cluster=self._name)

    @_made_once
    def doorbells(self) -> SqsDoorbells:
        return SqsDoorbells(clients.client("sqs"), urls=self._deployed.queues)

    @_made_once
    def catalogs(self) -> Catalogs:
        return _catalogs(self._deployed.bucket)


@cache
def _environment() -> Environment:
    return settings.environment(os.environ)


def environment(variables: Mapping[str, str]) -> Environment:
    """The deployment that ``variables`` describe; read once for the process's own."""
    return _environment() if variables is os.environ else settings.environment(variables)


# By cluster: when its ports are made anew (of the monotonic clock), and the ports.
_kept: Final[dict[str, tuple[float, ClusterClients]]] = {}


def ports(cluster: str) -> ClusterClients:
    """The ports of one cluster of the cell, as the running function may use them. Ports that are outdated are freed."""
    now = time.monotonic()
    outdated_at, kept = _kept.get(cluster, (now, None))
    if kept is None or now >= outdated_at:
        kept = _make(cluster, kept.facts_so_far() if kept else None)
        _kept[cluster] = now + FACTS_SECONDS, kept
    return kept


def ring_again(queue: str, cluster: str, bells: Sequence[Doorbell]) -> None:
    """Put doorbells back into the function's own ``queue``; notices into theirs."""
    notices = [bell for bell in bells if bell.kind == "notice"]
    others = [bell for bell in bells if bell.kind != "notice"]
    for name, waiting in (("notices", notices), (queue, others)):
        if waiting:
            ports(cluster).doorbells.ring(name, waiting)


@cache
def _catalogs(bucket: str) -> Catalogs:
    """Of all clusters: a key names its cluster. They outlive the ports of a cluster, since decoding takes long."""
    return Catalogs(S3Blobs(clients.client("s3"), bucket=bucket, cluster=""))


def _function_name() -> str:
    return os.environ.get("POWERTOOLS_SERVICE_NAME", "")


def _make(cluster: str, known_facts: ClusterFacts | None) -> ClusterClients:
    deployed = _environment()
    own = deployed.clusters[cluster]
    acting = _function_name() in ACTING_FUNCTIONS
    return ClusterClients(cluster, deployed, own.act_role_arn if acting else own.read_role_arn, known_facts)


def _transport(facts: ClusterFacts, role: str) -> Transport:
    return Transport(
        endpoint=facts.endpoint,
        certificate_authority=facts.certificate_authority,
        token=_renew_token(lambda: kubernetes_token(clients.sts(role), facts.name)),
    )


def _renew_token(make: Callable[[], str]) -> Callable[[], str]:
    """A token source that renews the token before it expires."""
    tokens: list[tuple[float, str]] = []
    renewing = Lock()

    def token() -> str:
        with renewing:
            if not tokens or time.monotonic() - tokens[-1][0] > RENEW_AFTER_SECONDS:
                tokens[:] = [(time.monotonic(), make())]
            return tokens[-1][1]

    return token
