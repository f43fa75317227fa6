"""A connection to an API server, with the login of a kubeconfig, a pod or an AWS role.

The official client serves as transport only (TLS, connection pool, kubeconfig). Its generated models and APIs are never
imported: the Lambda layer does not have them.
"""

import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isinf
from pathlib import Path
from typing import Any, Final

import urllib3
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3.util.ssl_ import create_urllib3_context

from spotwright.adapters import time_limit
from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.adapters.kubernetes.codecs.media_types import JSON, is_protobuf
from spotwright.errors import ApiError, Conflict, Denied, InvalidRequest, NotFound, OutOfTime, Throttled, Unavailable

type JsonObject = dict[str, Any]

CONNECT_SECONDS, READ_SECONDS = 3.0, 15.0
# Connections that are kept: as many as calls are made at once, where five launches make ten each. One beyond that would
# be closed after its call, and each such call would begin with a handshake.
KEPT_CONNECTIONS: Final = 50
# What is read of a long answer at a time.
_PART_BYTES = 262_144
# Where the kubelet mounts a pod's token and the cluster's CA.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_FAILURES: Mapping[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    415: InvalidRequest,
    422: InvalidRequest,
    429: Throttled,
}


def token_configuration(endpoint: str, certificate_authority: str, token: Callable[[], str]) -> Configuration:
    """Log in by bearer token. ``certificate_authority``: PEM text; ``token`` is called before every request."""
    configuration = Configuration(host=endpoint, ca_cert_data=certificate_authority)

    def renew(configuration: Configuration) -> None:
        configuration.api_key["authorization"] = f"Bearer {token()}"

    configuration.api_key["authorization"] = ""
    configuration.refresh_api_key_hook = renew  # type: ignore[assignment]  # the client annotates its None only
    return configuration


