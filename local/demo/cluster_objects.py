"""What the API server has, followed by watches: a cluster that rests costs nothing, and a change is seen at once."""

import threading
from pathlib import Path
from typing import Any

from local.kubernetes.api import KubernetesApi
from local.kubernetes.informer import Informer

API_PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "nodeclaims": "/apis/karpenter.sh/v1/nodeclaims",
    "nodepools": "/apis/karpenter.sh/v1/nodepools",
    "ec2nodeclasses": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "events": "/api/v1/events",
}


class ClusterObjects:
    """Copies of all objects of the kinds above. `changed` is set whenever one of them changes."""

    def __init__(self, kubeconfig: Path, changed: threading.Event) -> None:
        self._api = KubernetesApi(kubeconfig)
        self._changed = changed
        self._followed: dict[str, Informer] = {}

    def by_kind(self) -> dict[str, list[dict[str, Any]]]:
        """By kind; a kind whose CRD is not installed yet has no objects."""
        for kind, path in API_PATHS.items():
            if kind not in self._followed and self._api.find(path) is not None:
                self._followed[kind] = Informer(self._api, path, self._changed)
        return {kind: [dict(object_) for object_ in followed.objects()] for kind, followed in self._followed.items()}

    def close(self) -> None:
        for followed in self._followed.values():
            followed.close()
