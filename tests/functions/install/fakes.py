"""What an installation meets: time, access to a cluster, and an API server in memory."""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from spotwright.adapters.kubernetes.dynamic_client import object_path
from spotwright.errors import Conflict, InvalidRequest
from spotwright.workflows.ports.installation import AccessEntry
from tests.manifests.samples import Object


@dataclass
class Deadline:
    """Time that passes only by waiting."""

    seconds: float = 60.0

    def remaining_seconds(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.seconds -= seconds


@dataclass
class Waiting(Deadline):
    """Real time, for real clusters, which are looked at more often than is asked for."""

    seconds: float = 180.0

    def pause(self, seconds: float) -> None:
        time.sleep(0.1)
        super().pause(0.1)


@dataclass
class Access:
    """Opens a cluster that is there already."""

    objects: Any
    opened: int = 0
    closed: int = 0
    refused: Exception | None = None

    def open(self) -> Any:
        self.opened += 1
        if self.refused:
            raise self.refused
        return self.objects

    def close(self) -> None:
        self.closed += 1


@dataclass
class Objects:
    """An API server in memory; ``failures`` are raised first, one per call. CRDs are established at once.

    ``early_pods``: so many pods of the forwarder are admitted before its Pod Identity association counts.
    """

    live: dict[str, Object] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    names_taken: bool = False
    early_pods: int = 0
    credentials: str = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    admitted: int = 0
    pod: Object | None = None

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def read(self, document: Any, /) -> Object | None:
        self._fail()
        return copy.deepcopy(self.live.get(object_path(document)))

    def apply(self, document: Any, /) -> Object:
        self._fail()
        live = copy.deepcopy(dict(document))
        live["metadata"] = {"uid": f"uid-of-{object_path(document)}", **live["metadata"]}
        type_ = "NamesAccepted" if self.names_taken else "Established"
        status = "False" if self.names_taken else "True"
        live["status"] = {"conditions": [{"type": type_, "status": status, "message": "taken"}]}
        self.live[object_path(document)] = live
        return live

    def merge(self, document: Any, change: Any, /) -> Object:
        self._fail()
        live = self.live[object_path(document)]
        live["metadata"].setdefault("annotations", {}).update(change["metadata"]["annotations"])
        return live

    def delete(self, document: Any, /) -> None:
        self._fail()
        self.deleted.append(document["kind"])
        if document["kind"] == "Pod":
            self.pod = None
            return
        del self.live[object_path(document)]

    def list(self, api_version: str, kind: str, namespace: str = "", selector: str = "", /) -> list[Object]:
        self._fail()
        if kind == "Pod":
            return [*self._forwarder_pods()]
        return [copy.deepcopy(live) for live in self.live.values() if live["kind"] == kind]

    def _forwarder_pods(self) -> Sequence[Object]:
        """The Deployment's controller: a pod in place of the one that was deleted, admitted now."""
        if self.pod is None:
            environment = [{"name": self.credentials}] if self.admitted >= self.early_pods else []
            self.admitted += 1
            metadata = {"name": f"forwarder-{self.admitted}", "uid": f"uid-{self.admitted}"}
            self.pod = {"metadata": metadata, "spec": {"containers": [{"name": "forwarder", "env": environment}]}}
        return (copy.deepcopy(self.pod),)


@dataclass
class Nodes:
    """EKS's access entries in memory, by principal. ``missing``: roles that IAM does not have; ``failures`` are raised
    first, one per call."""

    entries: dict[str, AccessEntry] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)
    cluster: str = "dev"

    def create(self, principal: str, type: str, installers: frozenset[str], /) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if principal in self.missing:
            raise InvalidRequest("The specified principalArn is invalid: invalid principal.")
        if principal in self.entries:
            raise Conflict("The specified access entry resource is already in use on this cluster.")
        self.entries[principal] = AccessEntry(principal, f"entry-of-{principal}", type, installers)

    def find(self, principal: str, /) -> AccessEntry | None:
        return self.entries.get(principal)

    def tagged_entries(self) -> list[AccessEntry]:
        return [entry for entry in self.entries.values() if entry.installers]

    def tag(self, entry: AccessEntry, installers: frozenset[str], /) -> None:
        self.entries[entry.principal] = msgspec.structs.replace(entry, installers=installers)

    def delete(self, principal: str, /) -> None:
        self.entries.pop(principal, None)
