"""How many objects a page of a list has at most: as many as fit into memory, whatever their size.

The API server bounds a page by a number of objects alone, and an object may have 1.5 MB.
"""

from functools import partial
from typing import Final
from urllib.parse import urlencode

from spotwright.adapters.kubernetes.attempts import with_attempts
from spotwright.adapters.kubernetes.codecs.media_types import JSON
from spotwright.adapters.kubernetes.connection import Connection

# 3.3 MB of pods of 6.5 KB.
PAGE_SIZE: Final = 500
# A longer page is not read to its end, but asked for again with fewer objects: 500 objects of 33 KB.
PAGE_BYTES: Final = 16 * 2**20
# A page that was too long is asked for with so many times fewer objects; after a short one the next has twice as many.
FEWER: Final = 8
_SHORT_BYTES: Final = PAGE_BYTES // 4


class PageReader:
    """Reads the pages of a list one after the other."""

    def __init__(self, connection: Connection, path: str, query: dict[str, str], limit: int | None = None) -> None:
        """``limit``: how many objects are wanted at most; None = all of them."""
        self._connection, self._path, self._query = connection, path, dict(query)
        self._most = self._limit = min(limit or PAGE_SIZE, PAGE_SIZE)

    def read(self, token: str, accept: str = JSON) -> bytes:
        """The bytes of the page that ``token`` names, "" = the first, in this media type. A single object is read
        whatever its size.

        A page that fails is asked for again: to begin with the first one would cost the API server all that was read
        before. Raises ApiError.
        """
        while True:
            query = self._query | {"limit": str(self._limit)} | ({"continue": token} if token else {})
            url = f"{self._path}?{urlencode(query)}"
            most_bytes = PAGE_BYTES if self._limit > 1 else None
            content = with_attempts(partial(self._connection.read_at_most, url, most_bytes, accept))
            if content is None:
                self._limit = max(1, self._limit // FEWER)
                continue
            if len(content) <= _SHORT_BYTES:
                self._limit = min(self._most, self._limit * 2)
            return content
