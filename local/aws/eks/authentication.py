"""Control routes that play EKS's own two identity services: who a token is, and credentials for a pod.

Tokens are `k8s-aws-v1.` and the URL-safe base64, unpadded, of a presigned STS GetCallerIdentity URL that has
the cluster's name in the signed header x-k8s-aws-id. The rules are those of aws-iam-authenticator: the token
is good for 15 minutes after X-Amz-Date, whatever X-Amz-Expires says (at most 900).
"""

import base64
import binascii
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from local.aws.calls.request import AwsError
from local.aws.control import InvalidRequest, Unreachable
from local.aws.eks.addons import POD_IDENTITY_AGENT, Addons
from local.aws.eks.backend import AccessEntry, EksBackend, PodIdentityAssociation
from local.aws.emulator import Emulator
from local.aws.functions.networks import FunctionNetworks
from local.aws.iam.condition_keys import request_tags
from local.aws.iam.trust_policies import trusts
from local.aws.strictness import Rule
from local.aws.sts.callers import Caller, UnknownCaller, create_role_session, find_role, resolve_caller
from local.aws.sts.presigned_urls import PresignedUrl

TOKEN_PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
LIFETIME = timedelta(minutes=15)
CLOCK_SKEW = timedelta(minutes=5)
# Of a pod: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html
SESSION_SECONDS = 6 * 3600
CLUSTER_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
ALLOWED_PARAMETERS = {
    "action",
    "version",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
}


class TokenRejected(Exception):
    """The token is not good; the text says why."""


def add(emulator: Emulator) -> None:
    emulator.component(EksBackend)
    emulator.route("POST", "/_local/identity", lambda body, _: _identify(emulator, body))
    emulator.route("POST", "/_local/podidentity", lambda body, _: _pod_credentials(emulator, body))
    emulator.route("POST", "/_local/podidentity/associated", lambda body, _: _is_associated(emulator, body))


