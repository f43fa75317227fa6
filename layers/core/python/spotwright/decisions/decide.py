"""The plan for a snapshot and a catalog: the one function that a replay repeats."""

from spotwright.aws.instance_types import unavailable_offerings as offering_health
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import planner
from spotwright.scheduling.plan import Plan


def decide(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The plan for a snapshot: a pure function of it and its catalog."""
    unavailable_offerings = offering_health.from_snapshot(snapshot.unavailable_offerings)
    return planner.plan(
        snapshot, offering_health.apply_to_catalog(catalog, snapshot.nodeclasses, unavailable_offerings)
    )
