"""CapacityBuffers: room for pods that may come, found or bought after every pod that is there has its place.

Source: Karpenter v1.14 ``pkg/controllers/capacitybuffer`` and its virtual pods in provisioning. Difference: virtual
pods are placed last, on what the real ones leave, and never before one of them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.capacitybuffer import ACTIVE_CAPACITY, CapacityBuffer
from spotwright.model.instancetype import Catalog
from spotwright.model.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import planner, static
from spotwright.scheduling.plan import BufferVerdict, NewNode, Plan, on_its_way

# Virtual pods of one buffer: more is taken for an error of whoever wrote it.
MOST_PODS: Final = 10_000
LOWEST_PRIORITY: Final = -(2**31)
FAKE_POD: Final = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME: Final = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE: Final = "karpenter.sh/capacity-buffer-namespace"

FITS: Final = "FitsExistingCapacity"
REQUIRES_NEW: Final = "RequiresNewCapacity"
NOT_READY: Final = "NotReadyForProvisioning"
EMPTY: Final = "BufferEmpty"


def plan(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The whole decision: static pools, every pending pod, and then room for the buffers."""
    first = static.plan(snapshot, catalog)
    buffers = sorted(_ours(snapshot.buffers), key=lambda one: one.metadata.key)
    if not buffers:
        return first
    pods = [pod for one in buffers for pod in virtual_pods(one, snapshot.now)]
    if not pods:
        return msgspec.structs.replace(first, buffers=tuple(_verdict(one, frozenset(), {}) for one in buffers))
    coming = {f"new:{number:06d}": node for number, node in enumerate(first.new_nodes)}
    second = planner.plan(_afterwards(snapshot, first, coming, pods), catalog)
    return _together(first, second, coming, buffers)


def _ours(buffers: Iterable[CapacityBuffer]) -> list[CapacityBuffer]:
    return [one for one in buffers if one.strategy == ACTIVE_CAPACITY and one.metadata.deleting is None]


def size(buffer: CapacityBuffer) -> int:
    """How many pods a buffer keeps room for: the larger of its number and its share, within its limits.

    Limits alone decide where there is neither, or where the share is of nothing.
    """
    if buffer.template is None:
        return 0
    wanted = [] if buffer.replicas is None else [buffer.replicas]
    if buffer.percentage is not None and buffer.scale:
        wanted.append(-(-buffer.scale * buffer.percentage // 100))
    requests = buffer.template.requests
    caps = [limit // requests[name] for name, limit in buffer.limits.items() if requests.get(name, 0) > 0]
    if wanted:
        return min(MOST_PODS, max(wanted), *caps)
    return min(MOST_PODS, *caps) if caps else 0


def virtual_pods(buffer: CapacityBuffer, now: datetime) -> list[Pod]:
    """Pods that nobody runs: below all real ones, without volumes, told by their annotations."""
    if buffer.template is None:
        return []
    about, template = buffer.metadata, buffer.template
    told = {FAKE_POD: "true", BUFFER_NAME: about.name, BUFFER_NAMESPACE: about.namespace}
    blank = msgspec.structs.replace(
        template, priority=LOWEST_PRIORITY, priority_class="", unschedulable=True, volume_claims=()
    )
    return [
        msgspec.structs.replace(
            blank,
            metadata=msgspec.structs.replace(
                template.metadata,
                name=f"capacity-buffer-{about.name}-{number}",
                namespace=about.namespace,
                uid=f"{about.uid}-{number}",
                created=now,
                annotations=template.metadata.annotations | told,
            ),
        )
        for number in range(size(buffer))
    ]


def _afterwards(snapshot: Snapshot, first: Plan, coming: dict[str, NewNode], virtual: Sequence[Pod]) -> Snapshot:
    """The snapshot as if the plan had come true: who got a place is there, who got none is not asked again."""
    seats = {key: node.name for node in first.existing_nodes for key in node.pods}
    seats |= {key: name for name, node in coming.items() for key in node.pods}
    refused = {one.pod for one in first.unschedulable}
    placed = (
        msgspec.structs.replace(pod, node_name=seats.get(pod.key, pod.node_name))
        for pod in snapshot.pods
        if pod.key in seats or (pod.node_name and pod.key not in refused)
    )
    promised = tuple(on_its_way(node, name) for name, node in coming.items())
    return msgspec.structs.replace(snapshot, pods=(*placed, *virtual), in_flight=(*snapshot.in_flight, *promised))


def _together(first: Plan, second: Plan, coming: dict[str, NewNode], buffers: Sequence[CapacityBuffer]) -> Plan:
    there = tuple(one for one in second.existing_nodes if one.name not in coming)
    fitting = frozenset(pod for one in there for pod in one.pods)
    refused = {one.pod: "; ".join(one.reasons) for one in (*second.unschedulable, *second.ignored)}
    return msgspec.structs.replace(
        first,
        new_nodes=(*first.new_nodes, *second.new_nodes),
        units=first.units + second.units,
        bound_picousd_per_hour=max(first.bound_picousd_per_hour, second.bound_picousd_per_hour),
        buffered=there,
        buffers=tuple(_verdict(one, fitting, refused) for one in buffers),
    )


def _verdict(buffer: CapacityBuffer, fitting: frozenset[str], refused: dict[str, str]) -> BufferVerdict:
    """What is to be said of a buffer. ``fitting``: virtual pods with room on nodes there are, or on their way."""
    about, pods = buffer.metadata, size(buffer)
    made = BufferVerdict(about.namespace, about.name, pods, EMPTY)
    if buffer.template is None:
        return msgspec.structs.replace(made, reason=NOT_READY, message=buffer.problem)
    if not pods:
        return made
    keys = [f"{about.namespace}/capacity-buffer-{about.name}-{number}" for number in range(pods)]
    if all(key in fitting for key in keys):
        return msgspec.structs.replace(made, reason=FITS)
    why = next((refused[key] for key in keys if key in refused), "")
    return msgspec.structs.replace(made, reason=REQUIRES_NEW, message=why)
