"""The control API under `/_local/`: JSON in, JSON out, for tests, the demo and the parts beside AWS."""

import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from local.aws.calls.request import AwsResponse
from local.aws.emulator import ControlHandler, Emulator


class InvalidRequest(Exception):
    """Raised by a route: the request is wrong (400); the text says how."""


class Unreachable(Exception):
    """Raised by a route: what it stands for is not there (503); the text says why."""


class ControlApi:
    """Finds the route of a control request and answers it."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        emulator.route("GET", "/_local/calls", lambda _, query: _calls(emulator, query))
        emulator.route("GET", "/_local/strictness", lambda _body, _query: emulator.strictness.show())
        emulator.route("POST", "/_local/strictness", lambda body, _: emulator.strictness.change(body))
        emulator.route("POST", "/_local/strictness/clock", lambda body, _: emulator.strictness.set_clock(body))
        emulator.route("GET", "/_local/health", lambda _body, _query: {"cluster": emulator.cluster})

    def answer(self, method: str, path: str, query: str, body: bytes) -> AwsResponse:
        found = self._find(method, path)
        if found is None:
            return _json(404, {"error": f"no route {method} {path}"})
        route, parameters = found
        parameters |= dict(parse_qsl(query, keep_blank_values=True))
        try:
            return _json(200, route(json.loads(body) if body else {}, parameters))
        except (InvalidRequest, json.JSONDecodeError, KeyError) as error:
            return _json(400, {"error": f"{type(error).__name__}: {error}"})
        except Unreachable as error:
            return _json(503, {"error": str(error)})
        except Exception as error:  # noqa: BLE001 - the outermost loop: report it to the caller and the log
            traceback.print_exc(file=sys.stderr)
            return _json(500, {"error": f"{type(error).__name__}: {error}"})

    def _find(self, method: str, path: str) -> tuple[ControlHandler, dict[str, str]] | None:
        segments = tuple(unquote(part) for part in path.strip("/").split("/"))
        for known_method, pattern, route in self._emulator.routes:
            parameters = _match(pattern, segments)
            if known_method == method and parameters is not None:
                return route, parameters
        return None


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parameters = {}
    for expected, actual in zip(pattern, segments, strict=True):
        if expected.startswith("<"):
            parameters[expected.strip("<>")] = actual
        elif expected != actual:
            return None
    return parameters


def _calls(emulator: Emulator, query: Mapping[str, str]) -> dict[str, Any]:
    since = int(query.get("since", "0"))
    calls = emulator.call_log.since(since)
    return {"calls": calls, "next": calls[-1]["n"] if calls else since}


def _json(status: int, value: Any) -> AwsResponse:
    return AwsResponse(status, json.dumps(value).encode(), {"Content-Type": "application/json"})
