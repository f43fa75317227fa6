"""The handlers of the function folders, loaded as Lambda does, and what Lambda gives them."""

import importlib.util
import itertools
import json
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from spotwright.simulation.world import World

_LOADED = itertools.count()
FUNCTIONS = Path(__file__).parents[2] / "functions"


class Context:
    """What Powertools reads of a Lambda context."""

    function_name = "test"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:ap-northeast-2:123456789012:function:test"
    aws_request_id = "00000000-0000-0000-0000-000000000000"

    def __init__(self, left_seconds: float = 60) -> None:
        self._left_seconds = left_seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._left_seconds * 1000)


class VirtualTime:
    """In the place of ``datetime`` in a handler: the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self, _: object) -> datetime:
        return self._world.clock.now()


def load_handler(name: str, world: World) -> ModuleType:
    """``functions/<name>/handler.py`` as a module of its own, living in the world's time."""
    # Powertools keeps one logger for each service name, with the output of the test that made it.
    os.environ["POWERTOOLS_SERVICE_NAME"] = f"{name}-{next(_LOADED)}"
    spec = importlib.util.spec_from_file_location(f"handler_{name}", FUNCTIONS / name / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__["datetime"] = VirtualTime(world)
    return module


def sqs_event(bodies: Iterable[object]) -> dict[str, Any]:
    """An SQS event: texts as they are, everything else as JSON; message ids m0, m1 …"""
    return {
        "Records": [
            {"messageId": f"m{number}", "body": body if isinstance(body, str) else json.dumps(body)}
            for number, body in enumerate(bodies)
        ]
    }


def failed_messages(answer: dict[str, Any]) -> list[str]:
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def doorbell(world: World, kind: str, key: str = "", **fields: object) -> dict[str, object]:
    return {"schema": 1, "cluster": world.cluster.name, "kind": kind, "key": key, "epoch": 0} | fields
