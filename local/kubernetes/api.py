"""A small JSON client of the Kubernetes API: what the local stack's own parts need, nothing more."""

import json
import random
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import urllib3
import yaml

from local.kubernetes.kubeconfig import read_kubeconfig

type Object = dict[str, Any]

TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)
ATTEMPTS = 4
WATCH_SECONDS = 120
# Kinds whose plural is not the lower-case kind with an s, and kinds that live in a namespace.
PLURALS = {"Endpoints": "endpoints", "NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}
CLUSTER_SCOPED = frozenset(
    (
        "Namespace",
        "Node",
        "PriorityClass",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    )
)


class ApiError(Exception):
    """The API server refused: `status` is the HTTP code, `reason` Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class ApiUnavailable(Exception):
    """No answer from the API server after several attempts."""


class KubernetesApi:
    """Requests as the user of a kubeconfig file. Reads are retried with jitter, writes only when safe."""

    def __init__(self, kubeconfig: Path) -> None:
        access = read_kubeconfig(kubeconfig)
        context = lenient_context(access.certificate_authority)
        if access.client_certificate is not None:
            context.load_cert_chain(access.client_certificate.certificate, access.client_certificate.key)
        self._server = access.server
        self._pool = urllib3.PoolManager(ssl_context=context, timeout=TIMEOUT, retries=False, maxsize=8)
        self._headers = {"Accept": "application/json"}
        if access.token is not None:
            self._headers["Authorization"] = f"Bearer {access.token}"

    def is_ready(self) -> bool:
        """Does /readyz say ok?"""
        try:
            return self._pool.request("GET", f"{self._server}/readyz", timeout=10.0).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def get(self, path: str, **query: str) -> Object:
        """The object or list at `path`. Raises ApiError and ApiUnavailable."""
        return self._retried("GET", path, query)

    def find(self, path: str) -> Object | None:
        """The object at `path`, None when the API server says that there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, value: Mapping[str, Any]) -> Object:
        """POST, once."""
        return self._request("POST", path, {}, value, "application/json")

    def patch(self, path: str, value: Any, *, kind: str = "merge-patch+json") -> Object:
        """PATCH, retried: merge patches give the same result twice."""
        return self._retried("PATCH", path, {}, value, f"application/{kind}")

    def apply(self, value: Object) -> Object:
        """Server-side apply of a whole object."""
        query = {"fieldManager": "local-stack", "force": "true"}
        return self._retried("PATCH", object_path(value), query, value, "application/apply-patch+yaml")

    def apply_all(self, text: str) -> None:
        """Server-side apply of every document of a YAML text, in order."""
        for value in yaml.safe_load_all(text):
            if value:
                self.apply(value)

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        """DELETE; an object that is gone already is fine."""
        try:
            self._retried("DELETE", path, {}, options or {}, "application/json")
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, resource_version: str, **query: str) -> Iterator[Object]:
        """Events {type, object} after `resource_version` for about WATCH_SECONDS. Raises ApiError."""
        query |= {"watch": "true", "resourceVersion": resource_version, "timeoutSeconds": str(WATCH_SECONDS)}
        query["allowWatchBookmarks"] = "true"
        timeout = urllib3.Timeout(connect=10.0, read=WATCH_SECONDS + 30.0)
        response = self._pool.request(
            "GET",
            self._server + path,
            fields=query,
            headers=self._headers,
            preload_content=False,
            timeout=timeout,
        )
        try:
            if response.status >= 400:
                raise _error(response.status, response.read())
            for line in _lines(response):
                yield json.loads(line)
        finally:
            response.close()

    def _retried(self, method: str, path: str, query: Mapping[str, str], value: Any = None, kind: str = "") -> Object:
        for attempt in range(ATTEMPTS):
            try:
                return self._request(method, path, query, value, kind)
            except ApiUnavailable:
                if attempt == ATTEMPTS - 1:
                    raise
            except ApiError as error:
                if attempt == ATTEMPTS - 1 or error.status not in (429, 500, 503, 504):
                    raise
            time.sleep(0.2 * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def _request(self, method: str, path: str, query: Mapping[str, str], value: Any, kind: str) -> Object:
        body = None if value is None else json.dumps(value).encode()
        headers = self._headers | ({"Content-Type": kind} if kind else {})
        target = f"{self._server}{path}{'?' + urlencode(query) if query else ''}"
        try:
            response = self._pool.request(method, target, body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise ApiUnavailable(f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise _error(response.status, response.data)
        return cast("Object", json.loads(response.data))


def lenient_context(authority: bytes) -> ssl.SSLContext:
    """Verifies fully against a CA (PEM), also one whose certificates have no key identifiers."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def object_path(value: Mapping[str, Any]) -> str:
    """The URL path of an object, from its apiVersion, kind, namespace and name."""
    version, kind, metadata = value["apiVersion"], value["kind"], value["metadata"]
    plural = PLURALS.get(kind, kind.lower() + "s")
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind not in CLUSTER_SCOPED:
        prefix += f"/namespaces/{metadata.get('namespace', 'default')}"
    return f"{prefix}/{plural}/{metadata['name']}"


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(65536, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())


def _error(status: int, body: bytes) -> ApiError:
    try:
        answer = json.loads(body)
        return ApiError(status, str(answer.get("reason", "")), str(answer.get("message", "")))
    except (ValueError, AttributeError):
        return ApiError(status, "", body.decode(errors="replace")[:500])
