"""What a node does not offer to pods: kube-reserved and the hard eviction thresholds.

Source: the EKS images' kube-reserved formula and the kubelet's defaults as Karpenter documents them
(concepts: NodeClasses, ``spec.kubelet``). CPU in millicores, memory and storage in bytes.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from spotwright.aws.kubelet.configuration import KubeletConfiguration
from spotwright.model import quantity, resources

MIB: Final = 2**20
GIB: Final = 2**30
_EVICTION_MEMORY: Final = 100 * MIB
_EVICTION_STORAGE_PERCENT: Final = 10
_RESERVED_STORAGE: Final = GIB
# From, to (millicores) and the share of them that is reserved for Kubernetes, in parts of 10,000.
_CPU_BRACKETS: Final = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, 2**63, 25))


def kube_reserved(vcpus: int, kubelet: KubeletConfiguration, pods: int) -> dict[str, int]:
    """What kubelet and container runtime keep on a node for ``pods``; ``kubeReserved`` overrides it key by key."""
    return {
        resources.CPU: kube_reserved_cpu(vcpus * 1000),
        resources.MEMORY: (11 * pods + 255) * MIB,
        resources.EPHEMERAL_STORAGE: _RESERVED_STORAGE,
    } | kubelet.reserved_amounts("kubeReserved")


def kube_reserved_cpu(millicores: int) -> int:
    """Millicores: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % above; each cut down."""
    return sum(
        (min(millicores, end) - start) * share // 10_000 for start, end, share in _CPU_BRACKETS if millicores > start
    )


def eviction_thresholds(kubelet: KubeletConfiguration, capacity: Mapping[str, int]) -> dict[str, int]:
    """The hard eviction thresholds; soft ones do not take anything away."""
    memory, storage = capacity[resources.MEMORY], capacity[resources.EPHEMERAL_STORAGE]
    return {
        resources.MEMORY: _threshold(kubelet.eviction_threshold("memory.available"), memory, _EVICTION_MEMORY),
        resources.EPHEMERAL_STORAGE: _threshold(
            kubelet.eviction_threshold("nodefs.available"),
            storage,
            math.ceil(Fraction(storage * _EVICTION_STORAGE_PERCENT, 100)),
        ),
    }


def _threshold(stated: str | None, capacity: int, default: int) -> int:
    """Bytes. A percentage is of the capacity; 100 % switches the signal off, as the kubelet reads it."""
    if stated is None:
        return default
    try:
        if stated.endswith("%"):
            share = Fraction(stated.removesuffix("%"))
            return 0 if share == 100 else math.ceil(share * capacity / 100)
        return quantity.amount(resources.MEMORY, stated)
    except (ValueError, ZeroDivisionError):
        return default
