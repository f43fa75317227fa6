"""A CapacityBuffer (autoscaling.x-k8s.io/v1beta1): room that is kept free for pods that may come."""

from typing import Final

import msgspec

from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod

# The only strategy that Spotwright serves: nodes with free capacity.
ACTIVE_CAPACITY: Final = "buffer.x-k8s.io/active-capacity"


class CapacityBufferStatus(msgspec.Struct, frozen=True):
    """The status without its conditions. ``replicas``: how many pods there is room for, None = not stated.

    ``pod_template_ref`` "" = no PodTemplate.
    """

    replicas: int | None = None
    pod_template_ref: str = msgspec.field(default="", name="pod_template")
    pod_template_generation: int = 0
    provisioning_strategy: str = msgspec.field(default="", name="strategy")


class CapacityBuffer(msgspec.Struct, frozen=True):
    """A buffer with the pod template and the replicas that it refers to.

    ``template_pod``: a pod like those it keeps room for; None = not known, for the reason ``not_ready_reason`` of the
    condition ReadyForProvisioning, with ``not_ready_message``. ``scalable_replicas``: replicas of the workload that it
    refers to, None = it refers to a PodTemplate. ``percentage``: of ``scalable_replicas``. ``limits``: cpu millicores,
    memory bytes … ``status``: as it was read.
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