def _identify(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        caller = _verified(emulator, str(body["token"]), str(body["cluster"]))
        _check_network(emulator, caller, str(body["cluster"]))
        entry = _entry(emulator, caller, str(body["cluster"]))
    except TokenRejected as reason:
        return {"authenticated": False, "reason": str(reason)}
    return {
        "authenticated": True,
        "username": _username(entry, caller),
        "groups": _groups(emulator, entry),
        "arn": caller.arn,
        "principal": entry.principal,
    }


def _check_network(emulator: Emulator, caller: Caller, cluster: str) -> None:
    """The API server listens on this machine, where everybody reaches it: who could not is not let in instead."""
    config = emulator.component(EksBackend).cluster(cluster)["resourcesVpcConfig"]
    if not emulator.component(FunctionNetworks).reaches_cluster(caller.access_key, config):
        raise TokenRejected(f"the function of {caller.arn} does not reach the endpoint of {cluster}")


def _verified(emulator: Emulator, token: str, cluster: str) -> Caller:
    """Who presigned the token; raises TokenRejected."""
    url = PresignedUrl(_decoded(token))
    _check_url(emulator, url)
    _check_age(url)
    try:
        caller = resolve_caller(emulator, url.access_key)
    except UnknownCaller as error:
        raise TokenRejected(f"STS knows no such credentials ({error.code})") from error
    if caller.is_administrator:
        return caller
    if url.query.get("X-Amz-Security-Token", "") != caller.token:
        raise TokenRejected("the session token does not belong to the access key")
    if not url.is_signed_with(caller.secret, {"host": url.parts.netloc, CLUSTER_HEADER: cluster}):
        raise TokenRejected(f"the signature does not match (signed for another cluster than {cluster}?)")
    return caller


def _decoded(token: str) -> str:
    if not token.startswith(TOKEN_PREFIX):
        raise TokenRejected(f"the token does not start with {TOKEN_PREFIX}")
    encoded = token.removeprefix(TOKEN_PREFIX)
    if "=" in encoded:
        raise TokenRejected("the token is padded")
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise TokenRejected("the token is not URL-safe base64") from error


def _check_url(emulator: Emulator, url: PresignedUrl) -> None:
    hosts = {f"https://sts.{emulator.region}.amazonaws.com", "https://sts.amazonaws.com"}
    if f"{url.parts.scheme}://{url.parts.netloc}" not in hosts | {emulator.endpoint, emulator.secure_endpoint}:
        raise TokenRejected(f"{url.parts.netloc} is not this STS")
    if url.parts.path not in ("", "/"):
        raise TokenRejected("unexpected path in the presigned URL")
    unexpected = {name.lower() for name in url.query} - ALLOWED_PARAMETERS
    if unexpected:
        raise TokenRejected(f"unexpected query parameters {sorted(unexpected)}")
    if url.query.get("Action") != "GetCallerIdentity":
        raise TokenRejected("the presigned action is not GetCallerIdentity")
    if not {"host", CLUSTER_HEADER} <= set(url.signed_headers):
        raise TokenRejected(f"the header {CLUSTER_HEADER} is not signed")


def _check_age(url: PresignedUrl) -> None:
    try:
        signed_at, expires = url.signed_at, int(url.query.get("X-Amz-Expires", ""))
    except ValueError as error:
        raise TokenRejected("X-Amz-Date or X-Amz-Expires is missing or malformed") from error
    now = datetime.now(UTC)
    if not 0 <= expires <= 900:
        raise TokenRejected("X-Amz-Expires must be between 0 and 900")
    if signed_at > now + CLOCK_SKEW or signed_at + LIFETIME < now:
        raise TokenRejected("the token has expired")


def _entry(emulator: Emulator, caller: Caller, cluster: str) -> AccessEntry:
    principal, eks = caller.role or caller.arn, emulator.component(EksBackend)
    try:
        entry = eks.access_entry(cluster, principal)
    except AwsError as error:
        raise TokenRejected(error.message) from error
    if emulator.strictness.now() < entry.effective_at:
        raise TokenRejected(f"the access entry of {principal} has not reached the cluster yet")
    if entry.principal_id != eks.principal_id(principal) and emulator.strictness.holds(Rule.ACCESS_ENTRY_PRINCIPALS):
        raise TokenRejected(f"the access entry was made for an earlier {principal}")
    return entry


def _username(entry: AccessEntry, caller: Caller) -> str:
    session = caller.arn.rsplit("/", 1)[-1]
    return entry.username.replace("{{SessionName}}", session).replace("{{SessionNameRaw}}", session)


def _groups(emulator: Emulator, entry: AccessEntry) -> list[str]:
    """The entry's groups; the cluster-wide admin policy is played by system:masters."""
    scope, _ = entry.policies.get(CLUSTER_ADMIN, ({}, None))
    if emulator.strictness.now() < entry.policies_effective_at.get(CLUSTER_ADMIN, 0.0):
        scope = {}
    return [*entry.groups, *(["system:masters"] if scope.get("type") == "cluster" else [])]


def _pod_tags(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, str]:
    """The session tags EKS gives a pod: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-abac.html."""
    cluster = str(body["cluster"])
    return {
        "eks-cluster-arn": f"arn:aws:eks:{emulator.region}:{emulator.account}:cluster/{cluster}",
        "eks-cluster-name": cluster,
        "kubernetes-namespace": str(body["namespace"]),
        "kubernetes-service-account": str(body["serviceAccount"]),
        "kubernetes-pod-name": str(body.get("podName", "unknown")),
        "kubernetes-pod-uid": str(body.get("podUid", "unknown")),
    }


def _check_trust(emulator: Emulator, role_arn: str, tags: Mapping[str, str]) -> None:
    """EKS needs both AssumeRole and TagSession in the role's trust policy."""
    role = find_role(emulator, role_arn)
    if role is None:
        raise InvalidRequest(f"the role {role_arn} of the association does not exist")
    for action in ("sts:AssumeRole", "sts:TagSession"):
        if not trusts(role, {"pods.eks.amazonaws.com"}, action, request_tags(tags)):
            raise InvalidRequest(f"{role_arn} does not trust pods.eks.amazonaws.com to {action}")


def _association(emulator: Emulator, body: Mapping[str, Any]) -> PodIdentityAssociation | None:
    """The one that counts for this cluster, namespace and service account."""
    keys = (str(body[key]) for key in ("cluster", "namespace", "serviceAccount"))
    found = emulator.component(EksBackend).find_association(*keys)
    return found if found is not None and found.effective_at <= emulator.strictness.now() else None


def _is_associated(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, bool]:
    """Whether a pod that is admitted now is told of the agent."""
    if not emulator.strictness.holds(Rule.POD_IDENTITY_ADMISSION):
        return {"associated": True}
    return {"associated": _association(emulator, body) is not None}


def _pod_credentials(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the Pod Identity agent hands a pod of this service account."""
    cluster, namespace, account = (str(body[key]) for key in ("cluster", "namespace", "serviceAccount"))
    installed = POD_IDENTITY_AGENT in emulator.component(Addons).names(cluster)
    if not installed and emulator.strictness.holds(Rule.POD_IDENTITY_AGENT):
        raise Unreachable(f"cluster {cluster} does not have the add-on {POD_IDENTITY_AGENT}")
    association = _association(emulator, body)
    if association is None:
        raise InvalidRequest(f"no Pod Identity association for {cluster}/{namespace}/{account}")
    tags = _pod_tags(emulator, body)
    _check_trust(emulator, association.role_arn, tags)
    session = f"eks-{cluster}-{account}-{uuid.uuid4()}"[:64]
    seconds = emulator.strictness.session_seconds(Rule.SESSION_EXPIRY, SESSION_SECONDS, session)
    credentials = create_role_session(emulator, association.role_arn, session, seconds, session_tags=tags)
    return {
        "AccessKeyId": credentials.access_key_id,
        "SecretAccessKey": credentials.secret_access_key,
        "Token": credentials.session_token,
        "AccountId": emulator.account,
        "Expiration": credentials.expiration.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
