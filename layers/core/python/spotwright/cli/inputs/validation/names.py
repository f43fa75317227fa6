"""Syntax of names, labels and ports. Source: k8s.io/apimachinery/pkg/util/validation and ``api/validation``."""

import re
from collections.abc import Callable
from typing import Final

from spotwright.cli.inputs.validation.problems import Kind, Path, Problem, Problems
from spotwright.model.quoting import quote

type Check = Callable[[object, Path], Problems]

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_PORT: Final = re.compile(r"(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ENVIRONMENT: Final = re.compile(r"[\x20-\x3c\x3e-\x7e]+")


def label_key(value: object, path: Path) -> Problems:
    """A qualified name: ``topology.kubernetes.io/zone``."""
    if isinstance(value, str) and value and not is_label_key(value):
        yield Problem(
            Kind.VALUE,
            path,
            f"{quote(value)} is not a label key: letters, digits, - _ . (at most 63), with a domain and / before it"
            " if need be",
        )


def is_label_key(value: str) -> bool:
    prefix, slash, name = value.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def label_value(value: object, path: Path) -> Problems:
    if isinstance(value, str) and value and (len(value) > 63 or not _NAME.fullmatch(value)):
        yield Problem(
            Kind.VALUE,
            path,
            f"{quote(value)} is not a label value: at most 63 letters, digits, - _ . that begin and end with a letter"
            " or digit",
        )


def dns_label(value: object, path: Path) -> Problems:
    yield from _matching(
        value, path, _DNS_LABEL, 63, "a name of at most 63 lower-case letters, digits and -, such as web-1"
    )


def dns_1035_label(value: object, path: Path) -> Problems:
    yield from _matching(
        value,
        path,
        _DNS_1035,
        63,
        "a name of at most 63 lower-case letters, digits and - that begins with a letter, such as web-1",
    )


def dns_subdomain(value: object, path: Path) -> Problems:
    yield from _matching(
        value, path, _SUBDOMAIN, 253, "a name of at most 253 lower-case letters, digits, - and ., such as web-1.example"
    )


def path_segment(value: object, path: Path) -> Problems:
    """Names of RBAC objects: anything that may be a part of a URL."""
    if isinstance(value, str) and (value in (".", "..") or "/" in value or "%" in value):
        yield Problem(Kind.VALUE, path, f"{quote(value)} is not a name: it may not be . or .. or contain / or %")


def port_name(value: object, path: Path) -> Problems:
    text = value if isinstance(value, str) else ""
    if text and (len(text) > 15 or not _PORT.fullmatch(text) or text.replace("-", "").isdigit()):
        yield Problem(
            Kind.VALUE,
            path,
            f"{quote(value)} is not a port's name: at most 15 lower-case letters, digits and -, at least one letter",
        )


def environment_name(value: object, path: Path) -> Problems:
    yield from _matching(value, path, _ENVIRONMENT, 2**31, "the name of an environment variable: it may not contain =")


def _matching(value: object, path: Path, pattern: re.Pattern[str], longest: int, what: str) -> Problems:
    if isinstance(value, str) and value and (len(value) > longest or not pattern.fullmatch(value)):
        yield Problem(Kind.VALUE, path, f"{quote(value)} is not {what}")
