"""The bearer token by which an AWS role logs in to an EKS cluster's API server.

The token is a presigned `sts:GetCallerIdentity` URL: the cluster replays it to learn who is asking, and the
signed header `x-k8s-aws-id` ties it to one cluster. Making one is arithmetic over the client's credentials;
no request is sent.
Source: https://docs.aws.amazon.com/eks/latest/userguide/cluster-auth.html and the wire format of
aws-iam-authenticator (https://github.com/kubernetes-sigs/aws-iam-authenticator#api-authorization-from-outside-a-cluster).
"""

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_sts.client import STSClient

TOKEN_PREFIX = "k8s-aws-v1."
# Seconds, the AWS CLI's value. EKS accepts a token for 15 minutes after its signing date whatever this says,
# so a caller renews well before that: see RENEW_AFTER_SECONDS.
URL_LIFETIME_SECONDS = 60
RENEW_AFTER_SECONDS = 10 * 60

_HEADER = "x-k8s-aws-id"
_PARAMETER = "ClusterName"


def kubernetes_token(sts_client: "STSClient", cluster_name: str) -> str:
    """The token for `cluster_name`, signed with the credentials and for the endpoint of `sts_client`."""
    _teach_cluster_header(sts_client)
    url = sts_client.generate_presigned_url(
        "get_caller_identity",
        Params={_PARAMETER: cluster_name},
        ExpiresIn=URL_LIFETIME_SECONDS,
        HttpMethod="GET",
    )
    return TOKEN_PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _teach_cluster_header(sts_client: "STSClient") -> None:
    """Let GetCallerIdentity take a cluster name and sign it as a header; registering twice is harmless."""
    events = sts_client.meta.events
    events.register("provide-client-params.sts.GetCallerIdentity", _take_name, unique_id="spotwright-take")
    events.register("before-sign.sts.GetCallerIdentity", _sign_name, unique_id="spotwright-sign")


def _take_name(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Move the name out of the parameters (the API knows no such one) into the request's context."""
    if _PARAMETER in params:
        context[_PARAMETER] = params.pop(_PARAMETER)


def _sign_name(request: Any, **_: object) -> None:
    if _PARAMETER in request.context:
        request.headers[_HEADER] = request.context[_PARAMETER]
