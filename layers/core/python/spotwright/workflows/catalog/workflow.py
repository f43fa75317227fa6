"""The status of the EC2NodeClasses, and the catalog of what can be bought for each.

Two doorbells: ``region`` reads what EC2 sells and what it costs (slow, every few hours); ``nodeclasses`` resolves
classes and makes the catalog from the region facts of last time (a few calls). Both end in the same place: statuses
written, one content-addressed catalog, and whoever depends on either rung. Running twice changes nothing more.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.instance_types import discovered_capacity
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.nodeclass import readiness
from spotwright.errors import ApiError, Denied, NotFound
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.meta import is_condition_true
from spotwright.telemetry import events
from spotwright.workflows.catalog import instance_profiles, instance_types, launch_templates
from spotwright.workflows.catalog.nodeclasses import NodeClassResult, reconcile_nodeclass
from spotwright.workflows.ports.bundles import CatalogPorts
from spotwright.workflows.ports.doorbells import Doorbell

# A class that could not be resolved, or waits for its claims to end, is looked at again after this long, so often;
# then the sweep, which rings every minute for such classes, has it.
RETRY_SECONDS: Final = 5
ATTEMPTS: Final = 8
# The first reading of a region is waited for so long; a run of ours cannot be at it for much longer.
REGION_READ_MS: Final = 30_000
READ_ELSEWHERE: Final = "another invocation is reading the region"
# How often a catalog is made anew because another run wrote one meanwhile.
_RACES: Final = 3


class CatalogResult(msgspec.Struct, frozen=True):
    """What a run did, for the log and the metrics. ``failures``: class → what went wrong at AWS."""

    catalog_key: str
    changed: bool
    ready_classes: tuple[str, ...] = ()
    not_ready: dict[str, str] = {}
    failures: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def refresh_region(ports: CatalogPorts, *, now: datetime) -> CatalogResult:
    """Read the region anew, settle every class against it, and drop templates that nothing uses.

    The first reading takes long, and a new deployment begins it before its cluster is open to us: it is kept whatever
    the cluster says, for the classes that come.
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
        catalog_result = _run(ports, (), region, now, 0)
    except (Denied, NotFound) as error:
        if key:
            raise
        return _postpone(ports, ports.state.catalog_key(), f"the cluster does not grant access yet: {error}")
    launch_templates.delete_unused(ports, now=now)
    return catalog_result


def _postpone(ports: CatalogPorts, key: str, why: str) -> CatalogResult:
    """Every class again soon; the region is there by then."""
    _ring(ports, 0, news=False, again=("",))
    return CatalogResult(key, changed=False, notes=(why,))


def resolve_nodeclasses(ports: CatalogPorts, names: Sequence[str], *, now: datetime, attempt: int = 0) -> CatalogResult:
    """Settle the named classes (none named: all) with the region facts of last time.

    ``attempt``: how often this was put off before (the doorbell's epoch).
    """
    catalog_result = _run(ports, names, None, now, attempt)
    if names or not instance_profiles.is_due(now):
        return catalog_result
    return msgspec.structs.replace(
        catalog_result, notes=(*catalog_result.notes, *instance_profiles.delete_unneeded(ports, now=now))
    )


def apply_zonal_shifts(ports: CatalogPorts, *, now: datetime) -> CatalogResult | None:
    """Make the catalog anew when a zonal shift began or ended; None when nothing of the kind happened."""
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
    return _run(ports, (), None, now, 0)


def _gather_inputs(ports: CatalogPorts, now: datetime) -> tuple[instance_types.CatalogInputs, tuple[str, ...]]:
    """What classes' types depend on now, and what could not be used, as sentences.

    When nobody says which zones are shifted, the last known ones stay so.
    """
    prices, complaint = ports.account_prices.read()
    notes = [complaint] if complaint else []
    shifted = frozenset[str]()
    if ports.zonal_shifts is not None:
        try:
            shifted = ports.zonal_shifts.shifted_zone_ids(now)
        except ApiError as error:
            shifted = frozenset(instance_types.read_catalog(ports.blobs, ports.state.catalog_key()).header.shifted)
            notes.append(f"zonal shifts could not be read, the last known ones stay: {error}")
    return instance_types.CatalogInputs(ports.overheads, shifted, prices), tuple(notes)


