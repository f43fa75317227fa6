"""The condition ``Drifted`` of every claim: set while the node is not what its pool and class ask for.

Claims are checked many at a time, with one description of their instances, since most drift comes from a change of
their pool or class. Only the condition is written.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from spotwright.disruption.nodeclaim_drift import DRIFTED, nodeclaim_drift
from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle.steps import ConditionChange
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.drift import Drift, DriftUnknown
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    for_each,
    log,
    log_claim,
    request_disruption_of_claims,
    ring_lifecycle,
    update_conditions,
)
from spotwright.workflows.lifecycle.other_provisioners import not_left_alone
from spotwright.workflows.ports.bundles import LifecyclePorts

# Conditions written in one invocation; the next one goes on after the last claim.
CLAIMS_AT_ONCE: Final = 100
# Claims that are compared in one invocation.
INSTANCES_AT_ONCE: Final = 1000


class _DriftInputs(msgspec.Struct, frozen=True):
    """What claims are compared with: pools and classes by name, types by class and name, instances by id."""

    pools: dict[str, NodePool]
    classes: dict[str, EC2NodeClass]
    types: dict[str, dict[str, InstanceType]]
    instances: dict[str, Instance]


def update_drift(ports: LifecyclePorts, after: str, *, now: datetime) -> None:
    """Write the condition of the claims after the name ``after`` ("" = all), where it has changed.

    So many claims at once whose instances one call describes; it rings for the rest.
    """
    listed = sorted(ports.cluster.nodeclaims(), key=lambda nodeclaim: nodeclaim.name)
    claims = [
        nodeclaim
        for nodeclaim in listed
        if nodeclaim.is_managed and nodeclaim.metadata.deletion_timestamp is None and nodeclaim.name > after
    ]
    claims = list(not_left_alone(ports, claims))
    further = len(claims) > INSTANCES_AT_ONCE
    claims = claims[:INSTANCES_AT_ONCE]
    if not claims:
        return
    drift_inputs = _gather_inputs(ports, claims)
    verdicts = [(claim, _drift_of(claim, drift_inputs, ports, now)) for claim in claims]
    changes = [(claim, verdict) for claim, verdict in verdicts if _has_changed(claim, verdict)]
    if len(changes) > CLAIMS_AT_ONCE:
        ring_lifecycle(ports, "drift", [changes[CLAIMS_AT_ONCE - 1][0].name])
    elif further:
        ring_lifecycle(ports, "drift", [claims[-1].name])
    verdict_of = {claim.name: verdict for claim, verdict in changes}

    def write(claim: NodeClaim) -> None:
        try:
            _write_condition(ports, claim, verdict_of[claim.name], now)
        except (Conflict, NotFound) as lost:
            log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="nodeclaim", object=claim.name, conflict=str(lost))

    for_each("nodeclaim", [claim for claim, _ in changes[:CLAIMS_AT_ONCE]], write)
    if any(isinstance(verdict, Drift) for _, verdict in changes):
        request_disruption_of_claims(ports, now=now)


def _gather_inputs(ports: LifecyclePorts, claims: Iterable[NodeClaim]) -> _DriftInputs:
    catalog = ports.catalogs.read(ports.state.catalog_key())
    classes = {nodeclass.name: nodeclass for nodeclass in ports.cluster.nodeclasses()}
    return _DriftInputs(
        pools={nodepool.name: nodepool for nodepool in ports.cluster.nodepools()},
        classes=classes,
        types={
            name: {instance_type.name: instance_type for instance_type in catalog.instance_types(name)}
            for name in classes
        },
        instances={
            instance.id: instance
            for instance in ports.ec2.instances_by_id({instance_id(claim.provider_id) for claim in claims} - {""})
            if instance.state != "terminated"
        },
    )


def _drift_of(
    claim: NodeClaim, drift_inputs: _DriftInputs, ports: LifecyclePorts, now: datetime
) -> Drift | DriftUnknown | None:
    pool = drift_inputs.pools.get(claim.nodepool)
    name = pool.node_class_ref.name if pool else ""
    instance = drift_inputs.instances.get(instance_id(claim.provider_id))
    gates = ports.settings.feature_gates
    return nodeclaim_drift(
        claim,
        pool,
        drift_inputs.classes.get(name),
        drift_inputs.types.get(name, {}),
        instance,
        feature_gates=gates,
        now=now,
    )


def _has_changed(claim: NodeClaim, verdict: Drift | DriftUnknown | None) -> bool:
    condition = find_condition(claim.conditions, DRIFTED)
    match verdict:
        case DriftUnknown():
            return False
        case None:
            return condition is not None
        case Drift(reason, message):
            return condition is None or (condition.status, condition.reason, condition.message) != (
                "True",
                reason,
                message,
            )


def _write_condition(
    ports: LifecyclePorts, claim: NodeClaim, verdict: Drift | DriftUnknown | None, now: datetime
) -> None:
    match verdict:
        case Drift(reason, message):
            if not claim.is_condition_true(DRIFTED):
                with log_claim(claim):
                    log_line(log, log_lines.MARKING_DRIFTED, nodeclaim=claim.name, reason=reason, details=message)
            update_conditions(ports, claim, [ConditionChange(DRIFTED, "True", reason, message)], now=now)
        case None:
            with log_claim(claim):
                log_line(log, log_lines.REMOVING_DRIFTED, nodeclaim=claim.name)
            ports.cluster.set_conditions("nodeclaims", claim.metadata, (), removed=(DRIFTED,))
