"""Who is calling: access keys, role sessions, and AssumeRole as STS decides it.

The administrator is any access key id that starts with `local-`: unrestricted, secret not checked.
Every other key must belong to an unexpired role session of moto's STS or to an IAM user.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.sts.models import AssumedRole, sts_backends

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

ADMINISTRATOR_PREFIX = "local-"
_sessions: dict[str, AssumedRole] = {}
_session_tags: dict[str, dict[str, str]] = {}
_sessions_lock = threading.Lock()


@dataclass(frozen=True)
class Credentials:
    """Temporary credentials of one role session; `expiration` is aware UTC."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    expiration: datetime


@dataclass(frozen=True)
class Caller:
    """A resolved access key. `role` is the IAM role's ARN for a role session, else ""."""

    access_key: str
    arn: str
    user_id: str
    secret: str = ""
    token: str = ""
    role: str = ""
    session_policy: str = ""
    session_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_administrator(self) -> bool:
        return self.access_key.startswith(ADMINISTRATOR_PREFIX)


class UnknownCaller(Exception):
    """The access key is not known (`InvalidClientTokenId`) or its session is over (`ExpiredToken`)."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def create_role_session(
    emulator: Emulator,
    role_arn: str,
    session_name: str,
    seconds: int = 3600,
    *,
    session_policy: str = "",
    session_tags: Mapping[str, str] | None = None,
) -> Credentials:
    """A new session of `role_arn`, without asking its trust policy: for the parts that play AWS services."""
    session = sts_backends[emulator.account]["aws"].assume_role(
        region_name=emulator.region,
        role_session_name=session_name,
        role_arn=role_arn,
        policy=session_policy,
        duration=seconds,
        external_id="",
    )
    with _sessions_lock:
        _sessions[session.access_key_id] = session
        _session_tags[session.access_key_id] = dict(session_tags or {})
    return Credentials(
        session.access_key_id,
        session.secret_access_key,
        session.session_token,
        session.expiration.replace(tzinfo=UTC),
    )


def resolve_caller(emulator: Emulator, access_key: str) -> Caller:
    """Resolve an access key; raises UnknownCaller."""
    if access_key.startswith(ADMINISTRATOR_PREFIX):
        return Caller(access_key, f"arn:aws:iam::{emulator.account}:root", emulator.account)
    session = _session(emulator, access_key)
    if session is not None:
        if session.expiration.replace(tzinfo=UTC) < datetime.now(UTC) - emulator.strictness.behind():
            raise UnknownCaller("ExpiredToken")
        return _of_session(session)
    user = iam_backends[emulator.account]["aws"].get_user_from_access_key_id(access_key)
    if user is None:
        raise UnknownCaller("InvalidClientTokenId")
    secret = next(key.secret_access_key for key in user.access_keys if key.access_key_id == access_key)
    return Caller(access_key, user.arn, user.id, secret)


def _of_session(session: AssumedRole) -> Caller:
    return Caller(
        session.access_key_id,
        session.arn,
        session.user_id,
        session.secret_access_key,
        session.session_token,
        session.role_arn,
        session.policy or "",
        _session_tags.get(session.access_key_id, {}),
    )


def _session(emulator: Emulator, access_key: str) -> AssumedRole | None:
    with _sessions_lock:
        if access_key not in _sessions:
            for session in sts_backends[emulator.account]["aws"].assumed_roles:
                _sessions[session.access_key_id] = session
        return _sessions.get(access_key)


def parse_credential_scope(headers: dict[str, str], query: str) -> tuple[str, str, str]:
    """(access key id, region, signing name) of a signed request or a presigned URL; empty when unsigned."""
    authorization = headers.get("authorization", "")
    scope = authorization.partition("Credential=")[2].partition(",")[0]
    if not scope and "X-Amz-Credential" in query:
        scope = dict(parse_qsl(query)).get("X-Amz-Credential", "")
    parts = scope.split("/")
    return (parts[0], parts[2], parts[3]) if len(parts) == 5 else ("", "", "")


def add(emulator: Emulator) -> None:
    emulator.handle("sts", "GetCallerIdentity", lambda request: _get_caller_identity(emulator, request))
    emulator.handle("sts", "AssumeRole", lambda request: _assume_role(emulator, request))


def _get_caller_identity(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    caller = resolve_caller(emulator, request.access_key)
    return request.reply({"UserId": caller.user_id, "Account": emulator.account, "Arn": caller.arn})


def _assume_role(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    """A session of an existing role (IAM has already been asked); its key leads back to the caller's."""
    params = request.params
    role_arn = params["RoleArn"]
    if find_role(emulator, role_arn) is None:
        raise AwsError(
            "AccessDenied",
            f"User: {request.principal} is not authorized to perform: sts:AssumeRole on resource: {role_arn}",
            403,
        )
    seconds, policy = int(params.get("DurationSeconds") or 3600), params.get("Policy") or ""
    tags = {tag["Key"]: tag["Value"] for tag in params.get("Tags") or []}
    name = params["RoleSessionName"]
    seconds = emulator.strictness.session_seconds(Rule.SESSION_EXPIRY, seconds, f"{role_arn}/{name}")
    credentials = create_role_session(emulator, role_arn, name, seconds, session_policy=policy, session_tags=tags)
    emulator.parent_access_keys[credentials.access_key_id] = request.access_key
    caller = resolve_caller(emulator, credentials.access_key_id)
    return request.reply(
        {
            "Credentials": {
                "AccessKeyId": credentials.access_key_id,
                "SecretAccessKey": credentials.secret_access_key,
                "SessionToken": credentials.session_token,
                "Expiration": credentials.expiration,
            },
            "AssumedRoleUser": {"AssumedRoleId": caller.user_id, "Arn": caller.arn},
            "PackedPolicySize": 6,
        }
    )


def find_role(emulator: Emulator, role_arn: str) -> Any | None:
    """moto's IAM role with this ARN, or None."""
    try:
        return iam_backends[emulator.account]["aws"].get_role_by_arn(role_arn)
    except NotFoundException:
        return None
