"""The requests of a pod, as kube-scheduler counts them.

Source: ``k8s.io/component-helpers/resource`` PodRequests, 1.35: sidecars run beside the containers, other init
containers one after another; pod-level requests override those of containers; overhead is added; during a resize the
larger of requested and allocated resources counts.
"""

from collections.abc import Mapping
from typing import Final

from spotwright.adapters.kubernetes.codecs.objects import Json
from spotwright.model import quantity, resources
from spotwright.model.quoting import quote

_POD_LEVEL: Final = ("cpu", "memory")


def pod_requests(spec: Json, status: Json) -> dict[str, int]:
    """cpu millicores, memory bytes, other resources in pieces, and ``pods: 1``. Raises QuantityError with the field."""
    allocated = {container_status["name"]: container_status for container_status in _container_statuses(status)}
    infeasible = _is_resize_infeasible(status)
    running: dict[str, int] = {}
    for container in spec.get("containers") or ():
        running = resources.add(running, _container_requests(container, allocated, infeasible))
    sidecars: dict[str, int] = {}
    peaks = []
    for init_container in spec.get("initContainers") or ():
        requests = _container_requests(init_container, allocated, infeasible)
        if init_container.get("restartPolicy") == "Always":
            sidecars = resources.add(sidecars, requests)
            peaks.append(sidecars)
        else:
            peaks.append(resources.add(sidecars, requests))
    total = resources.maximum([resources.add(running, sidecars), *peaks])
    total |= {
        name: size
        for name, size in _requests_or_limits("spec.resources", spec.get("resources") or {}).items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
    }
    total = resources.add(total, _parse_amounts("spec.overhead", spec.get("overhead") or {}))
    for name, size in total.items():
        if size > quantity.MAXIMUM:
            raise quantity.QuantityError(f"its containers ask for more {name} together than 2^63-1")
    return total | {resources.PODS: 1}


def _container_requests(container: Json, allocated: Mapping[str, Json], infeasible: bool) -> dict[str, int]:
    requests = _requests_or_limits(
        f"container {container.get('name') or ''}: resources", container.get("resources") or {}
    )
    state = allocated.get(container.get("name", ""))
    if state is None:
        return requests
    allocations = (state.get("allocatedResources"), (state.get("resources") or {}).get("requests"))
    actual = resources.maximum(resources.parse(container or {}) for container in allocations)
    return actual if infeasible and actual else resources.maximum([requests, actual])


def _requests_or_limits(where: str, resource_requirements: Json) -> dict[str, int]:
    """The requests; a resource without request has its limit."""
    limits = _parse_amounts(f"{where}.limits", resource_requirements.get("limits") or {})
    return limits | _parse_amounts(f"{where}.requests", resource_requirements.get("requests") or {})


def _parse_amounts(where: str, amounts: Json) -> dict[str, int]:
    """The amounts of a field; raises QuantityError with field, resource and value."""
    try:
        parsed = resources.parse(amounts)
    except quantity.QuantityError as error:
        raise quantity.QuantityError(f"{where}.{error}") from None
    for name, size in parsed.items():
        if size < 0:
            raise quantity.QuantityError(f"{where}.{name}: {quote(amounts[name])} is negative; at least 0 is allowed")
    return parsed


def _container_statuses(status: Json) -> list[Json]:
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _is_resize_infeasible(status: Json) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
