"""The installer's access to an EKS cluster: an access entry that exists only while the installer runs.

Source: https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html. An entry and its policy are
eventually consistent: the API server may answer 401 or 403 for some seconds after they were created.
"""

import base64
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from spotwright.adapters.aws.eks.token import RENEW_AFTER_SECONDS, kubernetes_token
from spotwright.adapters.aws.errors import translate_errors
from spotwright.adapters.kubernetes.connection import token_configuration
from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
from spotwright.errors import Conflict, NotFound, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_eks.client import EKSClient
    from mypy_boto3_sts.client import STSClient


class TemporaryAccessEntry:
    """Makes a role cluster administrator of a cluster, from ``open`` to ``close``; both may run twice."""

    def __init__(self, eks: "EKSClient", sts: "STSClient", *, cluster: str, role_arn: str) -> None:
        self._eks = eks
        self._sts = sts
        self._cluster = cluster
        self._role_arn = role_arn

    def open(self) -> DynamicClient:
        """Create the access entry and return a client without retries, since the caller waits until the entry takes
        effect. Raises NotFound when the cluster does not exist, Unavailable while it has no endpoint."""
        name, role = self._cluster, self._role_arn
        with translate_errors("DescribeCluster"):
            cluster = self._eks.describe_cluster(name=name)["cluster"]
        endpoint, authority = cluster.get("endpoint"), cluster.get("certificateAuthority", {}).get("data")
        if not endpoint or not authority:
            raise Unavailable(f"cluster {name} is {cluster.get('status')} and has no endpoint yet")
        # Conflict: the entry is left from a run that was killed; ``close`` removes it too.
        with suppress(Conflict), translate_errors("CreateAccessEntry"):
            self._eks.create_access_entry(clusterName=name, principalArn=role, type="STANDARD")
        with translate_errors("AssociateAccessPolicy"):
            self._eks.associate_access_policy(
                clusterName=name, principalArn=role, policyArn=self._policy_arn(), accessScope={"type": "cluster"}
            )
        configuration = token_configuration(endpoint, base64.b64decode(authority).decode(), self._token_source())
        return DynamicClient(configuration, attempts=1)

    def close(self) -> None:
        """Remove the access entry, and with it the policy; no error when the entry or the cluster does not exist."""
        with suppress(NotFound), translate_errors("DeleteAccessEntry"):
            self._eks.delete_access_entry(clusterName=self._cluster, principalArn=self._role_arn)

    def _policy_arn(self) -> str:
        partition = self._role_arn.split(":")[1]
        return f"arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"

    def _token_source(self) -> Callable[[], str]:
        made_at, token = float("-inf"), ""

        def source() -> str:
            nonlocal made_at, token
            if time.monotonic() - made_at > RENEW_AFTER_SECONDS:
                made_at, token = time.monotonic(), kubernetes_token(self._sts, self._cluster)
            return token

        return source
