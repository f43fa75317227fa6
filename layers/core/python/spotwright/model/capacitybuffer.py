"""A CapacityBuffer (autoscaling.x-k8s.io/v1beta1): room that is kept free for pods that may come."""

from typing import Final

import msgspec

from spotwright.model.objects import Condition, Metadata
from spotwright.model.pod import Pod

# The only strategy that is ours: nodes that are there.
ACTIVE_CAPACITY: Final = "buffer.x-k8s.io/active-capacity"


class BufferStatus(msgspec.Struct, frozen=True):
    """What the status says beside conditions. ``replicas``: pods it keeps room for, None = nobody said.

    ``pod_template`` "" = it refers to none.
    """

    replicas: int | None = None
    pod_template: str = ""
    pod_template_generation: int = 0
    strategy: str = ""


class CapacityBuffer(msgspec.Struct, frozen=True):
    """A buffer, and what it refers to.

    ``template``: a pod like those it keeps room for; None while it is not known, which ``fault`` (a reason of the
    condition ReadyForProvisioning) and ``problem`` (a sentence) explain. ``scale``: replicas of the workload it refers
    to, None = it names a PodTemplate, of that name and generation. ``percentage``: of ``scale``. ``limits``: cpu
    millicores, memory bytes … ``status``: as it was read.
    """

    metadata: Metadata
    strategy: str = ACTIVE_CAPACITY
    template: Pod | None = None
    scale: int | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, int] = {}
    fault: str = ""
    problem: str = ""
    pod_template: str = ""
    pod_template_generation: int = 0
    status: BufferStatus = BufferStatus()
    conditions: tuple[Condition, ...] = ()
