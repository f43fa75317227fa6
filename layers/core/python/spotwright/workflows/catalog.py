"""The status of the EC2NodeClasses, and the catalog of what can be bought for each.

Two doorbells: ``region`` reads what EC2 sells and what it costs (slow, every few hours); ``nodeclasses`` resolves
classes and makes the catalog from the region facts of last time (a few calls). Both end in the same place: statuses
written, one content-addressed catalog, and whoever depends on either rung. Running twice changes nothing more.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws import catalog_wire, families, nodeclass, offerings
from spotwright.aws.offerings import Region
from spotwright.aws.refusal import Refusal
from spotwright.failures import Failure, NotFound
from spotwright.model.instancetype import Catalog, InstanceType
from spotwright.model.nodeclass import EC2NodeClass
from spotwright.model.objects import is_true
from spotwright.model.quantity import QuantityError
from spotwright.workflows.catalog_classes import Outcome, settle
from spotwright.workflows.catalog_ports import Cataloguing
from spotwright.workflows.ports import Doorbell

# A class that could not be resolved, or waits for its claims to end, is looked at again after this long, so often;
# then the sweep, which rings every minute for such classes, has it.
AGAIN_SECONDS: Final = 5
ATTEMPTS: Final = 8
# Templates are made again when a launch needs them, so age is enough of a reason: every new image leaves old ones.
TEMPLATE_AGE: Final = timedelta(days=7)
# How often a catalog is made anew because another run wrote one meanwhile.
_RACES: Final = 3


class Catalogued(msgspec.Struct, frozen=True):
    """What a run did, for the log and the metrics. ``failures``: class → what went wrong at AWS."""

    key: str
    changed: bool
    types: dict[str, int] = {}
    ready: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    failures: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def refresh(ports: Cataloguing, *, now: datetime) -> Catalogued:
    """Read the region anew, settle every class against it, and drop templates that grew old."""
    made = _run(ports, (), ports.market.read(now), now, 0)
    for template in ports.templates.launch_templates():
        if now - template.created > TEMPLATE_AGE:
            ports.templates.delete_launch_template(template.id)
    return made


def nodeclasses(ports: Cataloguing, names: Sequence[str], *, now: datetime, attempt: int = 0) -> Catalogued:
    """Settle the named classes (none named: all) with the region facts of last time.

    ``attempt``: how often this was put off before (the doorbell's epoch).
    """
    return _run(ports, names, None, now, attempt)


def _run(ports: Cataloguing, names: Sequence[str], fresh: Region | None, now: datetime, attempt: int) -> Catalogued:
    """Statuses first: people wait for them. A catalog that appears meanwhile came from a run that may have seen newer
    classes or a newer region, so ours is made anew on top of it."""
    turned: dict[str, bool] = {}
    for _ in range(_RACES):
        before = ports.state.catalog_key()
        outcomes = _settled(ports, names, now)
        turned |= {one.node_class.name: True for one in outcomes if one.turned}
        try:
            source, region = _region(ports, before, now) if fresh is None else (_kept(ports, fresh), fresh)
        except Failure:
            # The classes are settled; only what can be bought has to wait.
            _ring(ports, attempt, news=bool(turned), again=names or ("",))
            raise
        made = _catalog(region, source, outcomes, ports)
        key = ports.blobs.put("catalogs", catalog_wire.encode(made))
        if ports.state.catalog_key() == before:
            break
    if key != before:
        ports.state.set_catalog_key(key, int(now.timestamp() * 1000))
    again = [one.node_class.name for one in outcomes if one.again]
    _ring(ports, attempt, news=key != before or bool(turned), again=again)
    return _told(key, before, made, outcomes, region)


def _kept(ports: Cataloguing, region: Region) -> str:
    return ports.blobs.put("catalogs", msgspec.json.encode(region))


def _settled(ports: Cataloguing, names: Sequence[str], now: datetime) -> tuple[Outcome, ...]:
    """Every class, those that were asked for with a new status; one class' trouble is not another's."""
    claims = ports.cluster.nodeclaims()
    found = []
    for one in sorted(ports.cluster.nodeclasses(), key=lambda one: one.name):
        if names and one.name not in names:
            found.append(Outcome(one, is_true(one.conditions, nodeclass.READY)))
            continue
        try:
            found.append(settle(ports, one, claims, now=now))
        except Failure as error:
            ready = is_true(one.conditions, nodeclass.READY)
            found.append(Outcome(one, ready, failure=f"{type(error).__name__}: {error}", again=True))
    return tuple(found)


def _region(ports: Cataloguing, catalog_key: str, now: datetime) -> tuple[str, Region]:
    """(key, facts) of the region behind the current catalog; read from EC2 when there are none of this schema."""
    if catalog_key:
        try:
            source = catalog_wire.source(ports.blobs.get(catalog_key))
            region = msgspec.json.decode(ports.blobs.get(source), type=Region) if source else None
            if region is not None and region.schema == offerings.REGION_SCHEMA:
                return source, region
        except (NotFound, msgspec.DecodeError):
            pass
    fresh = ports.market.read(now)
    return _kept(ports, fresh), fresh


def _catalog(region: Region, source: str, outcomes: Iterable[Outcome], ports: Cataloguing) -> Catalog:
    """The types of every class that has subnets; a class on its way out or without any has none."""
    by_class = {
        one.node_class.name: _types(region, one.node_class, ports)
        for one in outcomes
        if one.node_class.subnets and one.node_class.metadata.deleting is None
    }
    return Catalog(by_class, source)


def _types(region: Region, node_class: EC2NodeClass, ports: Cataloguing) -> tuple[InstanceType, ...]:
    family = families.of(node_class)
    if isinstance(family, Refusal):
        return ()
    try:
        return offerings.instance_types(region, offerings.buyer(node_class, family), ports.overheads)
    except QuantityError:
        # A volume size that cannot be read: the class says so in its conditions.
        return ()


def _ring(ports: Cataloguing, attempt: int, *, news: bool, again: Sequence[str]) -> None:
    """Planners and pools when there is something new to buy or a class' readiness moved; ourselves to try again."""
    name = ports.cluster.name
    if news:
        ports.bells.ring("lifecycle", [Doorbell(name, "nodepools")])
        ports.bells.ring("provision", [Doorbell(name, "pods")])
    if again and attempt < ATTEMPTS:
        bells = [Doorbell(name, "nodeclasses", key, attempt + 1) for key in again]
        ports.bells.ring("catalog", bells, delay_seconds=AGAIN_SECONDS)


def _told(key: str, before: str, made: Catalog, outcomes: Sequence[Outcome], region: Region) -> Catalogued:
    classes = {one.node_class.name: one for one in outcomes}
    return Catalogued(
        key=key,
        changed=key != before,
        types={name: len(types) for name, types in made.by_class.items()},
        ready=tuple(name for name, one in classes.items() if one.ready),
        refused={name: nodeclass.complaint(one.node_class) for name, one in classes.items() if not one.ready},
        failures={name: one.failure for name, one in classes.items() if one.failure},
        notes=region.notes,
    )
