"""Signature version 4 in a query string, verified: what STS does when somebody follows a presigned URL.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

_EMPTY_BODY = hashlib.sha256(b"").hexdigest()


class PresignedUrl:
    """A presigned GET URL taken apart. Query names are kept as sent."""

    def __init__(self, url: str) -> None:
        self.parts = urlsplit(url)
        self.query = dict(parse_qsl(self.parts.query, keep_blank_values=True))

    @property
    def access_key(self) -> str:
        return self.query.get("X-Amz-Credential", "").split("/")[0]

    @property
    def signed_headers(self) -> tuple[str, ...]:
        return tuple(self.query.get("X-Amz-SignedHeaders", "").split(";"))

    @property
    def signed_at(self) -> datetime:
        """Raises ValueError when the date is missing or malformed."""
        text = self.query.get("X-Amz-Date", "")
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)

    def is_signed_with(self, secret: str, headers: Mapping[str, str]) -> bool:
        """Whether the signature is `secret`'s over this URL and the signed ones of `headers`."""
        scope = self.query.get("X-Amz-Credential", "").partition("/")[2]
        to_sign = "\n".join(
            (
                "AWS4-HMAC-SHA256",
                self.query.get("X-Amz-Date", ""),
                scope,
                hashlib.sha256(self._canonical(headers).encode()).hexdigest(),
            )
        )
        key = ("AWS4" + secret).encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        expected = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
        return hmac.compare_digest(expected, self.query.get("X-Amz-Signature", ""))

    def _canonical(self, headers: Mapping[str, str]) -> str:
        pairs = sorted(
            (quote(key, safe="-_.~"), quote(value, safe="-_.~"))
            for key, value in self.query.items()
            if key != "X-Amz-Signature"
        )
        lines = [f"{name}:{headers.get(name, '').strip()}\n" for name in self.signed_headers]
        return "\n".join(
            (
                "GET",
                self.parts.path or "/",
                "&".join(f"{key}={value}" for key, value in pairs),
                "".join(lines),
                ";".join(self.signed_headers),
                _EMPTY_BODY,
            )
        )
