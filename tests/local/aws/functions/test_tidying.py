"""Processes of functions that are deleted go, and no others."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local.aws.calls.call_log import CallLog
from local.aws.emulator import Emulator
from local.aws.functions import invocations
from local.aws.functions.invocations import Functions


def test_a_function_that_is_made_meanwhile_keeps_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = CallLog(tmp_path / "calls.jsonl")
    functions = Functions(Emulator(tmp_path, "ap-northeast-2", "123456789012", 1, "c", calls))
    version: Any = SimpleNamespace(name="new", version="$LATEST")
    invoking = threading.Thread(target=functions._pool, args=[version])

    def list_functions() -> list[Any]:
        """Those of a moment before the function was made and invoked."""
        invoking.start()
        invoking.join(0.5)
        return []

    monkeypatch.setattr(invocations, "lambda_backend", lambda _: SimpleNamespace(list_functions=list_functions))
    functions.tidy()
    invoking.join()
    assert [pool.closed for pool in functions.pools.values()] == [False]
    monkeypatch.setattr(invocations, "lambda_backend", lambda _: SimpleNamespace(list_functions=list))
    (pool,) = functions.pools.values()
    functions.tidy()
    assert (functions.pools, pool.closed) == ({}, True)
    calls.close()
