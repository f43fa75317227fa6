"""Status of CapacityBuffers: how many pods they keep room for, and whether there is room."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from spotwright.failures import Failure
from spotwright.model.capacitybuffer import BufferStatus, CapacityBuffer
from spotwright.model.objects import Condition, condition
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import buffers
from spotwright.scheduling.plan import BufferVerdict, Plan
from spotwright.workflows.ports import ClusterPort

KIND: Final = "capacitybuffers"


def tell(cluster: ClusterPort, snapshot: Snapshot, plan: Plan) -> None:
    """Write what changed of every buffer. Never raises: the next round says it again."""
    by_key = {one.metadata.key: one for one in snapshot.buffers}
    for verdict in plan.buffers:
        buffer = by_key[f"{verdict.namespace}/{verdict.name}"]
        try:
            _write(cluster, buffer, verdict)
        except Failure:
            continue


def _write(cluster: ClusterPort, buffer: CapacityBuffer, verdict: BufferVerdict) -> None:
    about = buffer.metadata
    named = buffer.pod_template
    wanted = BufferStatus(verdict.pods, named, buffer.pod_template_generation, buffer.strategy)
    if buffer.template is not None and buffer.status != wanted:
        status: dict[str, Any] = {"replicas": verdict.pods, "provisioningStrategy": buffer.strategy}
        status["podTemplateRef"] = {"name": named} if named else None
        status["podTemplateGeneration"] = buffer.pod_template_generation or None
        # Conditions are written next, under whatever version this leaves.
        cluster.patch_status(KIND, msgspec.structs.replace(about, resource_version=""), status)
    changed = [one for one in _conditions(buffer, verdict) if _differs(buffer, one)]
    if changed:
        cluster.set_conditions(KIND, about, changed)


def _conditions(buffer: CapacityBuffer, verdict: BufferVerdict) -> Iterator[Condition]:
    generation = buffer.metadata.generation
    ready = ("False", buffer.fault, buffer.problem) if buffer.fault else ("True", "Resolved", "")
    yield Condition("ReadyForProvisioning", *ready, observed_generation=generation)
    fits = "True" if verdict.reason == buffers.FITS else "False"
    yield Condition("Provisioning", fits, verdict.reason, verdict.message, observed_generation=generation)


def _differs(buffer: CapacityBuffer, wanted: Condition) -> bool:
    found = condition(buffer.conditions, wanted.type)
    return found is None or (found.status, found.reason, found.message, found.observed_generation) != (
        wanted.status, wanted.reason, wanted.message, wanted.observed_generation,
    )  # fmt: skip
