"""IAM, enforced: every call by anyone but the administrator is asked of the caller's policies first.

Identity policies, permissions boundary and session policy must allow; for AssumeRole the role's trust policy
too. What a call touches is worked out in the other modules of this package.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from local.aws.authorization import access_requests, launches, queues
from local.aws.authorization.propagation import IamPropagation, user_view
from local.aws.calls.request import AwsError, AwsRequest
from local.aws.ec2.instances import LaunchSpecification
from local.aws.ec2.launches.fleets import Fleets
from local.aws.emulator import Emulator
from local.aws.iam.conditions import Context
from local.aws.iam.policies import AccessRequest, EvaluationResult, evaluate, parse_document
from local.aws.iam.trust_policies import trusts
from local.aws.sts.callers import Caller, resolve_caller

_QUERY_PROTOCOLS = ("query", "rest-xml")


@dataclass(frozen=True)
class AuthorizationDecision:
    """What one call asked of IAM: one of these must be allowed."""

    principal: str
    service: str
    action: str
    alternatives: tuple[AccessRequest, ...]
    allowed: bool


class AuthorizationLog:
    """Every question put to IAM by anyone but the administrator, in order; the latest 50,000."""

    def __init__(self, emulator: Emulator) -> None:
        self.decisions: deque[AuthorizationDecision] = deque(maxlen=50_000)


def add(emulator: Emulator) -> None:
    authorizer, propagation = Authorizer(emulator), emulator.component(IamPropagation)
    emulator.check_before(authorizer.check)
    emulator.check_before(propagation.remember)
    emulator.react_after(propagation.note_change)
    emulator.component(Fleets).launch_checks.append(authorizer.check_launch)


class Authorizer:
    """Answers whether a caller may; stateless but for the emulator it looks into."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._questions = emulator.component(AuthorizationLog)
        self._propagation = emulator.component(IamPropagation)

    def check(self, request: AwsRequest) -> None:
        """Raise the service's access-denied error unless all that the call touches is allowed."""
        caller = resolve_caller(self._emulator, request.access_key)
        if caller.is_administrator or (request.service, request.action) == ("sts", "GetCallerIdentity"):
            return
        policies = self._policies(caller)
        common = self._common(request, caller)
        for access in access_requests.required_access(self._emulator, request):
            self._demand(request, caller, policies, _with(access, common))
        if (request.service, request.action) == ("sts", "AssumeRole"):
            self._check_trust(request, caller, common)

    def check_launch(self, request: AwsRequest, launch: LaunchSpecification) -> None:
        """The same for one launch of a fleet or of RunInstances, including PassRole of the node role."""
        caller = resolve_caller(self._emulator, request.access_key)
        if caller.is_administrator:
            return
        policies, common = self._policies(caller), self._common(request, caller)
        for alternatives in launches.required_access(self._emulator, launch):
            asked = [_with(access, common) for access in alternatives]
            self._decide(request, policies, asked, any(_allowed(policies, access) for access in asked))

    def _demand(
        self, request: AwsRequest, caller: Caller, policies: list[list[Mapping[str, Any]]], access: AccessRequest
    ) -> None:
        """Every set of the caller's policies must allow it, or the queue's own policy, where it is a queue."""
        match queues.verdict(self._emulator, request, caller, access):
            case EvaluationResult.EXPLICIT_DENY:
                allowed = False
            case EvaluationResult.ALLOWED:
                allowed = not _denied_explicitly(policies, access)
            case EvaluationResult.IMPLICIT_DENY:
                allowed = _allowed(policies, access)
        self._decide(request, policies, [access], allowed)

    def _decide(
        self,
        request: AwsRequest,
        policies: list[list[Mapping[str, Any]]],
        alternatives: list[AccessRequest],
        allowed: bool,
    ) -> None:
        """Write down what was asked, and refuse it unless it is allowed."""
        self._questions.decisions.append(
            AuthorizationDecision(request.principal, request.service, request.action, tuple(alternatives), allowed)
        )
        if not allowed:
            raise _denied(request, policies, alternatives[0])

    def _policies(self, caller: Caller) -> list[list[Mapping[str, Any]]]:
        """Sets of documents that must all allow: identity policies and, where set, boundary and session."""
        holder = self._propagation.role(caller.role) if caller.role else user_view(self._emulator, caller.arn)
        if holder is None:
            return [[]]
        sets = [list(holder.policies)]
        if holder.boundary is not None:
            sets.append([holder.boundary])
        if caller.session_policy:
            sets.append([parse_document(caller.session_policy)])
        return sets

    def _common(self, request: AwsRequest, caller: Caller) -> Context:
        """Context keys every call has. The transport counts as secure: loopback stands in for TLS."""
        keys = {
            "aws:requestedregion": request.region,
            "aws:securetransport": "true",
            "aws:principalarn": caller.role or caller.arn,
            "aws:principalaccount": self._emulator.account,
            "aws:resourceaccount": self._emulator.account,
            "s3:resourceaccount": self._emulator.account,
            "aws:principaltype": "AssumedRole" if caller.role else "User",
            "aws:userid": caller.user_id,
            "aws:username": "" if caller.role else caller.arn.rsplit("/", 1)[-1],
            "sts:rolesessionname": request.params.get("RoleSessionName") if request.service == "sts" else "",
        }
        tags = {f"aws:principaltag/{key}".lower(): (value,) for key, value in caller.session_tags.items()}
        return tags | {key: (str(value),) for key, value in keys.items() if value}

    def _check_trust(self, request: AwsRequest, caller: Caller, common: Context) -> None:
        role = self._propagation.role(request.params["RoleArn"])
        external = request.params.get("ExternalId")
        context = {**common, **({"sts:externalid": (external,)} if external else {})}
        whole_account = {self._emulator.account, f"arn:aws:iam::{self._emulator.account}:root"}
        if role is None or not trusts(role, whole_account | {caller.arn, caller.role}, "sts:AssumeRole", context):
            raise _denied(request, [], AccessRequest("sts:AssumeRole", request.params["RoleArn"]))


def _allowed(policies: Iterable[list[Mapping[str, Any]]], access: AccessRequest) -> bool:
    return all(evaluate(documents, access) is EvaluationResult.ALLOWED for documents in policies)


def _denied_explicitly(policies: Iterable[list[Mapping[str, Any]]], access: AccessRequest) -> bool:
    return any(evaluate(documents, access) is EvaluationResult.EXPLICIT_DENY for documents in policies)


def _with(access: AccessRequest, common: Context) -> AccessRequest:
    return AccessRequest(access.action, access.resource, {**common, **access.context})


def _denied(request: AwsRequest, policies: list[list[Mapping[str, Any]]], access: AccessRequest) -> AwsError:
    """The error as the service words it; callers read reason and action out of the text."""
    explicit = _denied_explicitly(policies, access)
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
