"""`k8s-aws-v1` tokens, made as an EKS client makes them, and who the local AWS says they are."""

import base64
from typing import Any

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.local.aws.conftest import REGION, Aws

CLUSTER = "identity-test"


def presigned(
    session: dict[str, Any],
    endpoint: str,
    *,
    cluster: str | None = CLUSTER,
    action: str = "GetCallerIdentity",
    expires: int = 60,
    secret: str | None = None,
) -> str:
    headers = {"x-k8s-aws-id": cluster} if cluster else {}
    url = f"{endpoint}/?Action={action}&Version=2011-06-15"
    request = AWSRequest("GET", url, headers)
    keys = Credentials(session["AccessKeyId"], secret or session["SecretAccessKey"], session["SessionToken"])
    SigV4QueryAuth(keys, "sts", REGION, expires=expires).add_auth(request)
    return str(request.url)


def token(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def identify(aws: Aws, text: str, cluster: str = CLUSTER) -> Any:
    return aws.control("POST", "/_local/identity", {"token": text, "cluster": cluster})
