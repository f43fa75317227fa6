"""NodeClaims without a launch row: a launch adopts them, or lets them be deleted."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from spotwright.decisions.decision import derived_id
from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle import instance_assignment, nodeclaim_creation
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.workflows.lifecycle.actions import ring_lifecycle
from spotwright.workflows.lifecycle.launch.decisions import PHASE_TIMEOUT
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms


def launch_id(claim: NodeClaim) -> str:
    """The launch that the claim was made for; of any other claim, the launch that adopts it."""
    return claim.metadata.annotations.get(labels.LAUNCH, "") or derived_id("nodeclaim", claim.metadata.uid)


def adopt_claim(ports: LifecyclePorts, claim: NodeClaim, *, now: datetime) -> str:
    """The launch of a claim that a user created or whose row is lost; "" when it must wait.

    A lost launch is continued with all its claims that have no instance yet; instances with its tag are adopted before
    any is launched.
    """
    lost = claim.metadata.annotations.get(labels.LAUNCH, "")
    id = launch_id(claim)
    if ports.state.launch(id) is not None:
        return id
    if (
        lost
        and claim.metadata.creation_timestamp is not None
        and now - claim.metadata.creation_timestamp < PHASE_TIMEOUT
    ):
        return ""
    claims = _siblings(ports, claim, lost)
    types = ports.catalogs.read(ports.state.catalog_key()).instance_types(claim.node_class_ref.name)
    node = nodeclaim_creation.to_new_node(claim, (instance_type.name for instance_type in types))
    ports.state.create(
        LaunchRow(
            id=id,
            cluster=ports.cluster.name,
            decision=claim.metadata.annotations.get(labels.DECISION, ""),
            claims=tuple(nodeclaim.name for nodeclaim in claims),
            uids={nodeclaim.name: nodeclaim.metadata.uid for nodeclaim in claims},
            node=msgspec.json.encode(node, order="deterministic").decode(),
            phase="claimed",
            attempt=1 if lost else 0,
            created=epoch_ms(now),
            due=epoch_ms(now + PHASE_TIMEOUT),
        )
    )
    return id


def _siblings(ports: LifecyclePorts, claim: NodeClaim, launch: str) -> Iterable[NodeClaim]:
    """The claims of a launch that wait for an instance, by name; ``claim`` alone when it has no launch.

    Which they are was only in the lost row: all claims are listed, once for a launch.
    """
    if not launch:
        return [claim]
    return [
        nodeclaim
        for nodeclaim in sorted(ports.cluster.nodeclaims(), key=lambda nodeclaim: nodeclaim.name)
        if nodeclaim.metadata.annotations.get(labels.LAUNCH) == launch
        and instance_assignment.is_awaiting_instance(nodeclaim, nodeclaim.metadata.uid)
    ]


def release_claim(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether no launch can give a deleted claim an instance any more.

    The row is written in any case, so that an invocation that still counts on the claim gets a conflict and retries.
    """
    row = ports.state.launch(claim.metadata.annotations.get(labels.LAUNCH, "")) or ports.state.launch(
        derived_id("nodeclaim", claim.metadata.uid)
    )
    if row is None or row.phase in ("done", "failed"):
        return True
    if row.request or row.phase == "launched":
        ring_lifecycle(ports, "launch", [row.id])
        return False
    try:
        ports.state.save(msgspec.structs.replace(row, uids=dict(row.uids) | {claim.name: claim.metadata.uid}))
    except (Conflict, NotFound):
        return False
    return True
