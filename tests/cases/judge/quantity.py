"""Kubernetes quantities and resource lists, exact: every amount is an integer number of nano-units."""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import cache
from typing import Any

Raw = Mapping[str, Any]
"""A Kubernetes object, or part of one, as it was parsed."""
Resources = dict[str, int]
NANO = 10**9
SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


@cache
def parse(text: str) -> int:
    """'100m', '1.5Gi', '2', '1e3' -> nano-units, rounded up. Raises ValueError for anything else."""
    body = text.strip()
    for suffix in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E"):
        if body.endswith(suffix):
            number = body[: -len(suffix)]
            break
    else:
        number, suffix = body, ""
    try:
        return int((Decimal(number) * SUFFIXES[suffix] * NANO).to_integral_value(ROUND_CEILING))
    except InvalidOperation:
        raise ValueError(f"not a quantity: {text!r}") from None


def resources(raw: Mapping[str, object] | None) -> Resources:
    """A Kubernetes ResourceList as nano-units."""
    return {name: parse(str(amount)) for name, amount in (raw or {}).items()}


def total(lists: Iterable[Resources]) -> Resources:
    """Sum, resource by resource."""
    result: Resources = {}
    for amounts in lists:
        for name, amount in amounts.items():
            result[name] = result.get(name, 0) + amount
    return result


def largest(lists: Iterable[Resources]) -> Resources:
    """Maximum, resource by resource."""
    result: Resources = {}
    for amounts in lists:
        for name, amount in amounts.items():
            result[name] = max(result.get(name, amount), amount)
    return result


def minus(a: Resources, b: Resources) -> Resources:
    """a - b for every resource of either; may be negative."""
    return {name: a.get(name, 0) - b.get(name, 0) for name in {*a, *b}}


def shortage(requests: Resources, available: Resources) -> str:
    """The first resource that is asked for and not there, in words; '' if everything fits. A missing resource is
    0."""
    for name, amount in sorted(requests.items()):
        if amount > 0 and amount > available.get(name, 0):
            return f"{name}: {show(name, amount)} requested, {show(name, available.get(name, 0))} available"
    return ""


def show(name: str, amount: int) -> str:
    """For people: cpu in millicores, memory in MiB, anything else as a number."""
    if name == "cpu":
        return f"{amount / NANO * 1000:g}m"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return f"{amount / NANO / 2**20:.1f}Mi"
    return f"{amount / NANO:g}"


def pod_requests(spec: Raw, status: Raw | None = None) -> Resources:
    """What kube-scheduler reserves for one pod, including `pods: 1`.

    The larger of (app containers + sidecars) and every moment of the init sequence (an init container runs beside
    the
    sidecars declared before it), then pod-level resources win for cpu, memory and hugepages, then RuntimeClass
    overhead.
    A container that has been resized in place counts with the larger of what it wants and what it holds, or only
    with what
    it holds if the node has refused the resize. Limits stand in for missing requests, as the API server does it
    for pods
    (but not yet in a DaemonSet's template).
    """
    refused = any(
        c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible"
        for c in (status or {}).get("conditions") or []
    )
    held = {
        s.get("name"): s
        for kind in ("containerStatuses", "initContainerStatuses")
        for s in (status or {}).get(kind) or []
    }

    def of_container(container: Raw) -> Resources:
        declared = container.get("resources") or {}
        requests = {**resources(declared.get("limits")), **resources(declared.get("requests"))}
        state = held.get(container.get("name"), {})
        holds = [resources(state.get("allocatedResources")), resources((state.get("resources") or {}).get("requests"))]
        return largest(holds if refused and any(holds) else [requests, *holds])

    running = total(of_container(c) for c in spec.get("containers") or [])
    sidecars: Resources = {}
    peak: Resources = {}
    for container in spec.get("initContainers") or []:
        wanted = of_container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = total([sidecars, wanted])
            peak = largest([peak, sidecars])
        else:
            peak = largest([peak, total([sidecars, wanted])])
    result = largest([total([running, sidecars]), peak])
    for name, amount in resources((spec.get("resources") or {}).get("requests")).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            result[name] = amount
    return total([result, resources(spec.get("overhead")), {"pods": NANO}])
