"""Committing: snapshot and decision are stored, then one conditional write makes the decision true."""

from concurrent.futures import ThreadPoolExecutor

import msgspec

from spotwright.decisions import ceilings
from spotwright.decisions.decision import (
    Decision,
    Disruption,
    derived_id,
    encode_decision,
    group_into_launches,
)
from spotwright.decisions.replacements import with_replacements
from spotwright.errors import Conflict
from spotwright.model.snapshot import LaunchedInMinute, Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.planning.code_digest import code_digest
from spotwright.workflows.ports.state import BlobPort, StatePort


def commit_plan(
    *, state: StatePort, blobs: BlobPort, snapshot: Snapshot, cluster_version: int, plan: Plan, kind: str, message: str,
    disruptions: tuple[Disruption, ...] = (), launched: tuple[LaunchedInMinute, ...] = (), pods_alike: bool = False,
) -> Decision | None:  # fmt: skip
    """Store snapshot and decision, then commit it by one conditional write; None when another decision was first.

    ``launched``: the cluster's, read with ``cluster_version``; the launches of the decision are added to it.
    ``pods_alike``: the cluster's from now on, if the decision launches anything.
    """
    body = msgspec.json.encode(snapshot, order="deterministic")
    snapshot_key = blobs.key("snapshots", body)
    decision_id = derived_id(snapshot.cluster, str(cluster_version), kind, snapshot_key)
    pods = snapshot.pods_by_key()
    planned = {key: pods[key] for node in plan.new_nodes for key in node.pods if key in pods}
    pending = {key: pod.metadata.uid for key, pod in planned.items() if not pod.node_name}
    running = {key: pod.metadata.uid for key, pod in planned.items() if pod.node_name}
    launches = group_into_launches(decision_id, plan, pending, running)
    decision = Decision(
        id=decision_id,
        kind=kind,
        cluster=snapshot.cluster,
        cluster_version=cluster_version,
        now=snapshot.now,
        snapshot_key=snapshot_key,
        catalog_key=snapshot.catalog_key,
        code_digest=code_digest(),
        plan=plan,
        launches=launches,
        stored_disruptions=with_replacements(disruptions, snapshot, plan, launches),
        message=message,
    )
    with ThreadPoolExecutor(1) as beside:
        storing = beside.submit(blobs.put, "snapshots", body)
        key = blobs.put("decisions", encode_decision(decision))
        storing.result()
    try:
        after = ceilings.count_launches(launched, launches, snapshot.now) if launches else None
        alike = pods_alike if launches else None
        state.commit(expected_version=cluster_version, key=key, launched=after, pods_alike=alike)
    except Conflict:
        return None
    return decision
