"""An AWS API call as it came over the wire, and its answer, in the shapes of botocore's service models.

The protocol work (query, ec2, json, rest-json, rest-xml) is done by moto's own parsers and serializers,
so that a front handler sees `{"InstanceIds": [...]}` and answers with such a dictionary.
"""

import io
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import SerializationContext, get_serializer_class
from moto.core.utils import get_service_model

from local.aws.calls import ec2_xml

# Signing names that differ from botocore's service name.
SERVICE_OF_SIGNING_NAME = {
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
    "tagging": "resourcegroupstaggingapi",
}


@dataclass(frozen=True)
class AwsResponse:
    """An HTTP answer, ready to send. `error` is AWS's error code, for the call log."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


class AwsError(Exception):
    """Raised by a front handler to answer with an AWS error.

    `status` is the HTTP status; None takes the one in the service's model, or 400.
    """

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class ConnectionDropped(Exception):
    """Raised by a guard or an after: close the connection without an answer."""


@dataclass
class AwsRequest:
    """One call. Header names are lower case; `principal` is the caller's ARN once it is known."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    service: str = ""
    region: str = ""
    access_key: str = ""
    principal: str = ""

    @cached_property
    def form(self) -> dict[str, str]:
        """Query string and, for the query protocols, the form body."""
        values = dict(parse_qsl(self.query, keep_blank_values=True))
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            values |= dict(parse_qsl(self.body.decode(), keep_blank_values=True))
        return values

    @cached_property
    def _match(self) -> tuple[str, Mapping[str, Any]]:
        """Operation name and URI parameters; ("", {}) when nothing matches."""
        target = self.headers.get("x-amz-target")
        if target:
            return target.rsplit(".", 1)[-1], {}
        if "Action" in self.form:
            return self.form["Action"], {}
        # S3 clients of other languages ask for a bucket with a trailing slash; the router knows none.
        environ = self.environ()
        if self.service == "s3" and self.path.count("/") == 2:
            environ["PATH_INFO"] = environ["PATH_INFO"].rstrip("/")
            environ["RAW_URI"] = environ["REQUEST_URI"] = self.path_and_query.replace("/?", "?").rstrip("/")
        try:
            operation, parameters = get_service_router(self.service).match(Request(environ))
        except Exception:  # noqa: BLE001 - werkzeug's NotFound, or a service without a model
            return "", {}
        return str(operation.name), parameters

    @property
    def action(self) -> str:
        """Operation name as in the service model, e.g. CreateFleet; "" if it cannot be told."""
        return self._match[0]

    @cached_property
    def model(self) -> ServiceModel:
        return get_service_model(self.service)

    @cached_property
    def operation(self) -> OperationModel:
        operation: OperationModel = self.model.operation_model(self.action)
        return operation

    @cached_property
    def params(self) -> dict[str, Any]:
        """The decoded parameters, named and typed as a botocore client passes them."""
        protocol = determine_request_protocol(self.model, self.headers.get("content-type"))
        parsed = PROTOCOL_PARSERS[protocol](self.operation, map_type=dict).parse(
            {
                "method": self.method,
                "values": self.as_werkzeug().values,
                "headers": self.as_werkzeug().headers,
                "body": self.body,
                "url_path": self.path,
                "url_params": dict(self._match[1]),
            }
        )
        return dict(parsed)

    def reply(self, result: Mapping[str, Any]) -> AwsResponse:
        """The answer with `result`, serialized as the operation's output shape."""
        if self.service == "ec2":
            body = ec2_xml.response_document(self.operation, result, str(uuid.uuid4()))
            return AwsResponse(200, body, {"Content-Type": "text/xml;charset=UTF-8"})
        return self._serialized(result, None)

    def fail(self, error: AwsError) -> AwsResponse:
        """The error answer in the service's own protocol."""
        return self._serialized(error, error.code, error.status)

    def _serialized(self, result: Any, error: str | None, status: int | None = None) -> AwsResponse:
        protocol = determine_request_protocol(self.model, self.headers.get("content-type"))
        context = SerializationContext(request_id=str(uuid.uuid4()))
        serializer = get_serializer_class(self.model.service_name, protocol)(self.operation, context)
        answer = serializer.serialize(result)
        body = answer["body"]
        return AwsResponse(
            status=status or int(answer["status_code"]),
            body=body.encode() if isinstance(body, str) else body,
            headers={str(key): str(value) for key, value in answer["headers"].items()},
            error=error,
        )

    def as_werkzeug(self) -> Request:
        return self._werkzeug

    @cached_property
    def _werkzeug(self) -> Request:
        return Request(self.environ())

    def environ(self) -> dict[str, Any]:
        """A fresh WSGI environment of this call (its body unread)."""
        headers = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in self.headers.items()}
        host, _, port = self.headers.get("host", "127.0.0.1:80").partition(":")
        return headers | {
            "REQUEST_METHOD": self.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": _latin1(self.path),
            "RAW_URI": self.path_and_query,
            "REQUEST_URI": self.path_and_query,
            "QUERY_STRING": self.query,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(self.body)),
            "SERVER_NAME": host,
            "SERVER_PORT": port or "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(self.body),
            # A body that came in chunks is whole by now.
            "wsgi.input_terminated": True,
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }

    @property
    def path_and_query(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def _latin1(path: str) -> str:
    """WSGI's PATH_INFO: percent-decoded bytes shown as latin-1."""
    return unquote_to_bytes(path).decode("latin-1")
