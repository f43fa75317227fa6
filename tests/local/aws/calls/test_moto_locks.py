"""What a service is asked at once takes effect one after the other."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from local.aws.calls.call_log import CallLog
from local.aws.calls.moto_locks import SERVICES
from local.aws.calls.request import AwsRequest
from local.aws.emulator import Emulator
from local.aws.gateway import Gateway


@pytest.mark.parametrize("service", SERVICES)
def test_a_condition_is_looked_at_while_nobody_writes(tmp_path: Path, service: str) -> None:
    calls = CallLog(tmp_path / "calls.jsonl")
    gateway = Gateway(Emulator(tmp_path, "ap-northeast-2", "123456789012", 1, "c", calls))
    at_once, most, counting = 0, 0, threading.Lock()

    def moto(_environ: Any, start_response: Any) -> Iterable[bytes]:
        """Takes its time, and counts the threads that it does so for."""
        nonlocal at_once, most
        with counting:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with counting:
            at_once -= 1
        start_response("200 OK", [])
        return [b"{}"]

    gateway._moto = moto
    headers = {"x-amz-target": "DynamoDB_20120810.PutItem", "content-type": "application/x-amz-json-1.0"}
    requests = [AwsRequest("POST", "/", "", headers, b"{}", service=service) for _ in range(6)]
    with ThreadPoolExecutor(len(requests)) as threads:
        answers = list(threads.map(gateway.pass_to_moto, requests))
    calls.close()
    assert [answer.status for answer in answers] == [200] * 6
    assert most == 1
