"""Calls of functions and pods go over TLS, as they do to AWS: a certificate for this process, and whom to trust for it.

A connection costs its client a handshake, and reading the authorities that it trusts: SDKs for Python read their whole
bundle again for every connection.
"""

import hashlib
import socket
import ssl
import uuid
from pathlib import Path

import certifi

from local.aws.emulator import Emulator
from local.aws.strictness import Rule
from local.kubernetes.certificates import CertificateAuthority

# The first byte of a TLS connection: a handshake record (RFC 8446, 5.1). No HTTP request begins with it.
_HANDSHAKE = b"\x16"
HANDSHAKE_SECONDS = 60.0


class Tls:
    """The process's certificate, by an authority of its own whose files lie in DIRECTORY/tls."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._folder = emulator.directory / "tls"
        authority = CertificateAuthority(self._folder)
        pair = authority.issue_server_certificate("aws", ["127.0.0.1"])
        self._pem = authority.pem
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)

    def accept(self, connection: socket.socket) -> socket.socket:
        """The connection as its client speaks: with TLS or without. Raises OSError when the client does neither."""
        connection.settimeout(HANDSHAKE_SECONDS)
        if connection.recv(1, socket.MSG_PEEK) == _HANDSHAKE:
            connection = self._context.wrap_socket(connection, server_side=True)
        connection.settimeout(None)
        return connection

    def environment(self, trusted: Path | None = None) -> dict[str, str]:
        """Variables for an SDK that calls as AWS is called. `trusted`: its authorities, AWS's among them (PEM)."""
        if not self._emulator.strictness.holds(Rule.TLS):
            return {"AWS_ENDPOINT_URL": self._emulator.endpoint}
        bundle = self._bundle(trusted or Path(certifi.where()))
        return {"AWS_ENDPOINT_URL": self._emulator.secure_endpoint, "AWS_CA_BUNDLE": str(bundle)}

    def _bundle(self, trusted: Path) -> Path:
        """A file with these authorities and this process's."""
        content = trusted.read_bytes() + b"\n" + self._pem
        path = self._folder / f"{hashlib.sha256(content).hexdigest()[:16]}.pem"
        if not path.exists():
            unfinished = path.with_suffix(f".{uuid.uuid4()}")
            unfinished.write_bytes(content)
            unfinished.replace(path)
        return path


def add(emulator: Emulator) -> None:
    tls = emulator.component(Tls)
    emulator.route("GET", "/_local/tls", lambda _body, _query: {"environment": tls.environment()})


def trusted_by(opt: Path, variables: dict[str, str]) -> Path | None:
    """The authorities of a function with these layers: those that its variables name, else those of its SDK."""
    named = variables.get("AWS_CA_BUNDLE", "")
    choices = [opt / named.removeprefix("/opt/")] if named else []
    choices += [opt / "python" / "certifi" / "cacert.pem", opt / "python" / "botocore" / "cacert.pem"]
    return next((path for path in choices if path.is_file()), None)
