"""IAM, enforced: every call by anyone but the administrator is asked of the caller's policies first.

Identity policies, permissions boundary and session policy must allow; for AssumeRole the role's trust policy
too. What a call touches is worked out in the iam_access modules.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.iam.models import iam_backends

from local.aws import iam_access, iam_access_launch
from local.aws.ec2_instances import Launch
from local.aws.fleet import Fleets
from local.aws.iam_conditions import Context
from local.aws.iam_policy import Access, Verdict, applies, document, verdict
from local.aws.identity import Caller, caller, find_role
from local.aws.request import AwsError, AwsRequest
from local.aws.world import World

_QUERY_PROTOCOLS = ("query", "rest-xml")


@dataclass(frozen=True)
class Question:
    """What one call asked of IAM: one of these must be allowed."""

    principal: str
    service: str
    action: str
    alternatives: tuple[Access, ...]
    allowed: bool


class Questions:
    """Every question put to IAM by anyone but the administrator, in order; the latest 50,000."""

    def __init__(self, world: World) -> None:
        self.asked: deque[Question] = deque(maxlen=50_000)


def add(world: World) -> None:
    authorizer = Authorizer(world)
    world.guard(authorizer.check)
    world.part(Fleets).launch_checks.append(authorizer.check_launch)


class Authorizer:
    """Answers whether a caller may; stateless but for the world it looks into."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._questions = world.part(Questions)

    def check(self, request: AwsRequest) -> None:
        """Raise the service's access-denied error unless all that the call touches is allowed."""
        known = caller(self._world, request.access_key)
        if known.is_administrator or (request.service, request.action) == ("sts", "GetCallerIdentity"):
            return
        policies = self._policies(known)
        common = self._common(request, known)
        for access in iam_access.of(self._world, request):
            self._demand(request, policies, _with(access, common))
        if (request.service, request.action) == ("sts", "AssumeRole"):
            self._check_trust(request, known, common)

    def check_launch(self, request: AwsRequest, launch: Launch) -> None:
        """The same for one launch of a fleet or of RunInstances, including PassRole of the node role."""
        known = caller(self._world, request.access_key)
        if known.is_administrator:
            return
        policies, common = self._policies(known), self._common(request, known)
        for alternatives in iam_access_launch.of(self._world, launch):
            self._demand_one(request, policies, [_with(access, common) for access in alternatives])

    def _demand(self, request: AwsRequest, policies: list[list[Mapping[str, Any]]], access: Access) -> None:
        self._demand_one(request, policies, [access])

    def _demand_one(
        self, request: AwsRequest, policies: list[list[Mapping[str, Any]]], alternatives: list[Access]
    ) -> None:
        """At least one of the alternatives must be allowed by every set of policies."""
        allowed = any(_allowed(policies, access) for access in alternatives)
        self._questions.asked.append(
            Question(request.principal, request.service, request.action, tuple(alternatives), allowed)
        )
        if not allowed:
            raise _denied(request, policies, alternatives[0])

    def _policies(self, known: Caller) -> list[list[Mapping[str, Any]]]:
        """Sets of documents that must all allow: identity policies and, where set, boundary and session."""
        backend: Any = iam_backends[self._world.account]["aws"]
        if known.role:
            holder = find_role(self._world, known.role)
        else:
            holder = backend.get_user(known.arn.rsplit("/", 1)[-1])
        if holder is None:
            return [[]]
        attached = [_default(policy) for policy in holder.managed_policies.values()]
        sets = [[_parsed(text) for text in holder.policies.values()] + attached]
        boundary = getattr(holder, "permissions_boundary_arn", None)
        if boundary:
            sets.append([_default(backend.managed_policies[boundary])])
        if known.session_policy:
            sets.append([document(known.session_policy)])
        return sets

    def _common(self, request: AwsRequest, known: Caller) -> Context:
        """Context keys every call has. The transport counts as secure: loopback stands in for TLS."""
        keys = {
            "aws:requestedregion": request.region,
            "aws:securetransport": "true",
            "aws:principalarn": known.role or known.arn,
            "aws:principalaccount": self._world.account,
            "aws:resourceaccount": self._world.account,
            "s3:resourceaccount": self._world.account,
            "aws:principaltype": "AssumedRole" if known.role else "User",
            "aws:userid": known.user_id,
            "aws:username": "" if known.role else known.arn.rsplit("/", 1)[-1],
            "sts:rolesessionname": request.params.get("RoleSessionName") if request.service == "sts" else "",
        }
        tags = {f"aws:principaltag/{key}".lower(): (value,) for key, value in known.session_tags.items()}
        return tags | {key: (str(value),) for key, value in keys.items() if value}

    def _check_trust(self, request: AwsRequest, known: Caller, common: Context) -> None:
        role = find_role(self._world, request.params["RoleArn"])
        external = request.params.get("ExternalId")
        context = {**common, **({"sts:externalid": (external,)} if external else {})}
        whole_account = {self._world.account, f"arn:aws:iam::{self._world.account}:root"}
        if role is None or not trusts(role, whole_account | {known.arn, known.role}, "sts:AssumeRole", context):
            raise _denied(request, [], Access("sts:AssumeRole", request.params["RoleArn"]))


def trusts(role: Any, names: Iterable[str], action: str, context: Context) -> bool:
    """Whether the trust policy of moto's `role` lets a principal with one of these names do `action`."""
    access = Access(action, context=context)
    allowed = False
    statements = _parsed(role.assume_role_policy_document).get("Statement") or []
    for statement in statements if isinstance(statements, list) else [statements]:
        if _names(statement.get("Principal"), {*names, "*"}) and applies(statement, access):
            if statement.get("Effect") == "Deny":
                return False
            allowed = True
    return allowed


def _names(principal: Any, mine: set[str]) -> bool:
    """Whether a trust policy's Principal covers any of these names."""
    if not isinstance(principal, Mapping):
        return principal in mine
    named = [name for value in principal.values() for name in (value if isinstance(value, list) else [value])]
    return any(name in mine for name in named)


def _allowed(policies: Iterable[list[Mapping[str, Any]]], access: Access) -> bool:
    return all(verdict(documents, access) is Verdict.ALLOWED for documents in policies)


def _with(access: Access, common: Context) -> Access:
    return Access(access.action, access.resource, {**common, **access.context})


def _default(policy: Any) -> Mapping[str, Any]:
    """The document of a managed policy's default version."""
    version = next(item for item in policy.versions if item.version_id == policy.default_version_id)
    return _parsed(version.document)


def _parsed(text: Any) -> Mapping[str, Any]:
    if isinstance(text, Mapping):
        return text
    return document(text if isinstance(text, str) else json.dumps(text))


def _denied(request: AwsRequest, policies: list[list[Mapping[str, Any]]], access: Access) -> AwsError:
    """The error as the service words it; callers read reason and action out of the text."""
    explicit = any(verdict(documents, access) is Verdict.EXPLICITLY_DENIED for documents in policies)
    reason = (
        "with an explicit deny in an identity-based policy"
        if explicit
        else f"because no identity-based policy allows the {access.action} action"
    )
    on = f" on resource: {access.resource}" if access.resource else ""
    text = f"User: {request.principal} is not authorized to perform: {access.action}{on} {reason}"
    if request.service == "ec2":
        return AwsError("UnauthorizedOperation", f"You are not authorized to perform this operation. {text}", 403)
    if request.model.protocol in _QUERY_PROTOCOLS:
        return AwsError("AccessDenied", text, 403)
    return AwsError("AccessDeniedException", text, 400 if request.model.protocol == "json" else 403)
