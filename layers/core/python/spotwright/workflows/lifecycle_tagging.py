"""Instances are named after their node and claim, at the pace that EC2 allows; nothing else waits for it."""

from datetime import datetime

from spotwright.failures import Throttled
from spotwright.lifecycle.retry import retry_seconds
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows import pacing, shifts
from spotwright.workflows.lifecycle_acting import Acting, log


def tag(ports: Acting, claim: NodeClaim, node: str, now: datetime) -> float | None:
    """Once for each claim, only keys its instance does not carry yet. Seconds until EC2 may be asked; None: done."""
    done = {labels.INSTANCE_TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
    if done.items() <= claim.metadata.annotations.items() or not node:
        return None
    id = instance_id(claim.provider_id)
    # A claim made by hand may say anything.
    found = ports.ec2.instance(id) if id else None
    if found is None:
        return None
    wanted = {"Name": node, labels.NODECLAIM: claim.name, labels.CLUSTER_NAME_TAG: ports.cluster.name}
    missing = {key: value for key, value in wanted.items() if key not in found.tags}
    if missing and found.zone in shifts.zones(ports):
        return shifts.AGAIN_SECONDS
    if missing:
        wait = pacing.wait_seconds(ports.state, pacing.TAG, key=found.id, now=now)
        if wait:
            return wait
        try:
            ports.ec2.tag(found.id, missing)
        except Throttled:
            log.warning("CreateTags was throttled", extra={"NodeClaim": claim.name})
            pacing.slow_down(ports.state, pacing.TAG, now=now)
            return retry_seconds(1)
    ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": done})
    return None
