"""What Spotwright puts into a cluster, and what of it goes again with the stack.

Definitions are applied and never removed, nor is any NodePool, class or claim: nodes outlive the stack. Rights and
forwarder carry the marks of all installers that put them there (one custom resource of one stack each), and go with
the last one: the Delete that CloudFormation sends to a renamed or rolled back resource takes nothing from another.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Protocol

import msgspec

from spotwright.failures import Conflict, Denied, Failure, InvalidRequest, NotFound, Throttled, Unavailable

type Document = Mapping[str, Any]

INSTALLERS = "spotwright.dev/installers"
# Between two questions to an API server that does not know us yet, and to one that is just making a type.
RETRY_SECONDS = 2.0
ESTABLISH_SECONDS = 0.3


class ObjectPort(Protocol):
    """A cluster's API by document. Every method may raise the exceptions of ``spotwright.failures``."""

    def read(self, document: Any, /) -> dict[str, Any] | None: ...
    def apply(self, document: Any, /) -> dict[str, Any]: ...
    def merge(self, document: Any, change: Any, /) -> dict[str, Any]: ...
    def delete(self, document: Any, /) -> None: ...


class AccessPort(Protocol):
    """The right to administer one cluster for a while."""

    def open(self) -> ObjectPort: ...
    def close(self) -> None: ...


class PatiencePort(Protocol):
    """How long we may still wait, and waiting."""

    def remaining_seconds(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


class Installation(msgspec.Struct, frozen=True):
    """What goes into a cluster, in the order in which it is applied. ``installer``: who asks, as a short hash."""

    definitions: Sequence[Document]
    parts: Sequence[Document]
    installer: str


class Removal(msgspec.Struct, frozen=True):
    """What became of a removal: objects deleted, objects that another installer keeps, and why we gave up, if so."""

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gave_up: str = ""


def install(access: AccessPort, wanted: Installation, patience: PatiencePort) -> tuple[str, ...]:
    """Apply everything; returns the names of what was applied. Our own access is gone afterwards, come what may."""
    try:
        objects = access.open()
        for definition in wanted.definitions:
            _insist(partial(_apply_definition, objects, definition), patience)
        for definition in wanted.definitions:
            _await_established(objects, definition, patience)
        for part in wanted.parts:
            _insist(partial(_apply_part, objects, part, wanted.installer), patience)
    finally:
        access.close()
    return tuple(name_of(document) for document in [*wanted.definitions, *wanted.parts])


def remove(access: AccessPort, wanted: Installation, patience: PatiencePort) -> Removal:
    """Delete the parts that only this installer put there; definitions and everything else stay.

    A cluster that is gone needs nothing; one that does not answer or let us in is given up after the patience,
    so that a stack can always be deleted.
    """
    deleted: list[str] = []
    kept: list[str] = []
    gave_up = ""
    try:
        objects = access.open()
        for part in reversed(wanted.parts):
            gone = _insist(partial(_let_go, objects, part, wanted.installer), patience)
            (deleted if gone else kept).append(name_of(part))
    except NotFound:
        gave_up = "the cluster is gone"
    except Failure as failure:
        gave_up = str(failure)
    not_closed = _close(access)
    return Removal(tuple(deleted), tuple(kept), gave_up or not_closed)


def taken_over(live: Document | None, definition: Document) -> Document:
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
    objects.apply(taken_over(objects.read(definition), definition))


def _apply_part(objects: ObjectPort, part: Document, installer: str) -> None:
    """Apply with our mark beside those of others."""
    metadata = part["metadata"]
    marks = _mark(_installers(objects.read(part)) | {installer})
    annotations = {**metadata.get("annotations", {}), **marks}
    objects.apply({**part, "metadata": {**metadata, "annotations": annotations}})


def _let_go(objects: ObjectPort, part: Document, installer: str) -> bool:
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


def _await_established(objects: ObjectPort, definition: Document, patience: PatiencePort) -> None:
    """Wait until the API server serves the kind. Raises InvalidRequest when its names are taken by another."""
    while True:
        live = _insist(partial(objects.read, definition), patience) or {}
        # Null until the API server has looked at a new definition.
        conditions = {one["type"]: one for one in live.get("status", {}).get("conditions") or ()}
        if conditions.get("Established", {}).get("status") == "True":
            return
        names = conditions.get("NamesAccepted", {})
        if names.get("status") == "False":
            raise InvalidRequest(f"{name_of(definition)}: {names.get('message')}", code="NamesNotAccepted")
        if patience.remaining_seconds() <= RETRY_SECONDS:
            raise Unavailable(f"{name_of(definition)} is not established yet")
        patience.pause(ESTABLISH_SECONDS)


def _insist[Answer](ask: Callable[[], Answer], patience: PatiencePort) -> Answer:
    """Ask until it is granted: a new access entry takes a while to be known to every API server."""
    while True:
        try:
            return ask()
        except (Denied, Unavailable, Throttled, Conflict):
            if patience.remaining_seconds() <= RETRY_SECONDS:
                raise
        patience.pause(RETRY_SECONDS)


def _close(access: AccessPort) -> str:
    """Take our access back; returns why that failed, or nothing."""
    try:
        access.close()
    except Failure as failure:
        return f"access could not be taken back: {failure}"
    return ""
