"""Orphans: instances with the cluster's tags and no claim or launch, checked by direct reads before termination."""

from datetime import datetime

from spotwright.lifecycle.orphans import ORPHAN_AGE
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows.lifecycle.actions import claims_of_instance
from spotwright.workflows.ports.bundles import LifecyclePorts


def find_orphan(ports: LifecyclePorts, instance: str, now: datetime) -> Instance | None:
    """The instance if it runs, has the cluster's tags, is old enough and is not in use.

    It is read before rows and claims, so that its assignment in between is noticed.
    """
    read = ports.ec2.instance(instance)
    if read is None or read.state in ("shutting-down", "terminated"):
        return None
    is_owned = read.tags.get(labels.cluster_tag(ports.cluster.name)) == "owned" and labels.NODEPOOL in read.tags
    is_new = read.launch_time is None or now - read.launch_time < ORPHAN_AGE
    if not is_owned or is_new or _is_in_use(ports, read):
        return None
    return read


def _is_in_use(ports: LifecyclePorts, instance: Instance) -> bool:
    """Whether an open launch or a NodeClaim has the instance.

    A claim without the label of its instance may have it all the same: before anything is terminated, all are listed.
    """
    launch = instance.tags.get(labels.LAUNCH_TAG, "")
    if any(row.id == launch or instance.id in row.instances.values() for row in ports.state.launches()):
        return True
    if claims_of_instance(ports, instance.id):
        return True
    return any(instance_id(claim.provider_id) == instance.id for claim in ports.cluster.nodeclaims())
