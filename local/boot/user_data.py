"""Reads an instance's user data the way its operating system does, and nothing more leniently.

AL2 and Windows are read by `bootstrap_scripts`, Bottlerocket by `bottlerocket`; what follows is nodeadm on AL2023:
MIME multipart, parts of type application/node.eks.aws, each a NodeConfig (node.eks.aws/v1alpha1), merged
in their order: later values win, objects merge, kubelet flags add up. User data that is no MIME message is
one NodeConfig as a whole. Facts from awslabs/amazon-eks-ami, nodeadm/internal/configprovider and api.
"""

import base64
import binascii
import contextlib
import email
import gzip
import zlib
from dataclasses import dataclass
from email.message import Message
from typing import Any

import yaml

MEDIA_TYPE = "application/node.eks.aws"
API_VERSION = "node.eks.aws/v1alpha1"
LIMIT_BYTES = 16384


class BootError(Exception):
    """A node with this would not join; `code` is one word for it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The merged NodeConfig: cluster details, kubelet configuration and flags, local storage strategy.

    `cidr` is empty where the operating system is not told the range of services.
    """

    cluster_name: str
    endpoint: str
    certificate_authority: bytes
    cidr: str
    kubelet: dict[str, Any]
    flags: tuple[str, ...]
    storage_strategy: str


def parse_al2023(encoded: str) -> NodeConfig:
    """The NodeConfig in base64 user data as EC2 stores it. Raises BootError."""
    documents = [_document(part) for part in _parts(_unpacked(decode_user_data(encoded)))]
    merged: dict[str, Any] = {}
    for document in documents:
        merged = _merged(merged, document)
    return _node_config(merged)


def decode_user_data(encoded: str) -> bytes:
    """User data as bytes. Raises BootError for what EC2 would not keep."""
    if not encoded:
        raise BootError("NoUserData", "the instance has no user data")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise BootError("UserDataNotBase64", f"user data is not base64: {error}") from error
    if len(data) > LIMIT_BYTES:
        raise BootError("UserDataTooLong", f"user data has {len(data)} bytes, EC2 takes {LIMIT_BYTES}")
    return data


def _unpacked(data: bytes) -> bytes:
    """Base64 in base64 and gzip are accepted, as nodeadm does."""
    with contextlib.suppress(binascii.Error):
        data = base64.b64decode(data, validate=True)
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise BootError("UserDataNotGzip", f"user data looks like gzip but is not: {error}") from error


def _parts(data: bytes) -> list[bytes]:
    """The NodeConfig documents in order."""
    message = email.message_from_bytes(data)
    if message.get_content_maintype() != "multipart" or message["Content-Type"] is None:
        return [data]
    if message.defects or not message.is_multipart():
        raise BootError("MimeBroken", f"not a MIME multipart message: {_defects(message)}")
    parts = [part for part in _subparts(message) if part.get_content_type() == MEDIA_TYPE]
    if not parts:
        raise BootError("NoNodeConfig", f"no part of type {MEDIA_TYPE} in the user data")
    return [_unpacked(_payload(part)) for part in parts]


def _subparts(message: Message) -> list[Message]:
    payload = message.get_payload()
    return [part for part in payload if isinstance(part, Message)] if isinstance(payload, list) else []


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _defects(message: Message) -> str:
    return ", ".join(type(defect).__name__ for defect in message.defects) or "no parts"


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = yaml.safe_load(data.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BootError("NodeConfigUnreadable", f"NodeConfig is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise BootError("NoNodeConfig", "the user data is not a NodeConfig")
    found = (document.get("apiVersion"), document.get("kind"))
    if found != (API_VERSION, "NodeConfig"):
        raise BootError("NoNodeConfig", f"found {found[0]}/{found[1]}, not {API_VERSION}/NodeConfig")
    return document


def _merged(first: Any, second: Any, path: str = "") -> Any:
    """`second` over `first`: objects merge, empty values do not win, kubelet flags are appended."""
    if path == "/spec/kubelet/flags":
        return [*(first or []), *(second or [])]
    if isinstance(first, dict) and isinstance(second, dict):
        both = dict(first)
        for key, value in second.items():
            both[key] = _merged(first.get(key), value, f"{path}/{key}")
        return both
    return second if second not in (None, "", [], {}) else first


def _node_config(document: dict[str, Any]) -> NodeConfig:
    cluster = _typed(document, dict, "spec", "cluster")
    return NodeConfig(
        cluster_name=_required(cluster, "name"),
        endpoint=_required(cluster, "apiServerEndpoint"),
        certificate_authority=decode_certificate_authority(_required(cluster, "certificateAuthority")),
        cidr=_required(cluster, "cidr"),
        kubelet=_typed(document, dict, "spec", "kubelet", "config"),
        flags=tuple(_flags(document)),
        storage_strategy=_typed(document, str, "spec", "instance", "localStorage", "strategy"),
    )


def _typed[T](document: dict[str, Any], kind: type[T], *path: str) -> T:
    """The value at `path`, an empty one when it is missing. Raises BootError when it is of another type."""
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else value
        if value is None:
            return kind()
    if not isinstance(value, kind):
        raise BootError("NodeConfigInvalid", f"{'.'.join(path)} is {type(value).__name__}, not {kind.__name__}")
    return value


def _required(cluster: dict[str, Any], field: str) -> str:
    value = _typed(cluster, str, field)
    if not value:
        raise BootError("NodeConfigInvalid", f"cluster.{field} is missing")
    return value


def _flags(document: dict[str, Any]) -> list[str]:
    flags: list[Any] = _typed(document, list, "spec", "kubelet", "flags")
    if not all(isinstance(flag, str) for flag in flags):
        raise BootError("NodeConfigInvalid", "spec.kubelet.flags holds something that is not a string")
    return flags


def decode_certificate_authority(encoded: str) -> bytes:
    """The certificate authority in base64. Raises BootError."""
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise BootError("AuthorityNotBase64", f"cluster.certificateAuthority is not base64: {error}") from error
