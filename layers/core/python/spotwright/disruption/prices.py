"""What nodes may be bought as now, and for how much: the catalog as the planner sees it."""

from spotwright.aws.instance_types import interruption_history, unavailable_offerings
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import NewNode


class Prices:
    """The catalog with overlays; unavailable offerings say so, and those that were interrupted."""

    def __init__(self, snapshot: Snapshot, catalog: Catalog) -> None:
        unavailable = unavailable_offerings.from_snapshot(snapshot.unavailable_offerings)
        offered = unavailable_offerings.apply_to_catalog(catalog, snapshot.nodeclasses, unavailable)
        offered = interruption_history.apply_to_catalog(offered, snapshot.offering_histories)
        self.catalog = apply_overlays(offered, snapshot.nodeoverlays, snapshot.nodepools).catalog

    def types(self, node: NewNode) -> tuple[InstanceType, ...]:
        return self.catalog.instance_types(node.nodeclass, node.nodepool)
