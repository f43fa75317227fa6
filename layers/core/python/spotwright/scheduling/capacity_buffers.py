"""CapacityBuffers: room for pods that may come, planned after every pod that exists has its place.

Source: Karpenter v1.14 ``pkg/controllers/capacitybuffer`` and its virtual pods in provisioning. Difference: virtual
pods are placed last, on what real pods leave, and never before a real pod.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.karpenter.capacity_buffer import ACTIVE_CAPACITY, CapacityBuffer
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import BufferProvisioning, NewNode, Plan, to_in_flight_nodeclaim

# Virtual pods of one buffer; a larger number is taken for a mistake in the buffer.
MAX_VIRTUAL_PODS: Final = 10_000
VIRTUAL_POD_PRIORITY: Final = -(2**31)
FAKE_POD: Final = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME: Final = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE: Final = "karpenter.sh/capacity-buffer-namespace"

FITS_EXISTING_CAPACITY: Final = "FitsExistingCapacity"
REQUIRES_NEW_CAPACITY: Final = "RequiresNewCapacity"
NOT_READY_FOR_PROVISIONING: Final = "NotReadyForProvisioning"
BUFFER_EMPTY: Final = "BufferEmpty"


def active_buffers(snapshot: Snapshot) -> list[CapacityBuffer]:
    """The buffers to provision, by namespace and name."""
    buffers = (
        buffer
        for buffer in snapshot.capacity_buffers
        if buffer.provisioning_strategy == ACTIVE_CAPACITY and buffer.metadata.deletion_timestamp is None
    )
    return sorted(buffers, key=lambda buffer: buffer.metadata.key)


def count_virtual_pods(buffer: CapacityBuffer) -> int:
    """How many pods a buffer keeps room for: the larger of replicas and percentage, within its limits.

    Limits alone decide where there is neither, or where the percentage is of nothing.
    """
    if buffer.template_pod is None:
        return 0
    counts = [] if buffer.replicas is None else [buffer.replicas]
    if buffer.percentage is not None and buffer.scalable_replicas:
        counts.append(-(-buffer.scalable_replicas * buffer.percentage // 100))
    requests = buffer.template_pod.requests
    caps = [limit // requests[name] for name, limit in buffer.limits.items() if requests.get(name, 0) > 0]
    if counts:
        return min(MAX_VIRTUAL_PODS, max(counts), *caps)
    return min(MAX_VIRTUAL_PODS, *caps) if caps else 0


def build_virtual_pods(buffer: CapacityBuffer, now: datetime) -> list[Pod]:
    """Pods that never run: of the lowest priority, without volumes, marked by their annotations."""
    if buffer.template_pod is None:
        return []
    metadata, template = buffer.metadata, buffer.template_pod
    annotations = {FAKE_POD: "true", BUFFER_NAME: metadata.name, BUFFER_NAMESPACE: metadata.namespace}
    virtual = msgspec.structs.replace(
        template, priority=VIRTUAL_POD_PRIORITY, priority_class_name="", unschedulable=True, volume_claim_names=()
    )
    return [
        msgspec.structs.replace(
            virtual,
            metadata=msgspec.structs.replace(
                template.metadata,
                name=_virtual_pod_name(buffer, number),
                namespace=metadata.namespace,
                uid=f"{metadata.uid}-{number}",
                creation_timestamp=now,
                annotations=template.metadata.annotations | annotations,
            ),
        )
        for number in range(count_virtual_pods(buffer))
    ]


def _virtual_pod_name(buffer: CapacityBuffer, number: int) -> str:
    return f"capacity-buffer-{buffer.metadata.name}-{number}"


def with_virtual_pods(snapshot: Snapshot, plan: Plan, virtual_pods: Sequence[Pod]) -> Snapshot:
    """The snapshot as if the plan had come true, without the pods that it left, and with the virtual pods pending."""
    new_nodes = _by_name(plan.new_nodes)
    node_of = {key: assignment.name for assignment in plan.existing_nodes for key in assignment.pods}
    node_of |= {key: name for name, node in new_nodes.items() for key in node.pods}
    unschedulable = {unplaced_pod.pod for unplaced_pod in plan.unschedulable_pods}
    placed = (
        msgspec.structs.replace(pod, node_name=node_of.get(pod.key, pod.node_name))
        for pod in snapshot.pods
        if pod.key in node_of or (pod.node_name and pod.key not in unschedulable)
    )
    in_flight = [to_in_flight_nodeclaim(node, name) for name, node in new_nodes.items()]
    return msgspec.structs.replace(snapshot, pods=(*placed, *virtual_pods), in_flight=(*snapshot.in_flight, *in_flight))


def _by_name(new_nodes: Sequence[NewNode]) -> dict[str, NewNode]:
    """New nodes by a name that stands for the NodeClaim to come."""
    return {f"new:{number:06d}": node for number, node in enumerate(new_nodes)}


def add_capacity_buffers(plan: Plan, for_buffers: Plan, buffers: Sequence[CapacityBuffer]) -> Plan:
    """The plan with room for the buffers. ``for_buffers``: where their virtual pods go once the plan has come true."""
    new_nodes = _by_name(plan.new_nodes)
    existing = tuple(assignment for assignment in for_buffers.existing_nodes if assignment.name not in new_nodes)
    fitting = frozenset(pod for assignment in existing for pod in assignment.pods)
    unplaced = {
        unplaced_pod.pod: "; ".join(unplaced_pod.reasons)
        for unplaced_pod in (*for_buffers.unschedulable_pods, *for_buffers.ignored_pods)
    }
    return msgspec.structs.replace(
        plan,
        new_nodes=(*plan.new_nodes, *for_buffers.new_nodes),
        work_units=plan.work_units + for_buffers.work_units,
        lower_bound_picousd_per_hour=max(plan.lower_bound_picousd_per_hour, for_buffers.lower_bound_picousd_per_hour),
        is_cheapest=plan.is_cheapest and not for_buffers.new_nodes,
        buffer_assignments=existing,
        buffers=tuple(_provisioning(buffer, fitting, unplaced) for buffer in buffers),
    )


def _provisioning(buffer: CapacityBuffer, fitting: frozenset[str], unplaced: dict[str, str]) -> BufferProvisioning:
    """How a buffer stands. ``fitting``: virtual pods on nodes that exist or are in flight; ``unplaced``: pod → why."""
    metadata, count = buffer.metadata, count_virtual_pods(buffer)
    provisioning = BufferProvisioning(metadata.namespace, metadata.name, count, BUFFER_EMPTY)
    if buffer.template_pod is None:
        return msgspec.structs.replace(
            provisioning, reason=NOT_READY_FOR_PROVISIONING, message=buffer.not_ready_message
        )
    if not count:
        return provisioning
    keys = [f"{metadata.namespace}/{_virtual_pod_name(buffer, number)}" for number in range(count)]
    if all(key in fitting for key in keys):
        return msgspec.structs.replace(provisioning, reason=FITS_EXISTING_CAPACITY)
    why = next((unplaced[key] for key in keys if key in unplaced), "")
    return msgspec.structs.replace(provisioning, reason=REQUIRES_NEW_CAPACITY, message=why)
