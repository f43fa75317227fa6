"""Roles as the services see them: a change of IAM counts only some seconds after it was made.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.iam.models import iam_backends

from local.aws.calls.request import AwsRequest, AwsResponse
from local.aws.emulator import Emulator
from local.aws.iam.policies import policy_document
from local.aws.strictness import Rule
from local.aws.sts.callers import find_role

_ROLE_CHANGES = frozenset(
    (
        "AttachRolePolicy",
        "CreateRole",
        "DeleteRolePermissionsBoundary",
        "DeleteRolePolicy",
        "DetachRolePolicy",
        "PutRolePermissionsBoundary",
        "PutRolePolicy",
        "UpdateAssumeRolePolicy",
    )
)
_POLICY_CHANGES = frozenset(("CreatePolicyVersion", "SetDefaultPolicyVersion"))


@dataclass(frozen=True)
class VisibleRole:
    """What decides about the calls of a role (or user), and who may assume it."""

    policies: tuple[Mapping[str, Any], ...]
    boundary: Mapping[str, Any] | None
    assume_role_policy_document: str


@dataclass(frozen=True)
class _Change:
    """`before` is what is seen until `visible_at` (clock of strictness); None: no such role."""

    before: VisibleRole | None
    visible_at: float


class IamPropagation:
    """The changes of roles that are not seen everywhere yet, by the role's ARN, oldest first."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._lock = threading.Lock()
        self._changes: dict[str, list[_Change]] = {}
        self._under_way = threading.local()

    def role(self, arn: str) -> VisibleRole | None:
        """The role as it is seen now; None if there is none, or none yet."""
        now = self._emulator.strictness.now()
        with self._lock:
            late = next((change for change in self._changes.get(arn, ()) if change.visible_at > now), None)
        return late.before if late else self._role(arn)

    def seconds_left(self) -> float:
        """How long it takes until all changes made so far are seen everywhere."""
        now = self._emulator.strictness.now()
        with self._lock:
            left = [max(0.0, change.visible_at - now) for changes in self._changes.values() for change in changes]
        return max(left, default=0.0)

    def remember(self, request: AwsRequest) -> None:
        """Before a call: how the roles look that it will change."""
        arns = self._changed_roles(request) if request.service == "iam" else []
        self._under_way.views = {arn: self._role(arn) for arn in arns}

    def note_change(self, request: AwsRequest, response: AwsResponse) -> None:
        """After it: from when on its change is seen."""
        views, self._under_way.views = getattr(self._under_way, "views", {}), {}
        if response.status >= 400:
            return
        for arn, before in views.items():
            if self._role(arn) != before:
                self._add(arn, before)

    def _add(self, arn: str, before: VisibleRole | None) -> None:
        now = self._emulator.strictness.now()
        with self._lock:
            changes = [change for change in self._changes.get(arn, ()) if change.visible_at > now]
            if before is None:
                # A role of that name that was deleted has nothing to do with this one.
                changes = []
            seconds = self._emulator.strictness.seconds(Rule.IAM_PROPAGATION, f"{arn} {len(changes)}")
            self._changes[arn] = [*changes, _Change(before, now + seconds)]

    def _changed_roles(self, request: AwsRequest) -> list[str]:
        params, backend = request.params, _backend(self._emulator)
        if request.action in _ROLE_CHANGES:
            path = str(params.get("Path") or "/") if request.action == "CreateRole" else ""
            return [self._arn(str(params.get("RoleName", "")), path)]
        if request.action in _POLICY_CHANGES:
            return [role.arn for role in backend.get_roles() if params.get("PolicyArn") in role.managed_policies]
        return []

    def _arn(self, name: str, path: str) -> str:
        """Of the role of this name; with `path`, of the one that is about to be made."""
        if path:
            return f"arn:aws:iam::{self._emulator.account}:role{path}{name}"
        return next((role.arn for role in _backend(self._emulator).get_roles() if role.name == name), name)

    def _role(self, arn: str) -> VisibleRole | None:
        role = find_role(self._emulator, arn)
        return None if role is None else _view(self._emulator, role, role.assume_role_policy_document)


def user_view(emulator: Emulator, arn: str) -> VisibleRole | None:
    """A user with its policies as they are."""
    user = _backend(emulator).get_user(arn.rsplit("/", 1)[-1])
    return None if user is None else _view(emulator, user, "")


def _view(emulator: Emulator, holder: Any, trust: str) -> VisibleRole:
    inline = tuple(policy_document(text) for text in holder.policies.values())
    attached = tuple(_default(policy) for policy in holder.managed_policies.values())
    boundary = getattr(holder, "permissions_boundary_arn", None)
    limit = _default(_backend(emulator).managed_policies[boundary]) if boundary else None
    return VisibleRole(inline + attached, limit, trust)


def _default(policy: Any) -> Mapping[str, Any]:
    """The document of a managed policy's default version."""
    version = next(item for item in policy.versions if item.version_id == policy.default_version_id)
    return policy_document(version.document)


def _backend(emulator: Emulator) -> Any:
    return iam_backends[emulator.account]["aws"]
