"""A running cluster as ``spotwright plan`` sees it: what the functions would gather, and the catalog they would use."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.connection import kubeconfig_configuration
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.cli import InputError
from spotwright.decisions.decision import decode_decision
from spotwright.errors import ApiError, NotFound
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.workflows.planning.snapshot import gather_live, read_cluster
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.rows import ClusterRow
from spotwright.workflows.ports.state import BlobPort, StatePort


@dataclass(frozen=True)
class LiveCluster:
    """The present snapshot, and the cluster's catalog with the region facts it was made from; None = not known."""

    snapshot: Snapshot
    catalog: Catalog | None = None
    read_region: Callable[[], RegionFacts | None] = lambda: None


def observe_cluster(options: argparse.Namespace, feature_gates: str) -> LiveCluster:
    """The cluster, with its catalog only if ``--cluster`` names its deployment. Raises InputError.

    Without ``--cluster`` only the API server is read: only the deployment knows launches in flight and unavailable
    offerings.
    """
    try:
        configuration = kubeconfig_configuration(options.kubeconfig, options.context)
        cluster = KubernetesCluster(options.cluster or configuration.host, Transport.from_configuration(configuration))
        now = datetime.now(UTC)
        if options.cluster:
            return _snapshot_of_deployment(options, cluster, now, _settings(feature_gates))
        return LiveCluster(read_cluster(cluster, _settings(feature_gates), now))
    except NotFound as missing:
        if "/apis/karpenter" not in str(missing):
            raise InputError(f"the cluster cannot be read: {missing}") from missing
        raise InputError(
            "the cluster knows no NodePools yet: install their definitions (`spotwright manifests` prints them),"
            " or name manifests to plan for"
        ) from missing
    except ApiError as failure:
        _check_kubeconfig(options.kubeconfig)
        raise InputError(f"the cluster cannot be read: {failure}") from failure


def _check_kubeconfig(path: str | None) -> None:
    """Raises InputError where there is none at all, as for whoever forgets to name manifests."""
    stated = path or os.environ.get("KUBECONFIG", "~/.kube/config")
    if not any(Path(file).expanduser().exists() for file in stated.split(os.pathsep)):
        raise InputError(
            f"there is no kubeconfig {stated}: name the manifests to plan, or a cluster's kubeconfig with --kubeconfig"
        )


@dataclass(frozen=True)
class _Ports:
    """See workflows.ports.bundles.SnapshotPorts."""

    cluster: ClusterPort
    state: StatePort
    blobs: BlobPort
    settings: Settings


def _settings(feature_gates: str) -> Settings:
    from spotwright.settings import decision_settings

    return decision_settings({"FEATURE_GATES": feature_gates})


def deployed_settings(row: ClusterRow, blobs: BlobPort, settings: Settings, *, keeps_gates: bool) -> Settings:
    """The settings that the cluster last decided with, which its newest decision is stored with.

    ``settings``: those of a cluster that has decided nothing yet; without ``keeps_gates`` their feature gates count.
    """
    try:
        decision = decode_decision(blobs.get(row.head)) if row.head else None
        body = blobs.get(decision.snapshot_key) if decision else None
    except NotFound:
        # Old decisions and snapshots expire.
        body = None
    if body is None:
        return settings
    decided_with = msgspec.json.decode(body, type=Snapshot).settings
    return decided_with if keeps_gates else msgspec.structs.replace(decided_with, feature_gates=settings.feature_gates)


def _snapshot_of_deployment(
    options: argparse.Namespace, cluster: KubernetesCluster, now: datetime, settings: Settings
) -> LiveCluster:
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.s3.blobs import S3Blobs
    from spotwright.adapters.aws.s3.catalogs import Catalogs
    from spotwright.workflows.catalog.instance_types import read_catalog, region_of

    try:
        outputs = cluster_outputs(clients.client("cloudformation"), options.stack, options.cluster)
    except NotFound as missing:
        raise InputError(f"--cluster {options.cluster}: {missing}") from missing
    client, account_table = clients.client("dynamodb"), outputs.get("MemoryTableName", "")
    state = DynamoState(client, table=outputs["TableName"], cluster=options.cluster, memory_table=account_table)
    blobs = S3Blobs(clients.client("s3"), bucket=outputs["BucketName"], cluster=options.cluster)
    row = state.cluster()
    settings = deployed_settings(row, blobs, settings, keeps_gates=not options.feature_gates)
    snapshot = gather_live(_Ports(cluster, state, blobs, settings), row, now=now)
    key = snapshot.catalog_key
    if not key:
        return LiveCluster(snapshot)
    return LiveCluster(snapshot, Catalogs(blobs).read(key), lambda: region_of(blobs, read_catalog(blobs, key)))
