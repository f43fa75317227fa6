"""Kubernetes objects by document: read, server-side apply, merge, delete, list.

Documents are plain JSON objects and stop here and in the installing workflows.
"""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlencode

from kubernetes.client.configuration import Configuration

from spotwright.adapters.kubernetes.connection import Connection, JsonObject
from spotwright.errors import NotFound, Throttled, Unavailable

FIELD_MANAGER = "spotwright-install"
ATTEMPTS = 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
PAGE_SIZE = 500

# Plural, and whether it is namespaced, of every kind that is installed or uninstalled.
_KINDS: Mapping[str, tuple[str, bool]] = {
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "PriorityLevelConfiguration": ("prioritylevelconfigurations", False),
    "FlowSchema": ("flowschemas", False),
    "ServiceAccount": ("serviceaccounts", True),
    "Deployment": ("deployments", True),
    "DaemonSet": ("daemonsets", True),
    "Node": ("nodes", False),
    "NodeClaim": ("nodeclaims", False),
    "NodePool": ("nodepools", False),
    "NodeOverlay": ("nodeoverlays", False),
    "EC2NodeClass": ("ec2nodeclasses", False),
    "Pod": ("pods", True),
    "PersistentVolumeClaim": ("persistentvolumeclaims", True),
    "StorageClass": ("storageclasses", False),
    "CSIDriver": ("csidrivers", False),
}


class DynamicClient:
    """An API server. Every call has a timeout, and is retried with jitter while the server is unavailable."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        attempts: int = ATTEMPTS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(configuration)
        self._attempts = attempts
        self._pause = pause

    def read(self, document: JsonObject) -> JsonObject | None:
        """The live object of that kind and name; None when the API server says there is none."""
        try:
            return self._request("GET", object_path(document))
        except NotFound:
            return None

    def apply(self, document: JsonObject, *, manager: str = FIELD_MANAGER) -> JsonObject:
        """Server-side apply with force: takes the document's fields over from other managers."""
        query = urlencode({"fieldManager": manager, "force": "true"})
        return self._request("PATCH", f"{object_path(document)}?{query}", document, "application/apply-patch+yaml")

    def merge(self, document: JsonObject, change: JsonObject) -> JsonObject:
        """Merge ``change`` into the live object. Raises NotFound."""
        return self._request("PATCH", object_path(document), change, "application/merge-patch+json")

    def delete(self, document: JsonObject) -> None:
        """Delete by kind and name, and by uid where the document has one; absence is success. Raises Conflict."""
        uid = document["metadata"].get("uid")
        options: JsonObject = {"propagationPolicy": "Background"} | ({"preconditions": {"uid": uid}} if uid else {})
        with suppress(NotFound):
            self._request("DELETE", object_path(document), options, "application/json")

    def list(self, api_version: str, kind: str, namespace: str = "", selector: str = "") -> list[JsonObject]:
        """All objects of a kind in a namespace, "" = in all, with these labels. Raises ApiError."""
        documents: list[JsonObject] = []
        query = {"limit": str(PAGE_SIZE)} | ({"labelSelector": selector} if selector else {})
        path = collection_path(api_version, kind, namespace)
        while True:
            page = self._request("GET", f"{path}?{urlencode(query)}")
            documents.extend(page.get("items") or ())
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return documents
            query["continue"] = token

    def _request(self, method: str, path: str, body: JsonObject | None = None, content_type: str = "") -> JsonObject:
        """Retry while the server throttles or is unavailable; every request here may be sent twice."""
        for attempt in range(self._attempts - 1):
            with suppress(Throttled, Unavailable):
                return self._connection.call(method, path, body, content_type)
            longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
            self._pause(random.uniform(longest / 2, longest))
        return self._connection.call(method, path, body, content_type)


def object_path(document: JsonObject) -> str:
    """The object's path, from apiVersion, kind, namespace and name."""
    metadata = document["metadata"]
    collection = collection_path(document["apiVersion"], document["kind"], metadata.get("namespace", ""))
    return f"{collection}/{metadata['name']}"


def collection_path(api_version: str, kind: str, namespace: str = "") -> str:
    """The path of all objects of a kind, or of those in a namespace."""
    plural, namespaced = _KINDS[kind]
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespaced and namespace else f"{root}/{plural}"
