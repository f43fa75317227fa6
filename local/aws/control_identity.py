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

from local.aws.control import Invalid
from local.aws.eks import AccessEntry, EksBackend
from local.aws.iam import trusts
from local.aws.iam_tags import request_tags
from local.aws.identity import Caller, UnknownCaller, assume, caller, find_role
from local.aws.presigned import Presigned
from local.aws.request import AwsError
from local.aws.world import World

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
LIFETIME = timedelta(minutes=15)
CLOCK_SKEW = timedelta(minutes=5)
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


class Rejected(Exception):
    """The token is not good; the text says why."""


def add(world: World) -> None:
    world.part(EksBackend)
    world.route("POST", "/_local/identity", lambda body, _: _identify(world, body))
    world.route("POST", "/_local/podidentity", lambda body, _: _pod_credentials(world, body))


def _identify(world: World, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        known = _verified(world, str(body["token"]), str(body["cluster"]))
        entry = _entry(world, known, str(body["cluster"]))
    except Rejected as reason:
        return {"authenticated": False, "reason": str(reason)}
    return {
        "authenticated": True,
        "username": _username(entry, known),
        "groups": _groups(entry),
        "arn": known.arn,
        "principal": entry.principal,
    }


def _verified(world: World, token: str, cluster: str) -> Caller:
    """Who presigned the token; raises Rejected."""
    url = Presigned(_decoded(token))
    _check_url(world, url)
    _check_age(url)
    try:
        known = caller(world, url.access_key)
    except UnknownCaller as error:
        raise Rejected(f"STS knows no such credentials ({error.code})") from error
    if known.is_administrator:
        return known
    if url.query.get("X-Amz-Security-Token", "") != known.token:
        raise Rejected("the session token does not belong to the access key")
    if not url.is_signed_with(known.secret, {"host": url.parts.netloc, CLUSTER_HEADER: cluster}):
        raise Rejected(f"the signature does not match (signed for another cluster than {cluster}?)")
    return known


def _decoded(token: str) -> str:
    if not token.startswith(PREFIX):
        raise Rejected(f"the token does not start with {PREFIX}")
    encoded = token.removeprefix(PREFIX)
    if "=" in encoded:
        raise Rejected("the token is padded")
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Rejected("the token is not URL-safe base64") from error


def _check_url(world: World, url: Presigned) -> None:
    hosts = {world.endpoint, f"https://sts.{world.region}.amazonaws.com", "https://sts.amazonaws.com"}
    if f"{url.parts.scheme}://{url.parts.netloc}" not in hosts:
        raise Rejected(f"{url.parts.netloc} is not this STS")
    if url.parts.path not in ("", "/"):
        raise Rejected("unexpected path in the presigned URL")
    unexpected = {name.lower() for name in url.query} - ALLOWED_PARAMETERS
    if unexpected:
        raise Rejected(f"unexpected query parameters {sorted(unexpected)}")
    if url.query.get("Action") != "GetCallerIdentity":
        raise Rejected("the presigned action is not GetCallerIdentity")
    if not {"host", CLUSTER_HEADER} <= set(url.signed_headers):
        raise Rejected(f"the header {CLUSTER_HEADER} is not signed")


def _check_age(url: Presigned) -> None:
    try:
        signed_at, expires = url.signed_at, int(url.query.get("X-Amz-Expires", ""))
    except ValueError as error:
        raise Rejected("X-Amz-Date or X-Amz-Expires is missing or malformed") from error
    now = datetime.now(UTC)
    if not 0 <= expires <= 900:
        raise Rejected("X-Amz-Expires must be between 0 and 900")
    if signed_at > now + CLOCK_SKEW or signed_at + LIFETIME < now:
        raise Rejected("the token has expired")


def _entry(world: World, known: Caller, cluster: str) -> AccessEntry:
    try:
        return world.part(EksBackend).access_entry(cluster, known.role or known.arn)
    except AwsError as error:
        raise Rejected(error.message) from error


def _username(entry: AccessEntry, known: Caller) -> str:
    session = known.arn.rsplit("/", 1)[-1]
    return entry.username.replace("{{SessionName}}", session).replace("{{SessionNameRaw}}", session)


def _groups(entry: AccessEntry) -> list[str]:
    """The entry's groups; the cluster-wide admin policy is played by system:masters."""
    scope, _ = entry.policies.get(CLUSTER_ADMIN, ({}, None))
    return [*entry.groups, *(["system:masters"] if scope.get("type") == "cluster" else [])]


def _pod_tags(world: World, body: Mapping[str, Any]) -> dict[str, str]:
    """The session tags EKS gives a pod: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-abac.html."""
    cluster = str(body["cluster"])
    return {
        "eks-cluster-arn": f"arn:aws:eks:{world.region}:{world.account}:cluster/{cluster}",
        "eks-cluster-name": cluster,
        "kubernetes-namespace": str(body["namespace"]),
        "kubernetes-service-account": str(body["serviceAccount"]),
        "kubernetes-pod-name": str(body.get("podName", "unknown")),
        "kubernetes-pod-uid": str(body.get("podUid", "unknown")),
    }


def _check_trust(world: World, role_arn: str, tags: Mapping[str, str]) -> None:
    """EKS needs both AssumeRole and TagSession in the role's trust policy."""
    role = find_role(world, role_arn)
    if role is None:
        raise Invalid(f"the role {role_arn} of the association does not exist")
    for action in ("sts:AssumeRole", "sts:TagSession"):
        if not trusts(role, {"pods.eks.amazonaws.com"}, action, request_tags(tags)):
            raise Invalid(f"{role_arn} does not trust pods.eks.amazonaws.com to {action}")


def _pod_credentials(world: World, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the Pod Identity agent hands a pod of this service account; good for six hours."""
    cluster, namespace, account = (str(body[key]) for key in ("cluster", "namespace", "serviceAccount"))
    association = world.part(EksBackend).find_pod_identity(cluster, namespace, account)
    if association is None:
        raise Invalid(f"no Pod Identity association for {cluster}/{namespace}/{account}")
    tags = _pod_tags(world, body)
    _check_trust(world, association.role_arn, tags)
    session = f"eks-{cluster}-{account}-{uuid.uuid4()}"[:64]
    credentials = assume(world, association.role_arn, session, 6 * 3600, session_tags=tags)
    return {
        "AccessKeyId": credentials.access_key_id,
        "SecretAccessKey": credentials.secret_access_key,
        "Token": credentials.session_token,
        "AccountId": world.account,
        "Expiration": credentials.expiration.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
