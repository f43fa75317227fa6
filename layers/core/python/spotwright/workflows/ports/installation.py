"""A cluster's API by document, the right to use it, and how long: what installing and uninstalling need."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

type Document = Mapping[str, Any]


class ObjectPort(Protocol):
    """A cluster's API by document. Every method may raise the exceptions of ``spotwright.errors``."""

    def read(self, document: Any, /) -> dict[str, Any] | None: ...
    def apply(self, document: Any, /) -> dict[str, Any]: ...
    def merge(self, document: Any, change: Any, /) -> dict[str, Any]: ...
    def delete(self, document: Any, /) -> None: ...
    def list(self, api_version: str, kind: str, namespace: str = "", selector: str = "", /) -> list[dict[str, Any]]: ...


class AccessEntry(msgspec.Struct, frozen=True):
    """Whom EKS lets into a cluster. ``principal``: the role's or user's ARN; ``arn``: the entry's own; ``installers``:
    the installations that made it, or share it since; empty = it was made by somebody else."""

    principal: str
    arn: str
    type: str
    installers: frozenset[str] = frozenset()


class NodeAccessPort(Protocol):
    """The access entries of one cluster. Every method may raise the exceptions of ``spotwright.errors``."""

    @property
    def cluster(self) -> str: ...
    def create(self, principal: str, type: str, installers: frozenset[str], /) -> None: ...
    def find(self, principal: str, /) -> AccessEntry | None: ...
    def tagged_entries(self) -> Iterable[AccessEntry]: ...
    def tag(self, entry: AccessEntry, installers: frozenset[str], /) -> None: ...
    def delete(self, principal: str, /) -> None: ...


class AdminAccessPort(Protocol):
    """The right to administer one cluster for a while."""

    def open(self) -> ObjectPort: ...
    def close(self) -> None: ...


class DeadlinePort(Protocol):
    """The time that is left, and waiting."""

    def remaining_seconds(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


class DocumentPort(Protocol):
    """A cluster's API by document. Every method may raise the exceptions of ``spotwright.errors``."""

    def list(self, api_version: str, kind: str, /) -> list[dict[str, Any]]: ...
    def merge(self, document: Any, change: Any, /) -> dict[str, Any]: ...
    def delete(self, document: Any, /) -> None: ...


class PausePort(Protocol):
    """Lets no function launch or disrupt anything in this cluster until the pause is lifted."""

    def pause(self, reason: str) -> None: ...
