"""Without its generated classes the Kubernetes client still talks to an API server: TLS, verbs, patches, streams."""

import base64
import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.layer.conftest import Python


@dataclass(slots=True)
class ApiServer:
    """A TLS server that answers every request with what it was asked."""

    url: str
    authority: str
    seen: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[ApiServer]:
    certificate, key = _certificate(tmp_path)
    seen: list[dict[str, Any]] = []

    class Echo(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            seen.append({"verb": self.command, "path": self.path, "body": body, "headers": dict(self.headers)})
            status = 404 if "missing" in self.path else 200
            reply = b'{"type":"ADDED"}\n{"type":"BOOKMARK"}\n' if "watch" in self.path else b'{"kind":"Status"}'
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield ApiServer(f"https://127.0.0.1:{server.server_port}", certificate.read_text(), seen)
    server.shutdown()
    server.server_close()
    thread.join(5)


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "tls.crt", folder / "tls.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, private


def _client(server: ApiServer) -> str:
    """Code that makes the library's own transport to a server, as a function does after DescribeCluster."""
    authority = base64.b64encode(server.authority.encode()).decode()
    return (
        "from spotwright.adapters.kubernetes.transport import APPLY_PATCH, Transport\n"
        f"api = Transport(endpoint={server.url!r}, certificate_authority={authority!r}, token=lambda: 'secret')\n"
    )


def test_every_verb_reaches_the_server_with_its_body_and_token(python: Python, api_server: ApiServer) -> None:
    python(
        _client(api_server)
        + "api.call('GET', '/api/v1/pods', query={'limit': '500'})\n"
        + "api.call('POST', '/api/v1/nodes', body={'kind': 'Node'})\n"
        + "api.call('PATCH', '/api/v1/nodes/n', body={'kind': 'Node'}, content_type=APPLY_PATCH)\n"
        + "api.call('DELETE', '/api/v1/nodes/n', body={'preconditions': {'uid': 'u'}})\n"
    )
    asked = [(each["verb"], each["path"], json.loads(each["body"] or "null")) for each in api_server.seen]
    assert asked == [
        ("GET", "/api/v1/pods?limit=500", None),
        ("POST", "/api/v1/nodes", {"kind": "Node"}),
        ("PATCH", "/api/v1/nodes/n", {"kind": "Node"}),
        ("DELETE", "/api/v1/nodes/n", {"preconditions": {"uid": "u"}}),
    ]
    assert {each["headers"]["Authorization"] for each in api_server.seen} == {"Bearer secret"}
    assert api_server.seen[2]["headers"]["Content-Type"] == "application/apply-patch+yaml"


def test_a_failure_is_told_by_its_status(python: Python, api_server: ApiServer) -> None:
    code = "from spotwright.errors import NotFound\ntry: api.call('GET', '/missing')\n"
    assert python(_client(api_server) + code + "except NotFound: print('not found')") == "not found\n"


def test_a_server_with_another_certificate_is_not_trusted(
    python: Python, api_server: ApiServer, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    stranger = ApiServer(api_server.url, _certificate(folder)[0].read_text())
    code = "from spotwright.errors import Unavailable\ntry: api.call('GET', '/x', attempts=1)\n"
    assert "its certificate is not trusted" in python(_client(stranger) + code + "except Unavailable as e: print(e)")
    assert api_server.seen == []


def test_an_answer_can_be_read_line_by_line(python: Python, api_server: ApiServer) -> None:
    """What a watch needs, although functions list."""
    code = (
        "from kubernetes.client.configuration import Configuration\n"
        "from kubernetes.client.rest import RESTClientObject\n"
        f"settings = Configuration(host={api_server.url!r})\n"
        f"settings.ca_cert_data = {api_server.authority!r}\n"
        f"answer = RESTClientObject(settings).request('GET', {api_server.url + '/watch'!r})\n"
        "print(sum(chunk.count(b'type') for chunk in answer.response.stream(8)))"
    )
    assert python(code) == "2\n"
