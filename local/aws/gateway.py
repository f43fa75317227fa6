"""One AWS call from bytes to bytes: who calls, may they, who answers, and one line in the call log."""

import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app

from local.aws.calls.moto_locks import MotoLocks
from local.aws.calls.moto_lookups import Dispatcher
from local.aws.calls.request import (
    SERVICE_OF_SIGNING_NAME,
    AwsError,
    AwsRequest,
    AwsResponse,
    ConnectionDropped,
)
from local.aws.emulator import Emulator
from local.aws.sts.callers import UnknownCaller, parse_credential_scope, resolve_caller

_ERROR_CODE = re.compile(rb'<Code>([^<]+)</Code>|"(?:__type|code|Code)": ?"(?:[^"]*#)?([^"#]+)"')
# What AWS says to an access key it does not know, by protocol family.
_UNKNOWN_KEY = {
    "ec2": ("AuthFailure", "AWS was not able to validate the provided access credentials", 401),
    "s3": ("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", 403),
}
_UNKNOWN_KEY_ELSEWHERE = (
    "UnrecognizedClientException",
    "The security token included in the request is invalid.",
    403,
)

# And to one whose session is over.
_EXPIRED = {
    "ec2": ("RequestExpired", "Request has expired.", 400),
    "dynamodb": ("ExpiredTokenException", "The security token included in the request is expired", 400),
}
_EXPIRED_ELSEWHERE = ("ExpiredToken", "The security token included in the request is expired", 403)


class Gateway:
    """Answers AWS calls for one emulator. Thread safe: it holds nothing but moto's own application, which calls of
    some services reach one after the other.
    """

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._moto: Callable[..., Iterable[bytes]] = Dispatcher(create_backend_app)

    def answer(self, request: AwsRequest) -> AwsResponse:
        """The response to one call; raises ConnectionDropped where a fault asked for silence."""
        started = time.monotonic()
        try:
            response = self._answer(request)
        except ConnectionDropped:
            self._log(request, AwsResponse(0), time.monotonic() - started)
            raise
        self._log(request, response, time.monotonic() - started)
        return response

    def _answer(self, request: AwsRequest) -> AwsResponse:
        headers = dict(request.headers)
        request.access_key, request.region, signing_name = parse_credential_scope(headers, request.query)
        request.service = SERVICE_OF_SIGNING_NAME.get(signing_name, signing_name) or "s3"
        try:
            request.principal = resolve_caller(self._emulator, request.access_key).arn
            response = self._act(request)
        except UnknownCaller as unknown:
            return _unknown(request, unknown.code)
        except AwsError as error:
            return request.fail(error)
        for react in self._emulator.reactions:
            react(request, response)
        return response

    def _act(self, request: AwsRequest) -> AwsResponse:
        try:
            for check in self._emulator.checks:
                check(request)
            for front in self._emulator.handlers.get((request.service, request.action), ()):
                response = front(request)
                if response is not None:
                    return response
            return self.pass_to_moto(request)
        except (AwsError, ConnectionDropped):
            raise
        except Exception as error:  # noqa: BLE001 - the outermost loop of the process: report and go on
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            what = f"{request.service}:{request.action} failed here: {type(error).__name__}: {error}"
            return _failed(request, what)

    def pass_to_moto(self, request: AwsRequest) -> AwsResponse:
        """moto's own answer to the call."""
        head: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            head[:] = [int(status.split()[0]), headers]

        with self._emulator.component(MotoLocks).alone(request.service):
            body = b"".join(self._moto(request.environ(), start_response))
        status, headers = head
        return AwsResponse(status, body, dict(headers), _error_code(status, headers, body))

    def _log(self, request: AwsRequest, response: AwsResponse, seconds: float) -> None:
        origin = self._emulator.original_access_key(request.access_key)
        self._emulator.call_log.add(
            {
                "service": request.service,
                "action": request.action,
                "principal": request.principal,
                "function": self._emulator.function_names.get(origin),
                "status": response.status,
                "error": response.error,
                "milliseconds": round(seconds * 1000, 1),
                "request": _parameters(request),
            }
        )


def _failed(request: AwsRequest, what: str) -> AwsResponse:
    """501, which clients do not retry, in the service's protocol if the call could be understood at all."""
    try:
        return request.fail(AwsError("NotImplemented", what, 501))
    except Exception:  # noqa: BLE001 - no model for the service or the operation
        return AwsResponse(501, what.encode(), {"Content-Type": "text/plain"}, "NotImplemented")


def _parameters(request: AwsRequest) -> Any:
    try:
        return request.params
    except Exception:  # noqa: BLE001 - a call moto's parser cannot read is still logged
        return {"path": request.path_and_query}


def _unknown(request: AwsRequest, code: str) -> AwsResponse:
    if code == "ExpiredToken":
        error = AwsError(*_EXPIRED.get(request.service, _EXPIRED_ELSEWHERE))
    else:
        error = AwsError(*_UNKNOWN_KEY.get(request.service, _UNKNOWN_KEY_ELSEWHERE))
    return request.fail(error)


def _error_code(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> str | None:
    """AWS's error code out of moto's answer, for the log."""
    if status < 400:
        return None
    for name, value in headers:
        if name.lower() == "x-amzn-errortype":
            return value.partition(":")[0]
    found = _ERROR_CODE.search(body)
    return (found[1] or found[2]).decode() if found else str(status)
