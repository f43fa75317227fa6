"""Committing: snapshot and decision are stored, then one conditional write makes the decision true."""

from concurrent.futures import ThreadPoolExecutor

import msgspec

from spotwright.decisions.decision import (
    Decision,
    Disruption,
    derived_id,
    encode_decision,
    group_into_launches,
)
from spotwright.errors import Conflict
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.planning.code_digest import code_digest
from spotwright.workflows.ports.state import BlobPort, StatePort


def commit_plan(
    *, state: StatePort, blobs: BlobPort, snapshot: Snapshot, cluster_version: int, plan: Plan, kind: str, message: str,
    disruption: Disruption | None = None,
) -> Decision | None:  # fmt: skip
    """Store snapshot and decision, then commit it by one conditional write; None when another decision was first."""
    body = msgspec.json.encode(snapshot, order="deterministic")
    snapshot_key = blobs.key("snapshots", body)
    decision_id = derived_id(snapshot.cluster, str(cluster_version), kind, snapshot_key)
    pending = {pod.key: pod.metadata.uid for pod in snapshot.pods if not pod.node_name}
    launches = group_into_launches(decision_id, plan, pending)
    if disruption is not None:
        disruption = msgspec.structs.replace(
            disruption, replacements=tuple(name for launch in launches for name in launch.claims)
        )
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
        disruption=disruption,
        message=message,
    )
    with ThreadPoolExecutor(1) as beside:
        storing = beside.submit(blobs.put, "snapshots", body)
        key = blobs.put("decisions", encode_decision(decision))
        storing.result()
    try:
        state.commit(expected_version=cluster_version, key=key)
    except Conflict:
        return None
    return decision
