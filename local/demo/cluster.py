"""Lists from the API server, raw."""

import json
from typing import Any

from kubernetes.client import ApiClient

PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "nodeclaims": "/apis/karpenter.sh/v1/nodeclaims",
    "nodepools": "/apis/karpenter.sh/v1/nodepools",
    "ec2nodeclasses": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "events": "/api/v1/events",
}


class Api:
    """A small reader; kinds whose CRD is not installed (yet) list as empty."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def everything(self) -> dict[str, list[dict[str, Any]]]:
        return {kind: self._list(path) for kind, path in PATHS.items()}

    def _list(self, path: str) -> list[dict[str, Any]]:
        url = self._client.configuration.host + path
        answer = self._client.rest_client.request("GET", url, _request_timeout=5)  # type: ignore[no-untyped-call]
        if answer.status == 404:
            return []
        body = json.loads(answer.read())
        if answer.status != 200:
            raise OSError(f"GET {path}: {body.get('message')}")
        return list(body["items"])
