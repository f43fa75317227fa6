"""A throw-away certificate authority for one stack, and the certificates and keys it gives out."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = dt.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Paths of a certificate and its key, both PEM."""

    certificate: Path
    key: Path


class KeyIdentifiers(StrEnum):
    """Do certificates name the keys of subject and issuer?

    OMITTED is how EKS's own authority does it on many clusters. It is allowed (RFC 5280, 4.2.1.1), but the
    strict verification that Python switches on by default since 3.13 refuses it:
    https://github.com/kubernetes-client/python/issues/2394
    """

    INCLUDED = "given"
    OMITTED = "left-out"


class CertificateAuthority:
    """A CA whose files lie in `folder`: ca.crt, ca.key, and NAME.crt, NAME.key of what it issued."""

    def __init__(self, folder: Path, identifiers: KeyIdentifiers = KeyIdentifiers.INCLUDED) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "local-kubernetes")])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(authority=True), critical=True)
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._identifiers = identifiers
        if identifiers is KeyIdentifiers.INCLUDED:
            builder = builder.add_extension(self._identifier, critical=False)
        self.pair = _write(folder, "ca", builder.sign(self._key, hashes.SHA256()), self._key)

    @property
    def pem(self) -> bytes:
        """The CA's certificate, PEM."""
        return self.pair.certificate.read_bytes()

    def issue_client_certificate(self, name: str, *, user: str, group: str | None = None) -> KeyPair:
        """A client certificate: Kubernetes takes `user` and `group` from its subject."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        return self._issue(name, x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def issue_server_certificate(self, name: str, hosts: list[str]) -> KeyPair:
        """A server certificate for these names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(name, subject, ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def _issue(self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, hosts: list[str]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if self._identifiers is KeyIdentifiers.INCLUDED:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
            builder = builder.add_extension(issuer, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return _write(self._folder, name, builder.sign(self._key, hashes.SHA256()), key)


def create_service_account_keys(folder: Path) -> KeyPair:
    """The pair that signs and checks service account tokens; `certificate` is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / "service-account.pub", folder / "service-account.key")
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    pair.certificate.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, public))
    _write_key(pair.key, key)
    return pair


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + VALIDITY)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pair = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)
    return pair


def _write_key(path: Path, key: CertificateIssuerPrivateKeyTypes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
