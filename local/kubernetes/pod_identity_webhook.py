"""`python -m local.kubernetes.pod_identity_webhook`: EKS's webhook that tells pods of their Pod Identity.

A pod whose service account has an association when the pod is admitted gets the variables with which an SDK asks the
agent for credentials, and the token to show there. A pod that was admitted before never gets them.
Source: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html
"""

import argparse
import base64
import json
import ssl
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3

CREDENTIALS_URI = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
TOKEN_FILE = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
TOKEN_FOLDER = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
AUDIENCE = "pods.eks.amazonaws.com"
VOLUME = "eks-pod-identity-token"
# The agent of every node, at a link-local address.
AGENT = "http://169.254.170.23/v1/credentials"
TOKEN_SECONDS = 86400
TIMEOUT_SECONDS = 25.0

# Namespace and service account -> whether it has an association that counts.
type IsAssociated = Callable[[str, str], bool]


def review_admission(review: Mapping[str, Any], is_associated: IsAssociated) -> dict[str, Any]:
    """The `response` of an AdmissionReview of a pod; always allowed."""
    request = review["request"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    pod = request["object"]
    if is_associated(request["namespace"], pod["spec"].get("serviceAccountName") or "default"):
        patch = json.dumps(mutation(pod)).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return response


def mutation(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A JSON patch: a volume with the token, and in each container where it is and who takes it."""
    source = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": VOLUME}
    volume = {"name": VOLUME, "projected": {"sources": [{"serviceAccountToken": source}]}}
    mount = {"name": VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True}
    variables = [
        {"name": CREDENTIALS_URI, "value": AGENT},
        {"name": TOKEN_FILE, "value": f"{TOKEN_FOLDER}/{VOLUME}"},
    ]
    steps = [_appended("/spec/volumes", pod["spec"].get("volumes"), [volume])]
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod["spec"].get(kind) or []):
            place = f"/spec/{kind}/{number}"
            named = {variable["name"] for variable in container.get("env") or []}
            fresh = [variable for variable in variables if variable["name"] not in named]
            steps.append(_appended(f"{place}/env", container.get("env"), fresh))
            steps.append(_appended(f"{place}/volumeMounts", container.get("volumeMounts"), [mount]))
    return steps


def _appended(path: str, present: list[Any] | None, added: list[Any]) -> dict[str, Any]:
    return {"op": "replace" if present else "add", "path": path, "value": [*(present or []), *added]}


class Associations:
    """Asks `POST /_local/podidentity/associated`. While AWS does not answer, nobody is associated."""

    def __init__(self, aws_endpoint: str, cluster: str) -> None:
        self._url = f"{aws_endpoint}/_local/podidentity/associated"
        self._cluster = cluster
        self._pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS)

    def __call__(self, namespace: str, service_account: str) -> bool:
        question = {"cluster": self._cluster, "namespace": namespace, "serviceAccount": service_account}
        try:
            answer = self._pool.request("POST", self._url, body=json.dumps(question).encode())
        except urllib3.exceptions.HTTPError as error:
            print(f"AWS does not answer: {error}", file=sys.stderr, flush=True)
            return False
        return answer.status == 200 and bool(json.loads(answer.data).get("associated"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    is_associated: Associations

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        response = review_admission(review, self.is_associated)
        answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: most pods are nobody's concern."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--aws", required=True, help="endpoint of the local AWS")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    arguments = parser.parse_args()
    Handler.is_associated = Associations(arguments.aws, arguments.cluster)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments.certificate, arguments.key)
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
