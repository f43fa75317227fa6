"""The control API under `/_local/`: JSON in, JSON out, for tests, the demo and the parts beside AWS."""

import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from local.aws.request import AwsResponse
from local.aws.world import Route, World


class Invalid(Exception):
    """Raised by a route: the request is wrong (400); the text says how."""


class Control:
    """Finds the route of a control request and answers it."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.route("GET", "/_local/calls", lambda _, query: _calls(world, query))
        world.route("GET", "/_local/health", lambda _body, _query: {"cluster": world.cluster})

    def answer(self, method: str, path: str, query: str, body: bytes) -> AwsResponse:
        found = self._find(method, path)
        if found is None:
            return _json(404, {"error": f"no route {method} {path}"})
        route, parameters = found
        parameters |= dict(parse_qsl(query, keep_blank_values=True))
        try:
            return _json(200, route(json.loads(body) if body else {}, parameters))
        except (Invalid, json.JSONDecodeError, KeyError) as error:
            return _json(400, {"error": f"{type(error).__name__}: {error}"})
        except Exception as error:  # noqa: BLE001 - the outermost loop: report it to the caller and the log
            traceback.print_exc(file=sys.stderr)
            return _json(500, {"error": f"{type(error).__name__}: {error}"})

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        segments = tuple(unquote(part) for part in path.strip("/").split("/"))
        for known_method, pattern, route in self._world.routes:
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


def _calls(world: World, query: Mapping[str, str]) -> dict[str, Any]:
    since = int(query.get("since", "0"))
    calls = world.calls.since(since)
    return {"calls": calls, "next": calls[-1]["n"] if calls else since}


def _json(status: int, value: Any) -> AwsResponse:
    return AwsResponse(status, json.dumps(value).encode(), {"Content-Type": "application/json"})
