"""Fills the API server of a local stack with nodes and pods, several requests at a time."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.realistic_objects import Object
from bench.scale.objects import NAMESPACES, new_node, new_pod, pod_path
from local.kubernetes.api import ATTEMPTS, ApiError, ApiUnavailable, KubernetesApi

# More do not help: this process and the API server share the machine.
_AT_ONCE: Final = 8


class ThreadApis:
    """Connections to the API server, its own for each thread."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig, self._local = kubeconfig, threading.local()

    @property
    def api(self) -> KubernetesApi:
        if not hasattr(self._local, "api"):
            self._local.api = KubernetesApi(self._kubeconfig)
        api: KubernetesApi = self._local.api
        return api


class Filler:
    """Knows how many nodes and pods it has created so far."""

    def __init__(self, apis: ThreadApis) -> None:
        self._apis = apis
        self.nodes = self.pods = 0

    def grow_to(self, nodes: int, pods: int) -> None:
        """Create what is missing. Raises ApiError."""
        if not self.pods:
            self._prepare()
        side_by_side(self._create_node, range(self.nodes, nodes))
        self.nodes = max(self.nodes, nodes)
        side_by_side(self._create_pod, range(self.pods, pods))
        self.pods = max(self.pods, pods)

    def _prepare(self) -> None:
        """Namespaces with the service accounts that pods need."""
        for name in NAMESPACES:
            self._create("/api/v1/namespaces", {"metadata": {"name": name}})
            accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
            # kube-controller-manager makes them as well.
            self._create(accounts, {"metadata": {"name": "default"}}, may_exist=True)

    def _create_node(self, number: int) -> None:
        node = new_node(number)
        self._create("/api/v1/nodes", node)
        # Each new node has the taint not-ready until the node controller has looked at it, which is held meanwhile.
        self._apis.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})

    def _create_pod(self, number: int) -> None:
        pod, status = new_pod(number)
        self._create(pod_path(number).rpartition("/")[0], pod)
        self._apis.api.patch(f"{pod_path(number)}/status", {"status": status})

    def _create(self, path: str, value: Object, *, may_exist: bool = False) -> None:
        """Try again while a busy API server gives no answer; what an attempt without answer created is there."""
        for attempt in range(ATTEMPTS):
            try:
                self._apis.api.create(path, value)
            except ApiUnavailable:
                if attempt == ATTEMPTS - 1:
                    raise
            except ApiError as error:
                if error.reason != "AlreadyExists" or not (attempt or may_exist):
                    raise
                return
            else:
                return


def side_by_side(create: Callable[[int], object], numbers: Iterable[int]) -> None:
    """Call for each number, several at a time; the first error ends it."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        try:
            for _ in threads.map(create, numbers):
                pass
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
