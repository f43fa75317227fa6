"""CapacityBuffers: room for pods that may come, found or bought after every pod that is there has its place.

Source: Karpenter v1.14 ``pkg/controllers/capacitybuffer`` and its virtual pods in provisioning. Difference: virtual
pods are placed last, on what the real ones leave, and never before one of them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.capacity_buffer import ACTIVE_CAPACITY, CapacityBuffer
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import pod_planner
from spotwright.scheduling.plan import BufferProvisioning, NewNode, Plan, to_in_flight_nodeclaim

# Virtual pods of one buffer: more is taken for an error of whoever wrote it.
MAX_VIRTUAL_PODS: Final = 10_000
VIRTUAL_POD_PRIORITY: Final = -(2**31)
FAKE_POD: Final = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME: Final = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE: Final = "karpenter.sh/capacity-buffer-namespace"

FITS_EXISTING_CAPACITY: Final = "FitsExistingCapacity"
REQUIRES_NEW_CAPACITY: Final = "RequiresNewCapacity"
NOT_READY_FOR_PROVISIONING: Final = "NotReadyForProvisioning"
BUFFER_EMPTY: Final = "BufferEmpty"


def add_capacity_buffers(first: Plan, snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The plan with room for the buffers, found or bought after every pod that is there has its place."""
    buffers = sorted(_ours(snapshot.capacity_buffers), key=lambda buffer: buffer.metadata.key)
    if not buffers:
        return first
    pods = [pod for buffer in buffers for pod in build_virtual_pods(buffer, snapshot.now)]
    if not pods:
        return msgspec.structs.replace(first, buffers=tuple(_verdict(buffer, frozenset(), {}) for buffer in buffers))
    coming = {f"new:{number:06d}": node for number, node in enumerate(first.new_nodes)}
    second = pod_planner.plan_pods(_afterwards(snapshot, first, coming, pods), catalog)
    return _together(first, second, coming, buffers)


def _ours(buffers: Iterable[CapacityBuffer]) -> list[CapacityBuffer]:
    return [
        buffer
        for buffer in buffers
        if buffer.provisioning_strategy == ACTIVE_CAPACITY and buffer.metadata.deletion_timestamp is None
    ]


def count_virtual_pods(buffer: CapacityBuffer) -> int:
    """How many pods a buffer keeps room for: the larger of its number and its share, within its limits.

    Limits alone decide where there is neither, or where the share is of nothing.
    """
    if buffer.template_pod is None:
        return 0
    wanted = [] if buffer.replicas is None else [buffer.replicas]
    if buffer.percentage is not None and buffer.scalable_replicas:
        wanted.append(-(-buffer.scalable_replicas * buffer.percentage // 100))
    requests = buffer.template_pod.requests
    caps = [limit // requests[name] for name, limit in buffer.limits.items() if requests.get(name, 0) > 0]
    if wanted:
        return min(MAX_VIRTUAL_PODS, max(wanted), *caps)
    return min(MAX_VIRTUAL_PODS, *caps) if caps else 0


def build_virtual_pods(buffer: CapacityBuffer, now: datetime) -> list[Pod]:
    """Pods that nobody runs: below all real ones, without volumes, told by their annotations."""
    if buffer.template_pod is None:
        return []
    about, template = buffer.metadata, buffer.template_pod
    told = {FAKE_POD: "true", BUFFER_NAME: about.name, BUFFER_NAMESPACE: about.namespace}
    blank = msgspec.structs.replace(
        template, priority=VIRTUAL_POD_PRIORITY, priority_class_name="", unschedulable=True, volume_claim_names=()
    )
    return [
        msgspec.structs.replace(
            blank,
            metadata=msgspec.structs.replace(
                template.metadata,
                name=f"capacity-buffer-{about.name}-{number}",
                namespace=about.namespace,
                uid=f"{about.uid}-{number}",
                creation_timestamp=now,
                annotations=template.metadata.annotations | told,
            ),
        )
        for number in range(count_virtual_pods(buffer))
    ]


def _afterwards(snapshot: Snapshot, first: Plan, coming: dict[str, NewNode], virtual: Sequence[Pod]) -> Snapshot:
    """The snapshot as if the plan had come true: who got a place is there, who got none is not asked again."""
    seats = {key: node.name for node in first.existing_nodes for key in node.pods}
    seats |= {key: name for name, node in coming.items() for key in node.pods}
    refused = {unplaced_pod.pod for unplaced_pod in first.unschedulable_pods}
    placed = (
        msgspec.structs.replace(pod, node_name=seats.get(pod.key, pod.node_name))
        for pod in snapshot.pods
        if pod.key in seats or (pod.node_name and pod.key not in refused)
    )
    promised = tuple(to_in_flight_nodeclaim(node, name) for name, node in coming.items())
    return msgspec.structs.replace(snapshot, pods=(*placed, *virtual), in_flight=(*snapshot.in_flight, *promised))


def _together(first: Plan, second: Plan, coming: dict[str, NewNode], buffers: Sequence[CapacityBuffer]) -> Plan:
    there = tuple(assignment for assignment in second.existing_nodes if assignment.name not in coming)
    fitting = frozenset(pod for assignment in there for pod in assignment.pods)
    refused = {
        unplaced_pod.pod: "; ".join(unplaced_pod.reasons)
        for unplaced_pod in (*second.unschedulable_pods, *second.ignored_pods)
    }
    return msgspec.structs.replace(
        first,
        new_nodes=(*first.new_nodes, *second.new_nodes),
        work_units=first.work_units + second.work_units,
        lower_bound_picousd_per_hour=max(first.lower_bound_picousd_per_hour, second.lower_bound_picousd_per_hour),
        buffer_assignments=there,
        buffers=tuple(_verdict(buffer, fitting, refused) for buffer in buffers),
    )


def _verdict(buffer: CapacityBuffer, fitting: frozenset[str], refused: dict[str, str]) -> BufferProvisioning:
    """What is to be said of a buffer. ``fitting``: virtual pods with room on nodes there are, or on their way."""
    about, pods = buffer.metadata, count_virtual_pods(buffer)
    provisioning = BufferProvisioning(about.namespace, about.name, pods, BUFFER_EMPTY)
    if buffer.template_pod is None:
        return msgspec.structs.replace(
            provisioning, reason=NOT_READY_FOR_PROVISIONING, message=buffer.not_ready_message
        )
    if not pods:
        return provisioning
    keys = [f"{about.namespace}/capacity-buffer-{about.name}-{number}" for number in range(pods)]
    if all(key in fitting for key in keys):
        return msgspec.structs.replace(provisioning, reason=FITS_EXISTING_CAPACITY)
    why = next((refused[key] for key in keys if key in refused), "")
    return msgspec.structs.replace(provisioning, reason=REQUIRES_NEW_CAPACITY, message=why)
