"""Which stored decision is meant: by its key, its id, or the beginning of either."""

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from spotwright.cli import InputError
from spotwright.errors import NotFound
from spotwright.model.quoting import quote

# So many decisions are named where what was asked for does not exist.
_SHOWN: Final = 5
# Ids are in the bodies: so many of the newest are read, so many at a time.
MOST_READ: Final = 2000
_AT_ONCE: Final = 16
_ID: Final = r"[0-9a-f]{4,64}"
_ID_LENGTH: Final = 16

type _Stored = tuple[str, datetime]


class Decisions(Protocol):
    """Stored bodies."""

    def get(self, key: str) -> bytes: ...

    def newest(self, kind: str, count: int) -> tuple[_Stored, ...]: ...


class _Identified(msgspec.Struct, frozen=True):
    id: str


def decision_key(decisions: Decisions, text: str, cluster: str) -> str:
    """The S3 key of the decision that ``text`` names. Raises InputError, ApiError."""
    if "/" in text:
        try:
            decisions.get(text)
        except NotFound:
            raise InputError(_explain_missing(decisions, text, cluster)) from None
        return text
    found = _find(decisions, text.removesuffix(".json")) if re.fullmatch(_ID, text.removesuffix(".json")) else {}
    if not found:
        raise InputError(_explain_missing(decisions, text, cluster))
    if len(found) > 1:
        lines = "\n".join(_line(stored, f"  {id}") for id, stored in found.items())
        raise InputError(f"{quote(text)} is the beginning of {len(found)} decisions of cluster {cluster}:\n{lines}")
    ((key, _),) = found.values()
    return key


def _find(decisions: Decisions, text: str) -> dict[str, _Stored]:
    """Of those whose id, or whose key's last part, begins with ``text``: the newest body of each id, newest first."""
    found: dict[str, _Stored] = {}
    for id, each in _ids(decisions, decisions.newest("decisions", MOST_READ)):
        if id == text and len(text) == _ID_LENGTH:
            return {id: each}
        if id.startswith(text) or each[0].rpartition("/")[2].startswith(text):
            found.setdefault(id, each)
    return found


def _ids(decisions: Decisions, stored: Iterable[_Stored]) -> Iterator[tuple[str, _Stored]]:
    """The ids of decisions, in the order of ``stored``; "" of what cannot be read."""

    def read(each: _Stored) -> str:
        try:
            return msgspec.json.decode(decisions.get(each[0]), type=_Identified).id
        except (NotFound, msgspec.MsgspecError):
            return ""

    waiting = list(stored)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for start in range(0, len(waiting), _AT_ONCE):
            some = waiting[start : start + _AT_ONCE]
            yield from zip(threads.map(read, some), some, strict=True)


def _explain_missing(decisions: Decisions, text: str, cluster: str) -> str:
    """That there is no such decision, and which there are."""
    newest = decisions.newest("decisions", _SHOWN)
    if not newest:
        return f"cluster {cluster} has no decision {quote(text)}, and none is stored for it"
    listed = "\n".join(_line(stored, f"  {id}") for id, stored in _ids(decisions, newest))
    known = "`last` is the newest committed one, and stored last were"
    return f"cluster {cluster} has no decision {quote(text)}; {known}\n{listed}"


def _line(stored: _Stored, id: str) -> str:
    key, at = stored
    return f"{id}  {key}  {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
