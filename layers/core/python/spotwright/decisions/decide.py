"""The plan for a snapshot and a catalog: the one function that a replay repeats."""

from spotwright.aws.instance_types import unavailable_offerings
from spotwright.decisions import ceilings
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import planner
from spotwright.scheduling.plan import Plan


def decide(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The plan for a snapshot: a pure function of it and its catalog."""
    unavailable = unavailable_offerings.from_snapshot(snapshot.unavailable_offerings)
    plan = planner.plan(snapshot, unavailable_offerings.apply_to_catalog(catalog, snapshot.nodeclasses, unavailable))
    return ceilings.keep_within(plan, snapshot)
