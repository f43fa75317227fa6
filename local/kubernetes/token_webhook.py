"""`python -m local.kubernetes.token_webhook`: the API server's token webhook.

Translates a TokenReview into a question to the local AWS, which replays the signed URL inside an EKS
token and maps the caller to its access entry.
"""

import argparse
import http.client
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PREFIX = "k8s-aws-v1."
# The API server waits for half a minute.
TIMEOUT_SECONDS = 25.0


class IdentityUnavailable(Exception):
    """The local AWS did not answer; the review must fail without being remembered."""


def review_token(token: str, ask: "IdentityClient") -> dict[str, Any]:
    """The `status` of a TokenReview. Tokens that are not EKS tokens are nobody's."""
    if not token.startswith(PREFIX):
        return {"authenticated": False}
    try:
        identity = ask(token)
    except IdentityUnavailable as error:
        return {"authenticated": False, "error": str(error)}
    if not identity.get("authenticated"):
        return {"authenticated": False}
    user: dict[str, Any] = {"username": identity["username"], "groups": list(identity.get("groups", []))}
    if identity.get("arn"):
        user["extra"] = {"arn": [identity["arn"]]}
    return {"authenticated": True, "user": user}


class IdentityClient:
    """Asks `POST /_local/identity` whose token this is."""

    def __init__(self, aws_endpoint: str, cluster: str) -> None:
        self._address = urlsplit(aws_endpoint).netloc
        self._cluster = cluster

    def __call__(self, token: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        try:
            body = json.dumps({"token": token, "cluster": self._cluster})
            connection.request("POST", "/_local/identity", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise IdentityUnavailable(f"AWS does not answer: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise IdentityUnavailable(f"AWS answered {response.status}: {answer}")
        return dict(answer)


class Handler(BaseHTTPRequestHandler):
    """Answers TokenReview requests with TokenReviews."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    identity: IdentityClient

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        status = review_token(str(request.get("spec", {}).get("token", "")), self.identity)
        answer = {"apiVersion": request.get("apiVersion"), "kind": "TokenReview", "status": status}
        user = status.get("user", {}).get("username", "nobody")
        print(f"{user} {status.get('error', '')}".strip(), flush=True)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: do_POST says what matters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--aws", required=True, help="endpoint of the local AWS")
    parser.add_argument("--cluster", required=True)
    arguments = parser.parse_args()
    Handler.identity = IdentityClient(arguments.aws, arguments.cluster)
    ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
