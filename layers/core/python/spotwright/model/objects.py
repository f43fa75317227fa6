"""What every Kubernetes object has, and conditions."""

from datetime import datetime

import msgspec


class Metadata(msgspec.Struct, frozen=True):
    """Identity of an object. ``created`` and ``deleting`` are aware UTC; ``deleting`` None = not being deleted."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    created: datetime | None = None
    deleting: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owners: tuple["Owner", ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Owner(msgspec.Struct, frozen=True):
    kind: str
    name: str
    uid: str = ""
    api_version: str = ""


class Condition(msgspec.Struct, frozen=True):
    """A status condition; ``status`` is True, False or Unknown as text."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    observed_generation: int = 0


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((one for one in conditions if one.type == kind), None)


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    found = condition(conditions, kind)
    return found is not None and found.status == "True"
