"""The plan for a snapshot and a catalog: the one function that a replay repeats."""

from spotwright.aws.instance_types import interruption_history, unavailable_offerings
from spotwright.decisions import ceilings
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import planner
from spotwright.scheduling.plan import Plan


def decide(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The plan for a snapshot: a pure function of it and its catalog."""
    unavailable = unavailable_offerings.from_snapshot(snapshot.unavailable_offerings)
    offered = unavailable_offerings.apply_to_catalog(catalog, snapshot.nodeclasses, unavailable)
    plan = planner.plan(snapshot, interruption_history.apply_to_catalog(offered, snapshot.offering_histories))
    return ceilings.keep_within(plan, snapshot)
