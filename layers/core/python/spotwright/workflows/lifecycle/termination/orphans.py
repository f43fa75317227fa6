"""An instance that carries our tags and that nobody knows: verified by direct reads before it is ended."""

from datetime import datetime

from spotwright.lifecycle.orphans import ORPHAN_AGE
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows.ports.bundles import LifecyclePorts


def find_orphan(ports: LifecyclePorts, instance: str, now: datetime) -> Instance | None:
    """``instance`` if it runs, is ours, old enough and promised to nobody.

    The instance is read before rows and claims: whoever adopts it in between is seen.
    """
    found = ports.ec2.instance(instance)
    if found is None or found.state in ("shutting-down", "terminated"):
        return None
    ours = found.tags.get(labels.cluster_tag(ports.cluster.name)) == "owned" and labels.NODEPOOL in found.tags
    young = found.launch_time is None or now - found.launch_time < ORPHAN_AGE
    if not ours or young or _is_known(ports, instance, found.tags.get(labels.LAUNCH_TAG, "")):
        return None
    return found


def _is_known(ports: LifecyclePorts, instance: str, launch: str) -> bool:
    """True when an open launch or a NodeClaim still speaks of the instance."""
    if any(row.id == launch or instance in row.instances.values() for row in ports.state.launches()):
        return True
    return any(instance_id(claim.provider_id) == instance for claim in ports.cluster.nodeclaims())
