"""What Spotwright installs in a cluster, and what of it is removed with the stack.

CRDs are applied and never removed, nor is any NodePool, class or claim: nodes outlive the stack. Everything else is
annotated with every installer (a custom resource of a stack) and removed with the last one: the Delete that
CloudFormation sends for a renamed or rolled back resource takes nothing from another stack.
"""

from collections.abc import Sequence, Set
from functools import partial

import msgspec

from spotwright.errors import ApiError, InvalidRequest, NotFound, Unavailable
from spotwright.settings import PROVISIONER
from spotwright.workflows.install.forwarder_pods import await_credentials
from spotwright.workflows.install.node_access import NodeRole, ReleasedEntries, admit_nodes, release_entries
from spotwright.workflows.install.patience import RETRY_SECONDS, retry
from spotwright.workflows.install.preflight.checks import running_karpenter, served_by_another_cell
from spotwright.workflows.install.preflight.workloads import cell_of, read_workloads
from spotwright.workflows.ports.installation import AdminAccessPort, DeadlinePort, Document, NodeAccessPort, ObjectPort

INSTALLERS = "spotwright.dev/installers"
# Between looks at a CRD that the API server establishes.
ESTABLISH_SECONDS = 0.3


class Installation(msgspec.Struct, frozen=True):
    """What is applied to a cluster, in this order. ``installer``: the custom resource, as a short hash.

    ``skipped_checks``: checks of the preflight that do not apply. ``node_roles``: whose nodes are let in; None = access
    entries of nodes are left to the stack, which has them.
    """

    definitions: Sequence[Document]
    parts: Sequence[Document]
    installer: str
    node_roles: tuple[NodeRole, ...] | None = None
    skipped_checks: tuple[str, ...] = ()


class RemovalResult(msgspec.Struct, frozen=True):
    """Objects deleted, objects that another installer keeps, and why the removal was abandoned, "" = it was not.

    ``entries``: access entries of node roles that were made by this installer.
    """

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gave_up: str = ""
    entries: ReleasedEntries = ReleasedEntries()


def install(
    access: AdminAccessPort, nodes: NodeAccessPort, installation: Installation, deadline: DeadlinePort
) -> tuple[str, ...]:
    """Let the nodes in and apply everything; returns the names of the objects.

    May be repeated at any time, also after a run that was cut off. The temporary access is closed in any case.
    Raises InvalidRequest, before it changes anything, while Karpenter runs in the cluster or another cell serves it.
    """
    roles, installer = installation.node_roles, installation.installer
    try:
        objects = retry(access.open, deadline)
        if PROVISIONER not in installation.skipped_checks:
            _refuse_beside_karpenter(objects, deadline)
        _refuse_beside_another_cell(objects, installation.parts, nodes.cluster, deadline)
        if roles is not None:
            admit_nodes(nodes, roles, installer, deadline)
        for definition in installation.definitions:
            retry(partial(_apply_definition, objects, definition), deadline)
        for definition in installation.definitions:
            _await_established(objects, definition, deadline)
        for part in installation.parts:
            retry(partial(_apply_part, objects, part, installer), deadline)
        await_credentials(objects, nodes.cluster, deadline)
        if roles is not None:
            _release(nodes, installer, frozenset(role.arn for role in roles), objects, deadline)
    finally:
        access.close()
    return tuple(name_of(document) for document in [*installation.definitions, *installation.parts])


def remove(
    access: AdminAccessPort, nodes: NodeAccessPort, installation: Installation, deadline: DeadlinePort
) -> RemovalResult:
    """Delete the parts that only this installer installed; CRDs and everything else stay.

    So do the access entries of node roles while NodeClaims exist, or while it is not known whether they do.

    A cluster that does not exist needs nothing; one that does not answer or grant access is abandoned at the
    deadline, so that a stack can always be deleted.
    """
    deleted: list[str] = []
    kept: list[str] = []
    gave_up = ""
    entries = ReleasedEntries()
    try:
        objects = retry(access.open, deadline)
        for part in reversed(installation.parts):
            is_deleted = retry(partial(_release_part, objects, part, installation.installer), deadline)
            (deleted if is_deleted else kept).append(name_of(part))
        entries = _release(nodes, installation.installer, frozenset(), objects, deadline)
    except NotFound:
        gave_up = "the cluster does not exist"
    except ApiError as failure:
        gave_up = str(failure)
    close_failure = _close(access)
    return RemovalResult(tuple(deleted), tuple(kept), gave_up or close_failure, entries)


