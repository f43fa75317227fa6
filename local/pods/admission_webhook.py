"""The admission webhook that runs as a pod: pods and config maps it guards must carry a label `team`.

Reads LISTEN (host:port), TLS_CERTIFICATE and TLS_KEY (PEM) from the environment.
"""

import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LABEL = "team"


def review_admission(review: Mapping[str, Any]) -> dict[str, Any]:
    """The `response` of an AdmissionReview."""
    request = review["request"]
    metadata = (request.get("object") or {}).get("metadata") or {}
    if LABEL in (metadata.get("labels") or {}):
        return {"uid": request["uid"], "allowed": True}
    text = f"{request['kind']['kind']} needs a label {LABEL}"
    return {"uid": request["uid"], "allowed": False, "status": {"code": 403, "message": text}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": review_admission(review)}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


def main() -> None:
    host, _, port = os.environ["LISTEN"].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        key.touch(mode=0o600)
        certificate.write_text(os.environ["TLS_CERTIFICATE"])
        key.write_text(os.environ["TLS_KEY"])
        context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"policy webhook listens at {host}:{port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
