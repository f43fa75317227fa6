"""Requests to one API server with bounded retries, and lists page by page.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

from kubernetes.client.configuration import Configuration

from spotwright.adapters.kubernetes.attempts import ATTEMPTS, with_attempts
from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.media_types import JSON, PROTOBUF, is_protobuf
from spotwright.adapters.kubernetes.codecs.pages import ListDecoder, PageDecoder
from spotwright.adapters.kubernetes.connection import Connection, token_configuration
from spotwright.adapters.kubernetes.page_limit import PageReader
from spotwright.errors import Conflict, Unavailable

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

type JsonObject = dict[str, Any]


class Transport:
    """Requests to an API server, with retries. ``token`` is called before each request and may cache."""

    def __init__(self, *, endpoint: str, certificate_authority: str, token: Callable[[], str]) -> None:
        """``certificate_authority``: base64 of PEM, as EKS gives it."""
        authority = base64.b64decode(certificate_authority).decode()
        self._connection = Connection(token_configuration(endpoint.rstrip("/"), authority, token))

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> "Transport":
        """With the login of a configuration."""
        transport = cls.__new__(cls)
        transport._connection = Connection(configuration)
        return transport

    def call(
        self, method: str, path: str, *, body: JsonObject | list[JsonObject] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
    ) -> JsonObject:  # fmt: skip
        """One request; raises the exceptions of ``spotwright.errors``, Unavailable when nothing answered."""
        url = path + ("?" + urlencode(query) if query else "")
        media = content_type if body is not None else ""
        return with_attempts(lambda: self._connection.call(method, url, body, media), attempts)

    def items[Value](
        self,
        path: str,
        decoder: PageDecoder[Any, Value],
        query: Mapping[str, str] | None = None,
        *,
        limit: int | None = None,
        protobuf: Callable[[], ListDecoder[Value]] | None = None,
    ) -> Iterator[Value]:
        """All items of a list, page by page, or the first ``limit``. Raises Unavailable when the list expires between
        two pages.

        ``protobuf``: decodes the pages after the first one, which the API server is asked for in Protobuf; made only if
        there are such.
        """
        try:
            yield from islice(self._items(path, decoder, dict(query or {}), limit, protobuf), limit)
        except Conflict as error:
            if error.code != "Expired":
                raise
            raise Unavailable(f"list {path} expired between two pages", code="Expired") from error
        except DecodeError as error:
            raise Unavailable(f"list {path}: {error}", code="NoList") from error

    def _items[Value](
        self,
        path: str,
        in_json: PageDecoder[Any, Value],
        query: dict[str, str],
        limit: int | None,
        protobuf: Callable[[], ListDecoder[Value]] | None,
    ) -> Iterator[Value]:
        """The API server makes the next page while one is decoded, which takes as long. A page that cannot be read in
        Protobuf is asked for again in JSON, as are those after it; there it may have more or fewer objects, so that
        another page follows it than the one that was read ahead."""
        reader, token, accept = PageReader(self._connection, path, query, limit), "", PROTOBUF if protobuf else JSON
        in_protobuf: ListDecoder[Value] | None = None
        with ThreadPoolExecutor(1) as ahead:
            content = reader.read(token)
            while True:
                decoder: ListDecoder[Value] = in_json
                if protobuf and is_protobuf(content):
                    decoder = in_protobuf = in_protobuf or protobuf()
                next_token = decoder.next_page(content) if limit is None else ""
                following = ahead.submit(reader.read, next_token, accept) if next_token else None
                try:
                    page = decoder.page(content)
                except DecodeError:
                    if decoder is in_json:
                        raise
                    accept = JSON
                    page = in_json.page(ahead.submit(reader.read, token, accept).result())
                yield from page.items
                if not page.next_page:
                    return
                token = page.next_page
                content = following.result() if following and token == next_token else reader.read(token, accept)
