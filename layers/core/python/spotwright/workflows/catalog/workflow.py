"""The status of the EC2NodeClasses, and the catalog of instance types and prices for each.

Two doorbells: ``region`` reads instance types, offerings and prices of the region (slow, every few hours);
``nodeclasses`` resolves classes and computes the catalog from the last region facts (a few calls). Both write statuses
and one content-addressed catalog, and ring the workflows that depend on them. Running twice changes nothing more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from spotwright.aws.instance_types import discovered_capacity
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.nodeclass import readiness
from spotwright.errors import ApiError, Denied, NotFound
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.meta import is_condition_true
from spotwright.telemetry import events
from spotwright.workflows.account import offering_health_store
from spotwright.workflows.catalog import instance_profiles, instance_types, launch_templates
from spotwright.workflows.catalog.nodeclasses import NodeClassResult, reconcile_nodeclass
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import CatalogPorts
from spotwright.workflows.ports.doorbells import RUNG_ANYWAY, Doorbell

# A class that could not be resolved, or waits for its NodeClaims, is tried again after these seconds; after that the
# sweep rings for it every minute. EC2 knows a new instance profile after some seconds, a new launch template sooner.
RETRY_SECONDS: Final = (1, 1, 2, 2, 4, 5, 10, 20)
# A further class, or the region after the classes, is begun only with so much time left: the catalog is stored last.
STEP_SECONDS: Final = 20
# How long the first reading of a region by another invocation is waited for.
REGION_READ_MS: Final = 30_000
READ_ELSEWHERE: Final = "another invocation is reading the region"
# No class was tried before.
_FIRST: Final = MappingProxyType[str, int]({})
# How often a catalog is computed again because another invocation wrote one meanwhile.
_RACES: Final = 3


class CatalogResult(msgspec.Struct, frozen=True):
    """What an invocation did. ``failures``: class → the error of AWS or the API server; ``notes``: for the log."""

    catalog_key: str
    changed: bool
    ready_classes: tuple[str, ...] = ()
    not_ready: dict[str, str] = {}
    failures: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def update_catalog(
    ports: CatalogPorts, bells: Iterable[Doorbell], *, clock: Callable[[], datetime], seconds_left: SecondsLeft = None
) -> Iterator[tuple[str, CatalogResult]]:
    """Each result with the kind of its doorbell, classes first; what there is no time for is rung for again."""
    bells = tuple(bells)
    classes = [bell for bell in bells if bell.kind == "nodeclasses"]
    others = {bell.kind: bell for bell in bells if bell.kind != "nodeclasses"}
    if classes:
        names = [] if any(not bell.key for bell in classes) else sorted({bell.key for bell in classes})
        # The lowest one of a class counts.
        attempts = {bell.key: bell.epoch for bell in sorted(classes, key=lambda bell: -bell.epoch)}
        yield (
            "nodeclasses",
            resolve_nodeclasses(ports, names, now=clock(), attempts=attempts, seconds_left=seconds_left),
        )
    # Reading the region looks at zonal shifts as well.
    bell = others.get("region") or others.get("shifts")
    if bell is not None and classes and _is_short(seconds_left):
        ports.doorbells.ring("catalog", [bell])
    elif bell is not None and bell.kind == "region":
        yield "region", refresh_region(ports, now=clock(), seconds_left=seconds_left)
    elif bell is not None and (shifted := apply_zonal_shifts(ports, now=clock(), seconds_left=seconds_left)):
        yield "shifts", shifted


def _is_short(seconds_left: SecondsLeft) -> bool:
    return seconds_left is not None and seconds_left() < STEP_SECONDS


def refresh_region(ports: CatalogPorts, *, now: datetime, seconds_left: SecondsLeft = None) -> CatalogResult:
    """Read the region again, resolve every class against it, and delete unused launch templates.

    The first reading takes long, and a new deployment begins it before the cluster grants access: it is stored whatever
    the cluster answers.
    """
    key = ports.state.catalog_key()
    last = instance_types.region_of(ports.blobs, instance_types.read_catalog(ports.blobs, key))
    region = _read_region(ports, now, last)
    if region is None:
        return _postpone(ports, key, READ_ELSEWHERE)
    if not key and not ports.state.catalog_key():
        first = instance_types.store_empty_catalog(ports.blobs, region)
        ports.state.set_catalog_key(first, int(now.timestamp() * 1000))
        ports.state.end_region_read()
    try:
        catalog_result = _run(ports, (), region, now, {}, seconds_left)
    except (Denied, NotFound) as error:
        if key:
            raise
        return _postpone(ports, ports.state.catalog_key(), f"the cluster does not grant access yet: {error}")
    launch_templates.delete_unused(ports, now=now)
    return catalog_result


def _postpone(ports: CatalogPorts, key: str, note: str) -> CatalogResult:
    """Resolve every class soon, when the region facts are there."""
    _ring(ports, {}, changed=False, again=("",))
    return CatalogResult(key, changed=False, notes=(note,))


def resolve_nodeclasses(
    ports: CatalogPorts,
    names: Sequence[str],
    *,
    now: datetime,
    attempts: Mapping[str, int] = _FIRST,
    seconds_left: SecondsLeft = None,
) -> CatalogResult:
    """Resolve the named classes, or all if none is named, with the last region facts.

    ``attempts``: class, "" = any other → how often it was tried before (the doorbell's epoch), RUNG_ANYWAY = it is not
    rung for again.
    """
    catalog_result = _run(ports, names, None, now, attempts, seconds_left)
    if names or not instance_profiles.is_due(now):
        return catalog_result
    return msgspec.structs.replace(
        catalog_result, notes=(*catalog_result.notes, *instance_profiles.delete_unused(ports, now=now))
    )


def apply_zonal_shifts(ports: CatalogPorts, *, now: datetime, seconds_left: SecondsLeft = None) -> CatalogResult | None:
    """Compute the catalog again when a zonal shift began or ended; None when none did."""
    if ports.zonal_shifts is None:
        return None
    before = frozenset(instance_types.read_catalog(ports.blobs, ports.state.catalog_key()).header.shifted)
    after = ports.zonal_shifts.shifted_zone_ids(now)
    if after == before:
        return None
    for pool in ports.cluster.nodepools():
        for zone in sorted(after ^ before):
            row = events.ZONAL_SHIFT_ACTIVE if zone in after else events.ZONAL_SHIFT_CLEARED
            ports.cluster.record_event("nodepools", pool.metadata, row(zone=zone), now=now)
    return _run(ports, (), None, now, {}, seconds_left)


def _gather_inputs(ports: CatalogPorts, now: datetime) -> tuple[instance_types.CatalogInputs, tuple[str, ...]]:
    """What the types of classes depend on besides the region, and notes on what could not be read.

    When zonal shifts cannot be read, the last known ones stay.
    """
    prices, note = ports.account_prices.read()
    notes = [note] if note else []
    shifted = frozenset[str]()
    if ports.zonal_shifts is not None:
        try:
            shifted = ports.zonal_shifts.shifted_zone_ids(now)
        except ApiError as error:
            shifted = frozenset(instance_types.read_catalog(ports.blobs, ports.state.catalog_key()).header.shifted)
            notes.append(f"zonal shifts could not be read, the last known ones stay: {error}")
    return instance_types.CatalogInputs(ports.overheads, shifted, prices), tuple(notes)


def _run(
    ports: CatalogPorts,
    names: Sequence[str],
    fresh: RegionFacts | None,
    now: datetime,
    attempts: Mapping[str, int],
    seconds_left: SecondsLeft,
) -> CatalogResult:
    """Write statuses first, since users wait for them, then the catalog.

    A catalog that was written meanwhile may be of newer classes or region facts: then this one is computed again.
    """
    changed_readiness: set[str] = set()
    newly_read: RegionFacts | None = None
    inputs, notes = _gather_inputs(ports, now)
    for _ in range(_RACES):
        before = instance_types.read_catalog(ports.blobs, ports.state.catalog_key())
        outcomes = _reconcile_nodeclasses(ports, names, now, seconds_left)
        changed_readiness.update(
            nodeclass_result.node_class.name for nodeclass_result in outcomes if nodeclass_result.readiness_changed
        )
        if any(nodeclass_result.may_drift for nodeclass_result in outcomes):
            ports.doorbells.ring("lifecycle", [Doorbell(ports.cluster.name, "drift")])
        try:
            region_facts = None if fresh else instance_types.region_of(ports.blobs, before)
            newly_read = fresh or (None if region_facts else newly_read or _read_region(ports, now))
        except ApiError:
            # The statuses are written; only the catalog has to wait.
            _ring(ports, _for_region(attempts), changed=bool(changed_readiness), again=names or ("",))
            raise
        region = newly_read or region_facts
        if region is None:
            _ring(ports, _for_region(attempts), changed=bool(changed_readiness), again=names or ("",))
            return _result(before.key, before.key, outcomes, (*notes, READ_ELSEWHERE))
        source = instance_types.store_region(ports.blobs, newly_read) if newly_read else before.header.source
        classes, region_notes = [nodeclass_result.node_class for nodeclass_result in outcomes], region.notes
        inputs = msgspec.structs.replace(inputs, memory=_discovered_memory(ports, before, names, classes, now))
        key = instance_types.store_catalog(
            ports.blobs, before, source=source, region=region, classes=classes, inputs=inputs
        )
        if ports.state.catalog_key() == before.key:
            break
    if key != before.key or any(nodeclass.capacity_reservations for nodeclass in classes):
        # The catalog counts what is left in reservations as of now; later launches are subtracted from it.
        ports.state.set_catalog_key(key, int(now.timestamp() * 1000))
    if newly_read:
        ports.state.end_region_read()
    again = [nodeclass_result.node_class.name for nodeclass_result in outcomes if nodeclass_result.retry]
    _ring(ports, attempts, changed=key != before.key or bool(changed_readiness), again=again)
    # Last: the account's memory may be the table of another cell, and launches do without what it says of subnets.
    subnets = [subnet for nodeclass_result in outcomes for subnet in nodeclass_result.subnets]
    offering_health_store.record_subnets(ports.state, subnets, now_ms=int(now.timestamp() * 1000))
    return _result(key, before.key, outcomes, (*region_notes, *notes))


def _discovered_memory(
    ports: CatalogPorts,
    before: instance_types.StoredCatalog,
    names: Sequence[str],
    classes: Sequence[EC2NodeClass],
    now: datetime,
) -> dict[str, tuple[int, int]]:
    """The memory that nodes really have, read again when all classes are resolved."""
    if names:
        return before.header.memory
    return discovered_capacity.update_memory(
        before.header.memory, ports.cluster.nodes(), ports.cluster.nodeclaims(), classes, now=now
    )


def _read_region(ports: CatalogPorts, now: datetime, last: RegionFacts | None = None) -> RegionFacts | None:
    """The region as it is now; None while another invocation reads it for the first time."""
    moment = int(now.timestamp() * 1000)
    if last is None and not ports.state.begin_region_read(moment, since=moment - REGION_READ_MS):
        return None
    try:
        return ports.region_source.read(now, last)
    except ApiError:
        ports.state.end_region_read()
        raise


def _reconcile_nodeclasses(
    ports: CatalogPorts, names: Sequence[str], now: datetime, seconds_left: SecondsLeft
) -> tuple[NodeClassResult, ...]:
    """The result of every class; the named ones are resolved. A class that fails does not keep the others.

    Classes for which there is no time stay as they are, and are tried again.
    """
    claims = ports.cluster.nodeclaims()
    results = []
    for nodeclass in sorted(ports.cluster.nodeclasses(), key=lambda nodeclass: nodeclass.name):
        if nodeclass.read_error and nodeclass.metadata.deletion_timestamp is None:
            results.append(NodeClassResult(nodeclass, False, failure=nodeclass.read_error))
            continue
        # No status says how much of a reservation is left: such classes are resolved for every catalog.
        if names and nodeclass.name not in names and not nodeclass.capacity_reservation_selector_terms:
            results.append(NodeClassResult(nodeclass, is_condition_true(nodeclass.conditions, readiness.READY)))
            continue
        if _is_short(seconds_left):
            ready = is_condition_true(nodeclass.conditions, readiness.READY)
            results.append(NodeClassResult(nodeclass, ready, retry=True))
            continue
        try:
            results.append(reconcile_nodeclass(ports, nodeclass, claims, now=now))
        except ApiError as error:
            ready = is_condition_true(nodeclass.conditions, readiness.READY)
            results.append(NodeClassResult(nodeclass, ready, failure=f"{type(error).__name__}: {error}", retry=True))
    return tuple(results)


def _for_region(attempts: Mapping[str, int]) -> dict[str, int]:
    """Attempts of classes that wait for the facts of the region: the sweep does not ring for those that are Ready."""
    return {name: 0 if attempt == RUNG_ANYWAY else attempt for name, attempt in attempts.items()}


def _ring(ports: CatalogPorts, attempts: Mapping[str, int], *, changed: bool, again: Sequence[str]) -> None:
    """Ring provision and the NodePools' status when catalog or readiness ``changed``; ring catalog for ``again``."""
    name = ports.cluster.name
    if changed:
        ports.doorbells.ring("lifecycle", [Doorbell(name, "nodepools")])
        ports.doorbells.ring("provision", [Doorbell(name, "pods")])
    # A class that was resolved beside a named one begins retries of its own with the first attempt alone: two that fail
    # would begin each other's again and again.
    of_others = attempts.get("", 0 if not attempts or 0 in attempts.values() else RUNG_ANYWAY)
    by_attempt: dict[int, list[Doorbell]] = {}
    for key in again:
        attempt = attempts.get(key, of_others)
        by_attempt.setdefault(attempt, []).append(Doorbell(name, "nodeclasses", key, attempt + 1))
    for attempt, bells in sorted(by_attempt.items()):
        if attempt < len(RETRY_SECONDS):
            ports.doorbells.ring("catalog", bells, delay_seconds=RETRY_SECONDS[attempt])


def _result(key: str, before: str, outcomes: Sequence[NodeClassResult], notes: tuple[str, ...]) -> CatalogResult:
    classes = {nodeclass_result.node_class.name: nodeclass_result for nodeclass_result in outcomes}
    return CatalogResult(
        catalog_key=key,
        changed=key != before,
        ready_classes=tuple(name for name, nodeclass_result in classes.items() if nodeclass_result.ready),
        not_ready={
            name: readiness.not_ready_message(nodeclass_result.node_class)
            for name, nodeclass_result in classes.items()
            if not nodeclass_result.ready
        },
        failures={
            name: nodeclass_result.failure for name, nodeclass_result in classes.items() if nodeclass_result.failure
        },
        notes=notes,
    )
