"""Certificates with and without key identifiers, as EKS clusters have both."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from local.kubernetes.api import lenient_context
from local.kubernetes.certificates import CertificateAuthority, KeyIdentifiers


def shake_hands(authority: CertificateAuthority, context: ssl.SSLContext, host: str = "127.0.0.1") -> None:
    """A TLS connection to a server with a certificate for 127.0.0.1."""
    pair = authority.issue_server_certificate("server", ["127.0.0.1"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        context.wrap_socket(ours, server_hostname=host).close()
    finally:
        ours.close()
        thread.join(10)


def test_complete_certificates_pass_strict_verification(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    shake_hands(authority, ssl.create_default_context(cadata=authority.pem.decode()))


def test_without_key_identifiers_only_lenient_verification_passes(tmp_path: Path) -> None:
    """What clients of old EKS clusters meet with Python 3.13."""
    authority = CertificateAuthority(tmp_path, KeyIdentifiers.OMITTED)
    with pytest.raises(ssl.SSLCertVerificationError, match="Key Identifier"):
        shake_hands(authority, ssl.create_default_context(cadata=authority.pem.decode()))
    shake_hands(authority, lenient_context(authority.pem))


def test_lenient_verification_still_refuses_strangers_and_other_hosts(tmp_path: Path) -> None:
    authority, stranger = CertificateAuthority(tmp_path / "a"), CertificateAuthority(tmp_path / "b")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(stranger, lenient_context(authority.pem))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(authority, lenient_context(authority.pem), host="127.0.0.2")
