"""What a stack that is deleted would leave behind in a cluster: said once, and let go the second time.

CloudFormation shows what a custom resource says of a Delete only where it failed. So the first Delete fails while there
are nodes that nobody would look after any more, before anything else of the stack is deleted; the next goes through.
"""

from collections.abc import Sequence
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
# So many claims are named.
_NAMED: Final = 3
_CLASS_GROUP: Final = "karpenter.k8s.aws"


def explain_nodes_left(
    access: AdminAccessPort,
    cluster: str,
    cell: str,
    forwarder: Document,
    deadline: DeadlinePort,
    *,
    request: str,
    now: datetime,
) -> str:
    """Why the stack should not be deleted yet, "" = it may be: no NodeClaim is there, or somebody looks after them.

    That is so where the forwarder has gone (``uninstall --hand-back``) or is another cell's, and where Karpenter runs.
    Said within a day, it is not said again. ``request``: the id of CloudFormation's request, which may be delivered
    twice, and is answered in the same way then. ``forwarder``: the Deployment that was installed.
    Raises ApiError where the cluster does not answer until the deadline. The temporary access is closed in any case.
    """
    try:
        objects = retry(access.open, deadline)
        live = retry(partial(objects.read, forwarder), deadline)
        if live is None or cell_of(live) != cell or _was_said(live, request, now):
            return ""
        claims = retry(partial(_claims, objects), deadline)
        if not claims or retry(partial(read_workloads, objects), deadline).karpenter:
            return ""
        said = {SAID: f"{now.isoformat()} {request}"}
        retry(partial(objects.merge, forwarder, {"metadata": {"annotations": said}}), deadline)
        return _sentence(cluster, cell, claims)
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


def _sentence(cluster: str, cell: str, claims: Sequence[str]) -> str:
    named = ", ".join((*claims[:_NAMED], *(["…"] if len(claims) > _NAMED else [])))
    stack = "" if cell == "main" else f" --stack Spotwright-{cell}"
    uninstall = f"spotwright uninstall --drain --cluster {cluster}{stack}"
    return (
        f"cluster {cluster} has {counted(len(claims), 'NodeClaim')} ({named}), and once this is deleted nothing drains,"
        f" replaces or terminates their nodes, which go on to cost. To end them: {uninstall}; to leave them to"
        " Karpenter: the same with --hand-back instead of --drain; then delete again. A second deletion within a day"
        " leaves them as they are"
    )


def _close(access: AdminAccessPort) -> None:
    """The deletion of what was installed, which comes next, closes the access as well."""
    try:
        access.close()
    except ApiError:
        return
