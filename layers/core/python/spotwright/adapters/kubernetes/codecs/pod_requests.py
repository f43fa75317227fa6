"""What a pod asks for, as kube-scheduler counts it.

Source: ``k8s.io/component-helpers/resource`` PodRequests, 1.35: sidecars run beside the containers, other init
containers one after another, pod-level requests override, overhead is added, and a resize counts the larger of
what is asked and what is allocated.
"""

from collections.abc import Mapping
from typing import Final

from spotwright.adapters.kubernetes.codecs.objects import Json
from spotwright.model import quantity, resources

_POD_LEVEL: Final = ("cpu", "memory")


def pod_requests(spec: Json, status: Json) -> dict[str, int]:
    """cpu millicores, memory bytes, others in pieces, and ``pods: 1``. Raises QuantityError naming the field."""
    allocated = {statuse["name"]: statuse for statuse in _statuses(status)}
    infeasible = _resize_infeasible(status)
    running: dict[str, int] = {}
    for container in spec.get("containers") or ():
        running = resources.add(running, _container(container, allocated, infeasible))
    sidecars: dict[str, int] = {}
    peaks = []
    for init_container in spec.get("initContainers") or ():
        wanted = _container(init_container, allocated, infeasible)
        if init_container.get("restartPolicy") == "Always":
            sidecars = resources.add(sidecars, wanted)
            peaks.append(sidecars)
        else:
            peaks.append(resources.add(sidecars, wanted))
    total = resources.maximum([resources.add(running, sidecars), *peaks])
    total |= {
        name: size
        for name, size in _wanted("spec.resources", spec.get("resources") or {}).items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
    }
    total = resources.add(total, _parsed("spec.overhead", spec.get("overhead") or {}))
    for name, size in total.items():
        if size > quantity.MAXIMUM:
            raise quantity.QuantityError(f"its containers ask for more {name} together than 2^63-1")
    return total | {resources.PODS: 1}


def _container(one: Json, allocated: Mapping[str, Json], infeasible: bool) -> dict[str, int]:
    wanted = _wanted(f"container {one.get('name') or ''}: resources", one.get("resources") or {})
    state = allocated.get(one.get("name", ""))
    if state is None:
        return wanted
    has = (state.get("allocatedResources"), (state.get("resources") or {}).get("requests"))
    actual = resources.maximum(resources.parse(one or {}) for one in has)
    return actual if infeasible and actual else resources.maximum([wanted, actual])


def _wanted(where: str, given: Json) -> dict[str, int]:
    """Requests, with a limit standing in for a missing one."""
    limits = _parsed(f"{where}.limits", given.get("limits") or {})
    return limits | _parsed(f"{where}.requests", given.get("requests") or {})


def _parsed(where: str, given: Json) -> dict[str, int]:
    """Amounts of one field; raises QuantityError naming it, the resource and the value."""
    try:
        parsed = resources.parse(given)
    except quantity.QuantityError as error:
        raise quantity.QuantityError(f"{where}.{error}") from None
    for name, size in parsed.items():
        if size < 0:
            raise quantity.QuantityError(f"{where}.{name}: {given[name]!r} is negative; at least 0 is allowed")
    return parsed


def _statuses(status: Json) -> list[Json]:
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _resize_infeasible(status: Json) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
