"""What is left behind in a cluster whose stack is deleted, or which leaves it: said once, and let go the second time.

CloudFormation shows what a custom resource says only where it failed. So the first Delete, or the first Update without
the cluster, fails while there are nodes that nobody would look after any more, before anything else is deleted or
changed; the next goes through.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from spotwright.errors import ApiError, NotFound
from spotwright.model.plurals import counted
from spotwright.workflows.install.patience import retry
from spotwright.workflows.install.preflight.workloads import cell_of, read_workloads
from spotwright.workflows.ports.installation import AdminAccessPort, DeadlinePort, Document, ObjectPort

# On the forwarder's Deployment: when it was last said what would be left, as ISO 8601, and the id of that request.
SAID: Final = "spotwright.dev/nodes-left-said"
# What was said longer ago is said again.
SAID_COUNTS: Final = timedelta(days=1)
# So many claims, and clusters, are named.
_NAMED: Final = 3
_CLASS_GROUP: Final = "karpenter.k8s.aws"


def find_nodes_left(
    access: AdminAccessPort,
    cell: str,
    forwarder: Document,
    deadline: DeadlinePort,
    *,
    request: str,
    now: datetime,
) -> Sequence[str]:
    """NodeClaims that would be left to nobody and of which it was not said yet, by name; empty = nothing is to be said.

    That is so where the forwarder has gone (``uninstall --hand-back``) or is another cell's, and where Karpenter runs.
    Said within a day, it is not said again. ``request``: the id of CloudFormation's request, which may be delivered
    twice, and is answered in the same way then. ``forwarder``: the Deployment that was installed.
    Raises ApiError where the cluster does not answer until the deadline. The temporary access is closed in any case.
    """
    try:
        objects = retry(access.open, deadline)
        live = retry(partial(objects.read, forwarder), deadline)
        if live is None or cell_of(live) != cell or _was_said(live, request, now):
            return ()
        claims = retry(partial(_claims, objects), deadline)
        if not claims or retry(partial(read_workloads, objects), deadline).karpenter:
            return ()
        said = {SAID: f"{now.isoformat()} {request}"}
        retry(partial(objects.merge, forwarder, {"metadata": {"annotations": said}}), deadline)
        return claims
    finally:
        _close(access)


def _was_said(live: Document, request: str, now: datetime) -> bool:
    """Whether it was said within a day, of another request."""
    time, _, said_of = (live["metadata"].get("annotations") or {}).get(SAID, "").partition(" ")
    try:
        return said_of != request and abs(now - datetime.fromisoformat(time)) < SAID_COUNTS
    except (TypeError, ValueError):
        # Nothing was said, or somebody wrote something else there.
        return False


def _claims(objects: ObjectPort) -> list[str]:
    """Names of the NodeClaims of EC2NodeClasses; those of EKS Auto Mode have classes of their own."""
    try:
        claims = objects.list("karpenter.sh/v1", "NodeClaim")
    except NotFound:
        # The API server does not know the kind.
        return []
    return sorted(claim["metadata"]["name"] for claim in claims if _class_group(claim) == _CLASS_GROUP)


def _class_group(claim: Document) -> object:
    """None of a NodeClaim that names none: it may have been stored under another schema."""
    return ((claim.get("spec") or {}).get("nodeClassRef") or {}).get("group")


def explain_deletion(cell: str, cluster: str, claims: Sequence[str]) -> str:
    """Why the stack is not deleted yet, and what to do."""
    uninstall = _uninstall(cell, cluster)
    return (
        f"{_left(cluster, claims)}, and once this is deleted nothing drains, replaces or terminates their nodes, which"
        f" go on to cost. To end them: {uninstall}; to leave them to Karpenter: the same with --hand-back instead of"
        " --drain; then delete again. A second deletion within a day leaves them as they are"
    )


def explain_removal(cell: str, left: Mapping[str, Sequence[str]]) -> str:
    """Why clusters are not taken out of the stack yet, and what to do. ``left``: cluster to its claims, not empty."""
    if len(left) == 1:
        (cluster,) = left
        clusters, they = _left(cluster, left[cluster]), "it has"
    else:
        counts = [f"cluster {name} has {counted(len(claims), 'NodeClaim')}" for name, claims in left.items()]
        cluster, clusters, they = "NAME", _first(counts), "they have"
    uninstall = _uninstall(cell, cluster)
    return (
        f"{clusters}, and once {they} left cdk.json nothing drains, replaces or terminates their nodes, which go on to"
        f" cost. To end them: {uninstall}; to leave them to Karpenter: the same with --hand-back instead of --drain;"
        " then deploy again. A second deployment within a day leaves them as they are"
    )


def _left(cluster: str, claims: Sequence[str]) -> str:
    return f"cluster {cluster} has {counted(len(claims), 'NodeClaim')} ({_first(claims)})"


def _first(names: Sequence[str]) -> str:
    return ", ".join((*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])))


def _uninstall(cell: str, cluster: str) -> str:
    stack = "" if cell == "main" else f" --stack Spotwright-{cell}"
    return f"spotwright uninstall --drain --cluster {cluster}{stack}"


def _close(access: AdminAccessPort) -> None:
    """The deletion of what was installed, which comes next, closes the access as well."""
    try:
        access.close()
    except ApiError:
        return
