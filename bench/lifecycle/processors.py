"""Who uses the processors that all parts of a local stack share; on AWS each has its own. Linux alone."""

from collections.abc import Collection, Mapping
from typing import Final

from bench.scale.processes import children, processor_seconds

CONTROL_PLANE: Final = "the control plane"
PROVISIONER: Final = "functions and forwarder, or Karpenter"
AWS: Final = "the local AWS"
NODES: Final = "the simulated nodes"
_PARTS: Final = {"aws": AWS, "kwok": NODES, "boot": NODES, "pods": NODES}


class Processors:
    """The processes of a stack. ``pids``: of its parts, by name; ``controllers``: of Karpenter's."""

    def __init__(self, pids: Mapping[str, int], controllers: Collection[int] = ()) -> None:
        self._pids, self._controllers = pids, controllers

    def used(self) -> dict[str, float]:
        """Seconds since the start of the stack, by who used them. Functions are processes of the local AWS, the
        forwarder is one of the pods' runner; those that have ended count.
        """
        seconds = dict.fromkeys((CONTROL_PLANE, PROVISIONER, AWS, NODES), 0.0)
        for name, pid in self._pids.items():
            seconds[_PARTS.get(name, CONTROL_PLANE)] += processor_seconds(pid)
            if name in ("aws", "pods"):
                seconds[PROVISIONER] += processor_seconds(pid, of_ended_children=True)
                seconds[PROVISIONER] += sum(map(processor_seconds, children(pid)))
        seconds[PROVISIONER] += sum(map(processor_seconds, self._controllers))
        return seconds