def _run(
    ports: CatalogPorts, names: Sequence[str], fresh: RegionFacts | None, now: datetime, attempt: int
) -> CatalogResult:
    """Statuses first: people wait for them. A catalog that appears meanwhile came from a run that may have seen newer
    classes or a newer region, so ours is made anew on top of it."""
    turned: set[str] = set()
    read: RegionFacts | None = None
    about, notes = _gather_inputs(ports, now)
    for _ in range(_RACES):
        before = instance_types.read_catalog(ports.blobs, ports.state.catalog_key())
        outcomes = _reconcile_nodeclasses(ports, names, now)
        turned.update(
            nodeclass_result.node_class.name for nodeclass_result in outcomes if nodeclass_result.readiness_changed
        )
        if any(nodeclass_result.may_drift for nodeclass_result in outcomes):
            ports.doorbells.ring("lifecycle", [Doorbell(ports.cluster.name, "drift")])
        try:
            region_facts = None if fresh else instance_types.region_of(ports.blobs, before)
            read = fresh or (None if region_facts else read or _read_region(ports, now))
        except ApiError:
            # The classes are settled; only what can be bought has to wait.
            _ring(ports, attempt, news=bool(turned), again=names or ("",))
            raise
        region = read or region_facts
        if region is None:
            _ring(ports, attempt, news=bool(turned), again=names or ("",))
            return _result(before.key, before.key, outcomes, (*notes, READ_ELSEWHERE))
        source = instance_types.store_region(ports.blobs, read) if read else before.header.source
        classes, complaints = [nodeclass_result.node_class for nodeclass_result in outcomes], region.notes
        about = msgspec.structs.replace(about, memory=_discovered_memory(ports, before, names, classes, now))
        key = instance_types.store_catalog(
            ports.blobs, before, source=source, region=region, classes=classes, inputs=about
        )
        if ports.state.catalog_key() == before.key:
            break
    if key != before.key or any(nodeclass.capacity_reservations for nodeclass in classes):
        # What is left of a reservation is as old as this: launches since then count against it.
        ports.state.set_catalog_key(key, int(now.timestamp() * 1000))
    if read:
        ports.state.end_region_read()
    again = [nodeclass_result.node_class.name for nodeclass_result in outcomes if nodeclass_result.retry]
    _ring(ports, attempt, news=key != before.key or bool(turned), again=again)
    return _result(key, before.key, outcomes, (*complaints, *notes))


def _discovered_memory(
    ports: CatalogPorts,
    before: instance_types.StoredCatalog,
    names: Sequence[str],
    classes: Sequence[EC2NodeClass],
    now: datetime,
) -> dict[str, tuple[int, int]]:
    """What nodes really have; looked at again when all classes are."""
    if names:
        return before.header.memory
    return discovered_capacity.update_memory(
        before.header.memory, ports.cluster.nodes(), ports.cluster.nodeclaims(), classes, now=now
    )


def _read_region(ports: CatalogPorts, now: datetime, last: RegionFacts | None = None) -> RegionFacts | None:
    """The region as it is now; None while another reads it for the first time too: both at once take twice as long."""
    moment = int(now.timestamp() * 1000)
    if last is None and not ports.state.begin_region_read(moment, since=moment - REGION_READ_MS):
        return None
    try:
        return ports.region_source.read(now, last)
    except ApiError:
        ports.state.end_region_read()
        raise


def _reconcile_nodeclasses(ports: CatalogPorts, names: Sequence[str], now: datetime) -> tuple[NodeClassResult, ...]:
    """Every class, those that were asked for with a new status; one class' trouble is not another's."""
    claims = ports.cluster.nodeclaims()
    found = []
    for nodeclass in sorted(ports.cluster.nodeclasses(), key=lambda one: one.name):
        if nodeclass.read_error and nodeclass.metadata.deletion_timestamp is None:
            found.append(NodeClassResult(nodeclass, False, failure=nodeclass.read_error))
            continue
        # How much of a reservation is left is in no status: it is asked for whenever a catalog may be made.
        if names and nodeclass.name not in names and not nodeclass.capacity_reservation_selector_terms:
            found.append(NodeClassResult(nodeclass, is_condition_true(nodeclass.conditions, readiness.READY)))
            continue
        try:
            found.append(reconcile_nodeclass(ports, nodeclass, claims, now=now))
        except ApiError as error:
            ready = is_condition_true(nodeclass.conditions, readiness.READY)
            found.append(NodeClassResult(nodeclass, ready, failure=f"{type(error).__name__}: {error}", retry=True))
    return tuple(found)


def _ring(ports: CatalogPorts, attempt: int, *, news: bool, again: Sequence[str]) -> None:
    """Planners and pools when there is something new to buy or a class' readiness moved; ourselves to try again."""
    name = ports.cluster.name
    if news:
        ports.doorbells.ring("lifecycle", [Doorbell(name, "nodepools")])
        ports.doorbells.ring("provision", [Doorbell(name, "pods")])
    if again and attempt < ATTEMPTS:
        bells = [Doorbell(name, "nodeclasses", key, attempt + 1) for key in again]
        ports.doorbells.ring("catalog", bells, delay_seconds=RETRY_SECONDS)


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
