"""A client that lists and watches what Karpenter reads through its cache, and counts what the API server sends it."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import urllib3

from local.kubernetes.api import ApiError, KubernetesApi

#: What the controllers of Karpenter 1.14 list or get by way of informers, as its source has it.
PATHS: Final = (
    *(f"/api/v1/{kind}" for kind in ("pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes")),
    *(f"/apis/storage.k8s.io/v1/{kind}" for kind in ("storageclasses", "csinodes", "volumeattachments")),
    "/apis/apps/v1/daemonsets",
    "/apis/policy/v1/poddisruptionbudgets",
    *(f"/apis/karpenter.sh/v1/{kind}" for kind in ("nodepools", "nodeclaims")),
    "/apis/karpenter.sh/v1alpha1/nodeoverlays",
    "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
)

_AGAIN_SECONDS: Final = 0.5


class Watcher:
    """Counts bytes of JSON. ``listed_bytes``: of all objects, once, as a controller reads them when it starts.

    A controller reads Kubernetes' own kinds as protobuf, which is smaller.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig, self._lock = kubeconfig, threading.Lock()
        self.listed_bytes = self.watched_bytes = self.changes = 0

    def start(self) -> None:
        """List everything, then watch until this process ends. Raises ApiError."""
        for path in PATHS:
            api = KubernetesApi(self._kubeconfig)
            listed = api.get(path)
            self.listed_bytes += _size(listed)
            version = listed["metadata"]["resourceVersion"]
            threading.Thread(target=self._watch, args=(api, path, version), daemon=True).start()

    def _watch(self, api: KubernetesApi, path: str, version: str) -> None:
        while True:
            # What came between two watches is not counted: one ends after some minutes.
            with suppress(ApiError, OSError, urllib3.exceptions.HTTPError):
                for event in api.watch(path, version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    with self._lock:
                        self.watched_bytes += _size(event)
                        self.changes += event["type"] != "BOOKMARK"
            time.sleep(_AGAIN_SECONDS)


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
