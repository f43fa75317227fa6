"""Instances are named after their node and claim, at the pace that EC2 allows; nothing else waits for it."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from spotwright.errors import ApiError, OutOfTime, Throttled
from spotwright.lifecycle.retry import retry_seconds
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import rate_limits
from spotwright.workflows.lifecycle.actions import log
from spotwright.workflows.lifecycle.zonal_shifts import RETRY_SECONDS, shifted_zones
from spotwright.workflows.ports.bundles import LifecyclePorts

# What a claim says once its instance has its tags.
TAGGED: Final[Mapping[str, str]] = {labels.INSTANCE_TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


def tag_instance(
    ports: LifecyclePorts, claim: NodeClaim, node: str, now: datetime
) -> tuple[Mapping[str, str], float | None]:
    """Once for each claim, only tags that the instance lacks. The annotations that say so, which are still to be
    written on the claim, and seconds until the next attempt; None = done, infinite = at the next step.

    A failure is logged, and the rest of the step goes on. Raises OutOfTime.
    """
    try:
        return _tag(ports, claim, node, now)
    except OutOfTime:
        raise
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="nodeclaim", object=claim.name, code=failure.code, error=str(failure))
        return {}, math.inf


def _tag(ports: LifecyclePorts, claim: NodeClaim, node: str, now: datetime) -> tuple[Mapping[str, str], float | None]:
    if TAGGED.items() <= claim.metadata.annotations.items() or not node:
        return {}, None
    if claim.metadata.labels.get(labels.ZONE) in shifted_zones(ports):
        return {}, RETRY_SECONDS
    id = instance_id(claim.provider_id)
    # The provider id of a claim that a user created may be anything.
    instance = ports.ec2.instance(id) if id else None
    if instance is None:
        return {}, None
    tags = {"Name": node, labels.NODECLAIM: claim.name, labels.CLUSTER_NAME_TAG: ports.cluster.name}
    missing = {key: value for key, value in tags.items() if key not in instance.tags}
    if missing:
        wait = rate_limits.acquire(ports.state, rate_limits.CREATE_TAGS, caller=instance.id, now=now)
        if wait:
            return {}, wait
        try:
            ports.ec2.tag(instance.id, missing)
        except Throttled as error:
            log_line(log, log_lines.CALL_THROTTLED, call="CreateTags", error=str(error))
            rate_limits.slow_down(ports.state, rate_limits.CREATE_TAGS, now=now)
            return {}, retry_seconds(1)
    return TAGGED, None
