"""Manifests without DaemonSets: nodes of a cluster have some, which take room of every node."""

from spotwright.model.snapshot import Snapshot


def assumed_daemonsets(snapshot: Snapshot) -> tuple[str, ...]:
    """A sentence where nodes might be made and no DaemonSet is counted on them."""
    if snapshot.daemonsets or not snapshot.pods or not snapshot.nodepools:
        return ()
    return ("DaemonSets: there are none in these files; assumed that nodes run none, not even aws-node and kube-proxy",)