def kubeconfig_configuration(path: str | None, context: str | None = None) -> Configuration:
    """Log in as a kubeconfig says (``path`` None: KUBECONFIG or ~/.kube/config). Raises InvalidRequest."""
    from kubernetes.config import ConfigException, load_kube_config
    from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION
    from yaml import YAMLError

    configuration = Configuration()
    try:
        load_kube_config(path, context, configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise InvalidRequest(f"kubeconfig: {_describe_kubeconfig_error(error)}") from error
    except (YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        # The client trusts the file to have the form of a kubeconfig.
        file = path or KUBE_CONFIG_DEFAULT_LOCATION
        raise InvalidRequest(f"kubeconfig: {file} is not YAML in the form of a kubeconfig") from error
    return configuration


def _describe_kubeconfig_error(error: Exception) -> str:
    """What the client says of a kubeconfig; a context, cluster or user that is not there in plain words."""
    missing = re.search(r"Expected object with name (.+) in (.+)/(context|cluster|user)s list", str(error))
    return f"{missing[2]} has no {missing[3]} {missing[1]}" if missing else str(error)


def pod_configuration(server: str, folder: Path = SERVICE_ACCOUNT) -> Configuration:
    """Log in as the pod's service account; its token is read again as it is renewed. Raises InvalidRequest."""
    token = folder / "token"
    try:
        token.read_text()
        authority = (folder / "ca.crt").read_text()
    except OSError as error:
        raise InvalidRequest(f"service account: {error}") from error
    return token_configuration(server, authority, lambda: token.read_text().strip())


class Connection:
    """Sends requests without retries. Threads may share it."""

    def __init__(self, configuration: Configuration) -> None:
        configuration.retries = False
        configuration.connection_pool_maxsize = KEPT_CONNECTIONS
        self._configuration = configuration
        self._rest = RESTClientObject(configuration)
        self._rest.pool_manager.connection_pool_kw["ssl_context"] = _ssl_context()

    def call(
        self, method: str, path: str, body: JsonObject | list[JsonObject] | None = None, content_type: str = ""
    ) -> JsonObject:
        """The JSON that the API server answers. Raises the exceptions of ``spotwright.errors``."""
        return _decode(self.read(method, path, body, content_type))

    def read(
        self,
        method: str,
        path: str,
        body: JsonObject | list[JsonObject] | None = None,
        content_type: str = "",
        *,
        accept: str = JSON,
    ) -> bytes:
        """The bytes that the API server answers, in this media type. Raises the exceptions of ``spotwright.errors``."""
        response = self.stream(method, path, body, content_type, accept=accept)
        with _reading(response, f"{method} {path}"):
            return response.data

    def read_at_most(self, path: str, most_bytes: int | None, accept: str = JSON) -> bytes | None:
        """The bytes that a GET is answered with; None when they are more, of which the rest is left unread.

        API servers compress answers of more than 128 KB, lists to about a tenth. ``most_bytes``: of the answer as it is
        read, None = any number. Raises the exceptions of ``spotwright.errors``.
        """
        response = self.stream("GET", path, accept=accept, accept_encoding="gzip")
        parts, size = list[bytes](), 0
        with _reading(response, f"GET {path}"):
            for part in response.stream(_PART_BYTES, decode_content=True):
                parts.append(part)
                size += len(part)
                if most_bytes is not None and size > most_bytes:
                    response.close()
                    return None
        return b"".join(parts)

    def stream(
        self,
        method: str,
        path: str,
        body: JsonObject | list[JsonObject] | None = None,
        content_type: str = "",
        *,
        accept: str = JSON,
        accept_encoding: str = "",
        read_seconds: float = READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        """A successful response whose body is not read yet. ``read_seconds``: timeout between two reads.

        Within an invocation of a function no timeout is later than its end: shortly before that OutOfTime is raised,
        also for a request that waits for its answer.
        """
        left = _time_left(f"{method} {path}")
        try:
            headers = {
                "Accept": accept,
                "Accept-Encoding": accept_encoding,
                "Authorization": self._authorization(),
                "Content-Type": content_type,
            }
            response: urllib3.BaseHTTPResponse = self._rest.pool_manager.urlopen(
                method,
                self._configuration.host + path,
                headers={name: value for name, value in headers.items() if value},
                body=None if body is None else json.dumps(body),
                timeout=urllib3.Timeout(
                    connect=CONNECT_SECONDS, read=read_seconds, total=None if isinf(left) else left
                ),
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            _time_left(f"{method} {path}")
            what = _unanswered(self._configuration.host, error) or f"{method} {path}: {error}"
            raise Unavailable(what, code=type(error).__name__) from error
        if 200 <= response.status < 300:
            return response
        with _reading(response, f"{method} {path}"):
            content = response.data
        refusal = status_error(f"{method} {path}", response.status, _decode(content))
        if isinstance(refusal, Throttled):
            refusal.retry_after_seconds = _retry_after(response.headers.get("Retry-After", ""))
        raise refusal

    def _authorization(self) -> str:
        """The header's value; renews a token by the configuration's own hook. Empty with a client certificate."""
        settings = self._configuration.auth_settings()
        return str(settings["BearerToken"]["value"] or "") if "BearerToken" in settings else ""


@contextmanager
def _reading(response: urllib3.BaseHTTPResponse, what: str) -> Iterator[None]:
    """While a body is read. Raises Unavailable, and OutOfTime where the invocation ends before the body does."""
    try:
        with time_limit.reading(response):
            yield
    except (urllib3.exceptions.HTTPError, OSError) as error:
        _time_left(what)
        raise Unavailable(f"{what}: {error}", code=type(error).__name__) from error
    # A body without a length seems to be whole where it was ended.
    _time_left(what)


def _time_left(what: str) -> float:
    """Seconds; raises OutOfTime where the invocation ends soon."""
    left = time_limit.seconds_left()
    if left <= 0:
        raise OutOfTime(f"{what}: the invocation ends soon", code="OutOfTime")
    return left


def _ssl_context() -> ssl.SSLContext:
    """Verification without X509_STRICT, which refuses the CAs of many EKS clusters: they have no key identifiers
    (https://github.com/kubernetes-client/python/issues/2394)."""
    context = create_urllib3_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _unanswered(host: str, error: BaseException | None) -> str:
    """Why there is no connection, by the error below those of the libraries; "" = for another reason."""
    while error is not None:
        match error:
            case ssl.SSLCertVerificationError():
                return f"{host} does not answer: its certificate is not trusted: {error.verify_message}"
            case ConnectionRefusedError():
                return f"{host} does not answer: connection refused"
            case socket.gaierror():
                return f"{host} does not answer: its name is not known"
            # Every other failure to connect is of a subclass.
            case urllib3.exceptions.ConnectTimeoutError() if type(error) is urllib3.exceptions.ConnectTimeoutError:
                return f"{host} does not answer: no connection within {CONNECT_SECONDS:g} seconds"
        error = error.__cause__ or error.__context__
    return ""


def status_error(what: str, status: int, status_object: Mapping[str, Any]) -> ApiError:
    """The exception for a Kubernetes Status; its code is the Status's reason."""
    kind = _FAILURES.get(status, Unavailable if status >= 500 else ApiError)
    return kind(f"{what}: {status} {status_object.get('message', '')}", code=str(status_object.get("reason") or status))


def _retry_after(header: str) -> int:
    """Seconds, as API servers write it; 0 for what is no number of them."""
    return int(header) if re.fullmatch(r"[0-9]{1,4}", header) else 0


def _decode(content: bytes) -> JsonObject:
    if is_protobuf(content):
        from spotwright.adapters.kubernetes.codecs.protobuf_messages import as_json, read_answer

        # Whoever asks for Protobuf is refused in Protobuf, too.
        try:
            return as_json(read_answer("Status", content))
        except DecodeError as error:
            return {"message": str(error)}
    try:
        decoded = json.loads(content or b"{}")
    except ValueError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"message": content[:300].decode(errors="replace")}
