"""Kubeconfig files with one cluster and one user, as the local stack writes and reads them."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local.kubernetes.certificates import KeyPair

NAME = "local"


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """What a kubeconfig says: server URL, CA (PEM), and a client certificate or a bearer token."""

    server: str
    certificate_authority: bytes
    client_certificate: KeyPair | None
    token: str | None


def write_kubeconfig(path: Path, *, server: str, certificate_authority: bytes, user: dict[str, Any]) -> None:
    """Write a kubeconfig; `user` is the user entry as in the file format."""
    authority = base64.b64encode(certificate_authority).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": NAME, "user": user}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def certificate_user(pair: KeyPair) -> dict[str, Any]:
    """The user entry of a client certificate."""
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}


def read_kubeconfig(path: Path) -> Kubeconfig:
    """Read a kubeconfig that `write_kubeconfig` wrote."""
    document = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    pair = None
    if "client-certificate" in user:
        pair = KeyPair(Path(user["client-certificate"]), Path(user["client-key"]))
    authority = base64.b64decode(cluster["certificate-authority-data"])
    return Kubeconfig(cluster["server"], authority, pair, user.get("token"))
