"""MIME multipart archives, as cloud-init and nodeadm read them from user data.

Written by hand because the bytes must be the same every time: they are hashed, compared and stored.
Source: https://cloudinit.readthedocs.io/en/latest/explanation/format.html (MIME multi-part archive).
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

NODE_CONFIG: Final = "application/node.eks.aws"
SHELL_SCRIPT: Final = 'text/x-shellscript; charset="us-ascii"'

_BOUNDARY: Final = re.compile(
    r'^content-type:\s*multipart/[^;]+;.*?boundary="?([^"\n;]+)"?', re.IGNORECASE | re.M | re.S
)


class Part(msgspec.Struct, frozen=True):
    """One entity. ``headers``: its header block as text, one header per line, without the empty line after it."""

    headers: str
    body: str


class MimeError(ValueError):
    """An archive that cannot be read; the message says what is missing."""


def part(content_type: str, body: str) -> Part:
    return Part(f"Content-Type: {content_type}", body)


def is_archive(text: str) -> bool:
    """Whether the text begins with a MIME header."""
    return bool(re.match(r"\s*(mime-version|content-type):", text, re.IGNORECASE))


def parse(text: str) -> tuple[Part, ...]:
    """The entities of a multipart archive, bodies and encodings untouched; raises MimeError."""
    unified = text.replace("\r", "")
    head, _, rest = unified.partition("\n\n")
    boundary = _BOUNDARY.search(head)
    if boundary is None:
        raise MimeError("a MIME archive without the header 'Content-Type: multipart/mixed; boundary=...'")
    delimiter = "--" + boundary[1].strip()
    sections = re.split(rf"^{re.escape(delimiter)}(?:--)?[ \t]*\n?", rest, flags=re.M)
    if len(sections) < 2:
        raise MimeError(f"a MIME archive without a part: no line starts with {delimiter}")
    return tuple(_parse_entity(section) for section in sections[1:] if section.strip())


def _parse_entity(section: str) -> Part:
    headers, gap, body = section.partition("\n\n")
    if not gap or not re.match(r"[A-Za-z-]+:", headers.lstrip("\n")):
        return Part("Content-Type: text/plain", section.strip("\n"))
    return Part(headers.strip("\n"), body.removesuffix("\n"))


def compose(parts: Sequence[Part]) -> str:
    """The multipart archive of these entities, in order; equal input gives equal bytes."""
    boundary = _unused_boundary(parts)
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for entity in parts:
        lines += [f"--{boundary}", entity.headers, "", entity.body]
    return "\n".join([*lines, f"--{boundary}--", ""])


def _unused_boundary(parts: Sequence[Part]) -> str:
    """``//``, which EKS uses everywhere, with more slashes while a body contains such a line."""
    boundary = "//"
    while any(line.startswith("--" + boundary) for entity in parts for line in entity.body.splitlines()):
        boundary += "/"
    return boundary
