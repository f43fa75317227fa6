"""Orphans: instances with the cluster's tags and no claim or launch, checked by direct reads before termination."""

from datetime import datetime

from spotwright.lifecycle.orphans import ORPHAN_AGE
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows.lifecycle.actions import claims_of_instance, ring_lifecycle
from spotwright.workflows.lifecycle.other_provisioners import may_be_terminated
from spotwright.workflows.ports.bundles import LifecyclePorts


def find_orphan(ports: LifecyclePorts, instance: str, now: datetime, *, drained: bool = False) -> Instance | None:
    """The instance if it runs, has the cluster's tags, is old enough and is not in use.

    It is read before rows and claims, so that its assignment in between is noticed. One whose Node is being drained is
    terminated after it (``drained``). A doorbell may hold anything: what is no instance id is none of EC2's instances.
    """
    read = ports.ec2.instance(instance) if instance.startswith("i-") else None
    if read is None or read.state in ("shutting-down", "terminated"):
        return None
    is_new = read.launch_time is None or now - read.launch_time < ORPHAN_AGE
    if not is_owned(ports, read) or is_new or _is_in_use(ports, read):
        return None
    if not may_be_terminated(ports, read, now=now):
        return None
    return read if drained or not _is_draining(ports, read) else None


def is_owned(ports: LifecyclePorts, instance: Instance) -> bool:
    """Whether the instance was launched for a NodePool of the cluster."""
    return instance.tags.get(labels.cluster_tag(ports.cluster.name)) == "owned" and labels.NODEPOOL in instance.tags


def _is_draining(ports: LifecyclePorts, instance: Instance) -> bool:
    """Whether the instance's Node is being deleted and waits for Spotwright; then the node is rung for.

    It may have another name than the instance: before anything is terminated, all are listed.
    """
    named = ports.cluster.node(instance.private_dns_name) if instance.private_dns_name else None
    nodes = (named,) if named is not None else ports.cluster.nodes()
    draining = [
        node.name
        for node in nodes
        if instance_id(node.provider_id) == instance.id
        and node.metadata.deletion_timestamp is not None
        and labels.FINALIZER in node.metadata.finalizers
    ]
    ring_lifecycle(ports, "node", draining)
    return bool(draining)


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
