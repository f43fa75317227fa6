"""The ports of one invocation: its steps share reads, and ring and tell together when they are done."""

from dataclasses import dataclass

from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.snapshot import Settings
from spotwright.workflows.lifecycle.gathered_doorbells import GatheredDoorbells
from spotwright.workflows.lifecycle.gathered_events import GatheredEvents
from spotwright.workflows.lifecycle.shared_reads import reading_once
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.cluster_state import ClusterStatePort
from spotwright.workflows.ports.ec2 import Ec2Port
from spotwright.workflows.ports.provisioners import OtherProvisionerPort
from spotwright.workflows.ports.state import BlobPort, InstanceCatalogPort, StatePort


@dataclass(frozen=True)
class GatheringPorts:
    """See LifecyclePorts. ``ports``, but for doorbells and Events, which are gathered, and for what is read once."""

    ports: LifecyclePorts
    doorbells: GatheredDoorbells
    events: GatheredEvents
    state: StatePort

    @property
    def cluster(self) -> ClusterPort:
        return self.ports.cluster

    @property
    def cluster_state(self) -> ClusterStatePort:
        return self.ports.cluster_state

    @property
    def ec2(self) -> Ec2Port:
        return self.ports.ec2

    @property
    def other_provisioners(self) -> OtherProvisionerPort:
        return self.ports.other_provisioners

    @property
    def blobs(self) -> BlobPort:
        return self.ports.blobs

    @property
    def catalogs(self) -> InstanceCatalogPort:
        return self.ports.catalogs

    @property
    def settings(self) -> Settings:
        return self.ports.settings

    @property
    def facts(self) -> ClusterFacts:
        return self.ports.facts


def gathering(ports: LifecyclePorts, seconds_left: SecondsLeft = None) -> GatheringPorts:
    """For one invocation."""
    doorbells, events = GatheredDoorbells(ports.doorbells), GatheredEvents(ports.events, seconds_left)
    return GatheringPorts(ports, doorbells, events, reading_once(ports.state))
