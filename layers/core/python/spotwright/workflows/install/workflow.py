"""What Spotwright puts into a cluster, and what of it goes again with the stack.

Definitions are applied and never removed, nor is any NodePool, class or claim: nodes outlive the stack. Rights and
forwarder carry the marks of all installers that put them there (one custom resource of one stack each), and go with
the last one: the Delete that CloudFormation sends to a renamed or rolled back resource takes nothing from another.
"""

from collections.abc import Callable, Sequence, Set
from functools import partial

import msgspec

from spotwright.errors import ApiError, Conflict, Denied, InvalidRequest, NotFound, Throttled, Unavailable
from spotwright.workflows.ports.installation import AdminAccessPort, DeadlinePort, Document, ObjectPort

INSTALLERS = "spotwright.dev/installers"
# Between two questions to an API server that does not know us yet, and to one that is just making a type.
RETRY_SECONDS = 2.0
ESTABLISH_SECONDS = 0.3


class Installation(msgspec.Struct, frozen=True):
    """What goes into a cluster, in the order in which it is applied. ``installer``: who asks, as a short hash."""

    definitions: Sequence[Document]
    parts: Sequence[Document]
    installer: str


class RemovalResult(msgspec.Struct, frozen=True):
    """What became of a removal: objects deleted, objects that another installer keeps, and why we gave up, if so."""

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gave_up: str = ""


def install(access: AdminAccessPort, installation: Installation, deadline: DeadlinePort) -> tuple[str, ...]:
    """Apply everything; returns the names of what was applied. Our own access is gone afterwards, come what may."""
    try:
        objects = access.open()
        for definition in installation.definitions:
            _retry(partial(_apply_definition, objects, definition), deadline)
        for definition in installation.definitions:
            _await_established(objects, definition, deadline)
        for part in installation.parts:
            _retry(partial(_apply_part, objects, part, installation.installer), deadline)
    finally:
        access.close()
    return tuple(name_of(document) for document in [*installation.definitions, *installation.parts])


def remove(access: AdminAccessPort, installation: Installation, deadline: DeadlinePort) -> RemovalResult:
    """Delete the parts that only this installer put there; definitions and everything else stay.

    A cluster that is gone needs nothing; one that does not answer or let us in is given up after the patience,
    so that a stack can always be deleted.
    """
    deleted: list[str] = []
    kept: list[str] = []
    gave_up = ""
    try:
        objects = access.open()
        for part in reversed(installation.parts):
            gone = _retry(partial(_release_part, objects, part, installation.installer), deadline)
            (deleted if gone else kept).append(name_of(part))
    except NotFound:
        gave_up = "the cluster does not exist"
    except ApiError as failure:
        gave_up = str(failure)
    not_closed = _close(access)
    return RemovalResult(tuple(deleted), tuple(kept), gave_up or not_closed)


def with_served_versions(live: Document | None, definition: Document) -> Document:
    """``definition``, with the versions that another installation serves kept as they are.

    Karpenter's charts before 1.1 also serve v1beta1, and the API server refuses to drop a version in which objects
    may be stored. Only ours is stored from now on.
    """
    spec = definition["spec"]
    ours = {version["name"] for version in spec["versions"]}
    others = [version for version in (live or {}).get("spec", {}).get("versions", ()) if version["name"] not in ours]
    kept = [{**version, "storage": False} for version in others]
    return {**definition, "spec": {**spec, "versions": [*spec["versions"], *kept]}}


def name_of(document: Document) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def _apply_definition(objects: ObjectPort, definition: Document) -> None:
    objects.apply(with_served_versions(objects.read(definition), definition))


def _apply_part(objects: ObjectPort, part: Document, installer: str) -> None:
    """Apply with our mark beside those of others."""
    metadata = part["metadata"]
    marks = _mark(_installers(objects.read(part)) | {installer})
    annotations = {**metadata.get("annotations", {}), **marks}
    objects.apply({**part, "metadata": {**metadata, "annotations": annotations}})


def _release_part(objects: ObjectPort, part: Document, installer: str) -> bool:
    """Take our mark off, and the object with the last mark. True: it is gone; False: it is another's."""
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


def _await_established(objects: ObjectPort, definition: Document, patience: DeadlinePort) -> None:
    """Wait until the API server serves the kind. Raises InvalidRequest when its names are taken by another."""
    while True:
        live = _retry(partial(objects.read, definition), patience) or {}
        # Null until the API server has looked at a new definition.
        conditions = {condition["type"]: condition for condition in live.get("status", {}).get("conditions") or ()}
        if conditions.get("Established", {}).get("status") == "True":
            return
        names = conditions.get("NamesAccepted", {})
        if names.get("status") == "False":
            raise InvalidRequest(f"{name_of(definition)}: {names.get('message')}", code="NamesNotAccepted")
        if patience.remaining_seconds() <= RETRY_SECONDS:
            raise Unavailable(f"{name_of(definition)} is not established yet")
        patience.pause(ESTABLISH_SECONDS)


def _retry[Answer](ask: Callable[[], Answer], patience: DeadlinePort) -> Answer:
    """Ask until it is granted: a new access entry takes a while to be known to every API server."""
    while True:
        try:
            return ask()
        except (Denied, Unavailable, Throttled, Conflict):
            if patience.remaining_seconds() <= RETRY_SECONDS:
                raise
        patience.pause(RETRY_SECONDS)


def _close(access: AdminAccessPort) -> str:
    """Take our access back; returns why that failed, or nothing."""
    try:
        access.close()
    except ApiError as failure:
        return f"the temporary access entry could not be deleted: {failure}"
    return ""
