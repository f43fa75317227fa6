"""A NodeClaim that waits for its instance, and one whose time to be launched or registered is over."""

from datetime import datetime

import msgspec

from spotwright.errors import InvalidRequest
from spotwright.lifecycle import liveness
from spotwright.lifecycle.steps import Deletion
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import delete_claim_and_say_why, log
from spotwright.workflows.lifecycle.launch.adoption import adopt_claim, launch_id
from spotwright.workflows.lifecycle.launch.assignment import write_assignments
from spotwright.workflows.lifecycle.launch.fleet import with_instances_of_request
from spotwright.workflows.lifecycle.launch.phases import advance
from spotwright.workflows.lifecycle.status import registration_health
from spotwright.workflows.ports.bundles import LifecyclePorts


def step_launch(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> float | None:
    """A claim without a launch is adopted by one; its launch goes on, unless its time is over. Infinite: a further step
    is awaited; None = there is none.
    """
    timeout = liveness.timeout(claim, now)
    if timeout is not None and not _is_launched_late(ports, claim, now):
        give_up(ports, claim, timeout, now)
        return None
    if timeout is None and (launch := adopt_claim(ports, claim, now=now)):
        advance(ports, launch, now=now)
    return float("inf")


def _was_requested(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether EC2 was asked for the claim's instance, or may have been, or the request could not be made. A request
    that EC2 refuses because too many instances are started waits for its turn again.
    """
    launch = ports.state.launch(launch_id(claim))
    return launch is None or bool(launch.requested_at or launch.failure) or launch.attempt > 0


def _is_launched_late(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> bool:
    """Whether the claim receives now the instance that its launch has for it: while the API server did not answer, it
    could not be written, and while DynamoDB did not, it could not be noted whose it is. Raises ApiError while it still
    cannot be, or while another worker writes it; the launch's own next try is not waited for. What the API server
    refuses to take for good is given up.
    """
    launch = ports.state.launch(launch_id(claim))
    if launch is not None and claim.name not in launch.instances:
        launch = with_instances_of_request(ports, launch)
    if launch is None or claim.name not in launch.instances:
        return False
    own = msgspec.structs.replace(launch, instances={claim.name: launch.instances[claim.name]})
    try:
        write_assignments(ports, own, now)
    except InvalidRequest as refusal:
        log_line(log, log_lines.STEP_FAILED, kind="launch", object=launch.id, code=refusal.code, error=str(refusal))
    current = ports.cluster.nodeclaim(claim.name)
    return current is not None and current.is_condition_true("Launched")


def give_up(ports: LifecyclePorts, claim: NodeClaim, timeout: Deletion, now: datetime) -> None:
    """Delete a claim that was not launched, or not registered, in time: a failure of its NodePool, unless it waited for
    EC2 to be asked for its instance, as where more nodes are wanted than may be started.
    """
    if claim.is_condition_true("Launched") or _was_requested(ports, claim):
        registration_health.record_failure(ports, claim, now=now)
    log_line(log, log_lines.TERMINATING_DUE_TO_TIMEOUT, nodeclaim=claim.name, details=timeout.message)
    delete_claim_and_say_why(ports, claim, timeout, now=now)
