"""NodeClaims that another provisioner made are left alone while it runs in the cluster.

They are those that carry no launch of Spotwright: Karpenter's, which are taken over as soon as it has gone, and those
that a user made.
"""

from collections.abc import Iterable
from datetime import datetime

from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.workflows.ports.bundles import LifecyclePorts


def is_left_alone(ports: LifecyclePorts, claim: NodeClaim, *, now: datetime) -> bool:
    """Whether no step may be taken for the claim.

    What the sweep saw is a minute old at most. Before a launch or a termination begins it is asked anew.
    """
    if labels.LAUNCH in claim.metadata.annotations:
        return False
    if ports.state.cluster().other_provisioner:
        return True
    is_terminated = (
        claim.metadata.deletion_timestamp is not None and find_condition(claim.conditions, "Drained") is None
    )
    return (is_terminated or not claim.provider_id) and runs_now(ports, now=now)


def not_left_alone(ports: LifecyclePorts, claims: Iterable[NodeClaim]) -> tuple[NodeClaim, ...]:
    """The claims for which steps may be taken, as far as the sweep knows; nothing is read where all are launched."""
    given = tuple(claims)
    launched = tuple(claim for claim in given if labels.LAUNCH in claim.metadata.annotations)
    if len(launched) == len(given) or not ports.state.cluster().other_provisioner:
        return given
    return launched


def may_be_terminated(ports: LifecyclePorts, instance: Instance, *, now: datetime) -> bool:
    """Whether an instance that nothing uses may be terminated: another provisioner's claim may not name it yet."""
    return labels.LAUNCH_TAG in instance.tags or not runs_now(ports, now=now)


def runs_now(ports: LifecyclePorts, *, now: datetime) -> bool:
    """Whether another provisioner runs at this moment; one that the sweep has not seen yet is noted for everybody."""
    if ports.state.cluster().other_provisioner:
        return True
    name = ports.other_provisioners.running(now=now)
    if name:
        ports.state.set_other_provisioner(name)
    return bool(name)
