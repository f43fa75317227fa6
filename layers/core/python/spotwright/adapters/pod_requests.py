"""What a pod asks for, as kube-scheduler counts it.

Source: ``k8s.io/component-helpers/resource`` PodRequests, 1.35: sidecars run beside the containers, other init
containers one after another, pod-level requests override, overhead is added, and a resize counts the larger of
what is asked and what is allocated.
"""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.model import resources

type Json = Mapping[str, Any]

_POD_LEVEL: Final = ("cpu", "memory")


def requests(spec: Json, status: Json) -> dict[str, int]:
    """cpu millicores, memory bytes, others in pieces, and ``pods: 1``. Raises QuantityError naming the field."""
    allocated = {one["name"]: one for one in _statuses(status)}
    infeasible = _resize_infeasible(status)
    running: dict[str, int] = {}
    for one in spec.get("containers") or ():
        running = resources.add(running, _container(one, allocated, infeasible))
    sidecars: dict[str, int] = {}
    peaks = []
    for one in spec.get("initContainers") or ():
        wanted = _container(one, allocated, infeasible)
        if one.get("restartPolicy") == "Always":
            sidecars = resources.add(sidecars, wanted)
            peaks.append(sidecars)
        else:
            peaks.append(resources.add(sidecars, wanted))
    total = resources.maximum([resources.add(running, sidecars), *peaks])
    total |= {
        name: size
        for name, size in _wanted(spec.get("resources") or {}).items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
    }
    total = resources.add(total, resources.parse(spec.get("overhead") or {}))
    return total | {resources.PODS: 1}


def _container(one: Json, allocated: Mapping[str, Json], infeasible: bool) -> dict[str, int]:
    wanted = _wanted(one.get("resources") or {})
    state = allocated.get(one.get("name", ""))
    if state is None:
        return wanted
    actual = resources.parse(state.get("allocatedResources") or (state.get("resources") or {}).get("requests") or {})
    return actual if infeasible and actual else resources.maximum([wanted, actual])


def _wanted(given: Json) -> dict[str, int]:
    """Requests, with a limit standing in for a missing one."""
    return resources.parse(dict(given.get("limits") or {}) | dict(given.get("requests") or {}))


def _statuses(status: Json) -> list[Json]:
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _resize_infeasible(status: Json) -> bool:
    return any(
        one.get("type") == "PodResizePending" and one.get("reason") == "Infeasible"
        for one in status.get("conditions") or ()
    )
