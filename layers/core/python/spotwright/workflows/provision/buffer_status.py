"""Status of CapacityBuffers: for how many pods they keep capacity free, and whether it is there."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

from spotwright.errors import ApiError
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer, CapacityBufferStatus
from spotwright.model.kubernetes.meta import Condition, find_condition, fit_message
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import capacity_buffers
from spotwright.scheduling.plan import BufferProvisioning, Plan
from spotwright.workflows.ports.cluster import ClusterPort

KIND: Final = "capacitybuffers"


def update_buffer_status(cluster: ClusterPort, snapshot: Snapshot, plan: Plan) -> None:
    """Write what changed of every buffer. Never raises: the next plan writes it again."""
    by_name = {(buffer.metadata.namespace, buffer.metadata.name): buffer for buffer in snapshot.capacity_buffers}
    for verdict in plan.buffers:
        buffer = by_name[verdict.namespace, verdict.name]
        try:
            _write(cluster, buffer, verdict)
        except ApiError:
            continue


def _write(cluster: ClusterPort, buffer: CapacityBuffer, verdict: BufferProvisioning) -> None:
    metadata = buffer.metadata
    template = buffer.pod_template_ref
    current_status = CapacityBufferStatus(
        verdict.pod_count, template, buffer.pod_template_generation, buffer.provisioning_strategy
    )
    if buffer.template_pod is not None and buffer.status != current_status:
        status: dict[str, Any] = {"replicas": verdict.pod_count, "provisioningStrategy": buffer.provisioning_strategy}
        status["podTemplateRef"] = {"name": template} if template else None
        status["podTemplateGeneration"] = buffer.pod_template_generation or None
        # Without resourceVersion, since the conditions are written next.
        cluster.patch_status(KIND, metadata.without_resource_version(), status)
    changed = [condition for condition in _conditions(buffer, verdict) if _differs(buffer, condition)]
    if changed:
        cluster.set_conditions(KIND, metadata, changed)


def _conditions(buffer: CapacityBuffer, verdict: BufferProvisioning) -> Iterator[Condition]:
    generation = buffer.metadata.generation
    ready = (
        ("False", buffer.not_ready_reason, fit_message(buffer.not_ready_message))
        if buffer.not_ready_reason
        else ("True", "Resolved", "")
    )
    yield Condition("ReadyForProvisioning", *ready, observed_generation=generation)
    fits = "True" if verdict.reason == capacity_buffers.FITS_EXISTING_CAPACITY else "False"
    message = fit_message(verdict.message)
    yield Condition("Provisioning", fits, verdict.reason, message, observed_generation=generation)


def _differs(buffer: CapacityBuffer, condition_now: Condition) -> bool:
    condition = find_condition(buffer.conditions, condition_now.type)
    fields = attrgetter("status", "reason", "message", "observed_generation")
    return condition is None or fields(condition) != fields(condition_now)
