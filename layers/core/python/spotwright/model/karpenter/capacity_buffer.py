"""A CapacityBuffer (autoscaling.x-k8s.io/v1beta1): room that is kept free for pods that may come."""

from typing import Final

import msgspec

from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod

# The only strategy that is ours: nodes that are there.
ACTIVE_CAPACITY: Final = "buffer.x-k8s.io/active-capacity"


class CapacityBufferStatus(msgspec.Struct, frozen=True):
    """What the status says beside conditions. ``replicas``: pods it keeps room for, None = nobody said.

    ``pod_template_ref`` "" = it refers to none.
    """

    replicas: int | None = None
    pod_template_ref: str = msgspec.field(default="", name="pod_template")
    pod_template_generation: int = 0
    provisioning_strategy: str = msgspec.field(default="", name="strategy")


class CapacityBuffer(msgspec.Struct, frozen=True):
    """A buffer, and what it refers to.

    ``template_pod``: a pod like those it keeps room for; None while it is not known, which ``not_ready_reason`` (a
    reason of the condition ReadyForProvisioning) and ``not_ready_message`` (a sentence) explain. ``scalable_replicas``:
    replicas of the workload it refers to, None = it names a PodTemplate, of that name and generation. ``percentage``:
    of ``scalable_replicas``. ``limits``: cpu millicores, memory bytes … ``status``: as it was read.
    """

    metadata: ObjectMeta
    provisioning_strategy: str = msgspec.field(default=ACTIVE_CAPACITY, name="strategy")
    template_pod: Pod | None = msgspec.field(default=None, name="template")
    scalable_replicas: int | None = msgspec.field(default=None, name="scale")
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, int] = {}
    not_ready_reason: str = msgspec.field(default="", name="fault")
    not_ready_message: str = msgspec.field(default="", name="problem")
    pod_template_ref: str = msgspec.field(default="", name="pod_template")
    pod_template_generation: int = 0
    status: CapacityBufferStatus = CapacityBufferStatus()
    conditions: tuple[Condition, ...] = ()