def with_served_versions(live: Document | None, definition: Document) -> Document:
    """``definition``, with the versions that the cluster serves besides, which are no longer stored.

    Karpenter's charts before 1.1 also serve v1beta1, and the API server refuses to drop a version in which objects
    may be stored.
    """
    spec = definition["spec"]
    own_names = {version["name"] for version in spec["versions"]}
    other_versions = [
        version for version in (live or {}).get("spec", {}).get("versions", ()) if version["name"] not in own_names
    ]
    kept_versions = [{**version, "storage": False} for version in other_versions]
    return {**definition, "spec": {**spec, "versions": [*spec["versions"], *kept_versions]}}


def name_of(document: Document) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def _apply_definition(objects: ObjectPort, definition: Document) -> None:
    objects.apply(with_served_versions(objects.read(definition), definition))


def _apply_part(objects: ObjectPort, part: Document, installer: str) -> None:
    """Apply the part with this installer beside the others that it is annotated with."""
    metadata = part["metadata"]
    marks = _mark(_installers(objects.read(part)) | {installer})
    annotations = {**metadata.get("annotations", {}), **marks}
    objects.apply({**part, "metadata": {**metadata, "annotations": annotations}})


def _release_part(objects: ObjectPort, part: Document, installer: str) -> bool:
    """Remove this installer, and the object with its last one. True: deleted; False: another installer keeps it."""
    live = objects.read(part)
    if live is None:
        return True
    marks = _installers(live)
    if marks == {installer}:
        uid = live["metadata"]["uid"]
        objects.delete({**part, "metadata": {**part["metadata"], "uid": uid}})
        return True
    if installer in marks:
        objects.merge(part, {"metadata": {"annotations": _mark(marks - {installer})}})
    return False


def _installers(live: Document | None) -> frozenset[str]:
    marks = (live or {}).get("metadata", {}).get("annotations", {}).get(INSTALLERS, "")
    return frozenset(mark for mark in marks.split(",") if mark)


def _mark(installers: Set[str]) -> dict[str, str]:
    return {INSTALLERS: ",".join(sorted(installers))}


def _await_established(objects: ObjectPort, definition: Document, deadline: DeadlinePort) -> None:
    """Wait until the API server serves the kind. Raises InvalidRequest when another CRD has its names."""
    while True:
        live = retry(partial(objects.read, definition), deadline) or {}
        # Null until the API server has processed a new CRD.
        conditions = {condition["type"]: condition for condition in live.get("status", {}).get("conditions") or ()}
        if conditions.get("Established", {}).get("status") == "True":
            return
        names = conditions.get("NamesAccepted", {})
        if names.get("status") == "False":
            raise InvalidRequest(f"{name_of(definition)}: {names.get('message')}", code="NamesNotAccepted")
        if deadline.remaining_seconds() <= RETRY_SECONDS:
            raise Unavailable(f"{name_of(definition)} is not established yet")
        deadline.pause(ESTABLISH_SECONDS)


def _refuse_beside_karpenter(objects: ObjectPort, deadline: DeadlinePort) -> None:
    karpenter = retry(partial(read_workloads, objects), deadline).karpenter
    if karpenter:
        raise InvalidRequest(running_karpenter(karpenter))


def _refuse_beside_another_cell(
    objects: ObjectPort, parts: Sequence[Document], cluster: str, deadline: DeadlinePort
) -> None:
    """Another cell's forwarder rings for that cell's functions, which would launch for the same pods."""
    for part in parts:
        if part["kind"] == "Deployment":
            own, live = cell_of(part), cell_of(retry(partial(objects.read, part), deadline))
            if own and live and own != live:
                raise InvalidRequest(served_by_another_cell(cluster, live))


def _release(
    nodes: NodeAccessPort, installer: str, wanted: frozenset[str], objects: ObjectPort, deadline: DeadlinePort
) -> ReleasedEntries:
    may_delete = partial(_has_no_nodes, objects, deadline)
    return retry(partial(release_entries, nodes, installer, wanted=wanted, may_delete=may_delete), deadline)


def _has_no_nodes(objects: ObjectPort, deadline: DeadlinePort) -> bool:
    """Whether no NodeClaim exists, of whichever installation."""
    try:
        return not retry(partial(objects.list, "karpenter.sh/v1", "NodeClaim"), deadline)
    except NotFound:
        # The API server does not know the kind.
        return True


def _close(access: AdminAccessPort) -> str:
    """Close the temporary access; returns why that failed, "" = it did not."""
    try:
        access.close()
    except ApiError as failure:
        return f"the temporary access entry could not be deleted: {failure}"
    return ""
