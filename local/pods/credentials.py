"""A pod's two identities: its service account's token in Kubernetes, and its role in AWS by Pod Identity."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3

from local.kubernetes.api import ApiError, ApiUnavailable, KubernetesApi
from local.kubernetes.kubeconfig import read_kubeconfig, write_kubeconfig
from local.kubernetes.pod_identity_webhook import AUDIENCE, CREDENTIALS_URI, TOKEN_FILE
from local.pods.environment import ContainerConfigError

TOKEN_SECONDS = 86400
# The local AWS's answer while the add-on is not installed.
NO_AGENT = 503
PREFIX = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class PodCredentials:
    """Files in `folder`, as in a pod: token, ca.crt, namespace; and a kubeconfig that refers to them."""

    folder: Path

    def renew(self, api: KubernetesApi, pod: Mapping[str, Any]) -> None:
        """Ask for new tokens that end with the pod. Raises ApiError."""
        _write(self.folder / "token", _token(api, pod, None))
        _write(self.folder / "eks-pod-identity-token", _token(api, pod, AUDIENCE))

    def environment(self, server: str) -> dict[str, str]:
        """What a process needs to find its identity in Kubernetes."""
        host, _, port = server.removeprefix("https://").rpartition(":")
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICEACCOUNT_DIRECTORY": str(self.folder),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
        }

    def pod_identity(self, container: Mapping[str, str], agent_uri: str) -> dict[str, str]:
        """Where this machine has what the webhook told a container of; empty for one that it told nothing."""
        if CREDENTIALS_URI not in container:
            return {}
        return {CREDENTIALS_URI: agent_uri, TOKEN_FILE: str(self.folder / "eks-pod-identity-token")}


def issue_credentials(folder: Path, api: KubernetesApi, pod: Mapping[str, Any], admin: Path) -> PodCredentials:
    """Write everything a pod would find mounted. Raises ApiError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    access = read_kubeconfig(admin)
    identity = PodCredentials(folder)
    identity.renew(api, pod)
    (folder / "ca.crt").write_bytes(access.certificate_authority)
    (folder / "namespace").write_text(pod["metadata"]["namespace"])
    write_kubeconfig(
        folder / "kubeconfig",
        server=access.server,
        certificate_authority=access.certificate_authority,
        user={"tokenFile": str(folder / "token")},
    )
    return identity


def _token(api: KubernetesApi, pod: Mapping[str, Any], audience: str | None) -> str:
    metadata = pod["metadata"]
    account = pod["spec"].get("serviceAccountName") or "default"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    spec = {"audiences": [audience] if audience else [], "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(api.create(path, request)["status"]["token"])


def _write(path: Path, text: str) -> None:
    """Replace atomically: a process may read it at any time."""
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


class PodIdentityAgent(ThreadingHTTPServer):
    """The Pod Identity agent of the nodes: token in the Authorization header, credentials of its role out."""

    daemon_threads = True

    def __init__(self, api: KubernetesApi, aws_endpoint: str, cluster: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._api = api
        self._aws_endpoint = aws_endpoint
        self._cluster = cluster
        self._pool = urllib3.PoolManager(retries=False, timeout=60.0)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/credentials"

    def credentials(self, token: str) -> tuple[int, bytes]:
        """HTTP status and body for a pod's token."""
        account = self._account(token)
        if account is None:
            return 401, b'{"message": "not a token of a pod"}'
        namespace, name = account
        question = {"cluster": self._cluster, "namespace": namespace, "serviceAccount": name}
        try:
            answer = self._pool.request(
                "POST", f"{self._aws_endpoint}/_local/podidentity", body=json.dumps(question).encode()
            )
        except urllib3.exceptions.HTTPError as error:
            return 502, json.dumps({"message": str(error)}).encode()
        return answer.status, answer.data

    def aws_environment(self) -> dict[str, str]:
        """Variables with which a pod's SDK calls the local AWS. Raises ContainerConfigError when it does not answer."""
        try:
            answer = self._pool.request("GET", f"{self._aws_endpoint}/_local/tls")
        except urllib3.exceptions.HTTPError as error:
            raise ContainerConfigError(f"the local AWS does not answer: {error}") from error
        if answer.status != 200:
            raise ContainerConfigError(f"the local AWS answers {answer.status} to /_local/tls")
        return dict(answer.json()["environment"])

    def _account(self, token: str) -> tuple[str, str] | None:
        """Namespace and name of the service account whose token this is."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            status = self._api.create("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
        except (ApiError, ApiUnavailable):
            return None
        user = str(status.get("user", {}).get("username", ""))
        if not status.get("authenticated") or not user.startswith(PREFIX):
            return None
        namespace, _, name = user.removeprefix(PREFIX).partition(":")
        return namespace, name


class _Handler(BaseHTTPRequestHandler):
    server: PodIdentityAgent

    def do_GET(self) -> None:
        status, body = self.server.credentials(self.headers.get("Authorization", ""))
        print(f"{time.strftime('%H:%M:%S')} pod identity: {status}", flush=True)
        if status == NO_AGENT:
            # Nobody listens at the agent's address on such a node.
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: do_GET says what matters."""
