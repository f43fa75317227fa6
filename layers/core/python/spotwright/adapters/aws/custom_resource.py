"""The response of a CloudFormation custom resource to the URL in its request.

Source: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref-responses.html. The URL is
presigned for a PUT without content type; a stack waits for the response up to an hour.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import urllib3

from spotwright.errors import Unavailable

# The whole answer may hold 4096 bytes.
LONGEST_REASON = 1000
ATTEMPTS = 5
TIMEOUT = urllib3.Timeout(connect=3.0, read=7.0)


class CustomResourceResult(msgspec.Struct, frozen=True):
    """How a request ended. ``reason``: shown in the stack's events; required when the request failed."""

    physical_id: str
    failed: bool = False
    reason: str = ""
    data: Mapping[str, str] = {}


class CustomResourceResponder:
    """Responds to a request exactly once: when the work is done, or when its time is over."""

    def __init__(self, event: Mapping[str, Any], *, pause: Callable[[float], None] = time.sleep) -> None:
        self._event = event
        self._pause = pause
        self._lock = threading.Lock()
        self._has_answered = False

    def respond(self, outcome: CustomResourceResult) -> bool:
        """Send the response; False when there was a response before. Raises Unavailable after some attempts."""
        with self._lock:
            if self._has_answered:
                return False
            self._has_answered = True
        _put(self._event["ResponseURL"], json.dumps(self._body(outcome)).encode(), self._pause)
        return True

    def _body(self, outcome: CustomResourceResult) -> dict[str, Any]:
        return {
            "Status": "FAILED" if outcome.failed else "SUCCESS",
            "Reason": outcome.reason[:LONGEST_REASON],
            "PhysicalResourceId": outcome.physical_id,
            "StackId": self._event["StackId"],
            "RequestId": self._event["RequestId"],
            "LogicalResourceId": self._event["LogicalResourceId"],
            "Data": dict(outcome.data),
        }


def _put(url: str, body: bytes, pause: Callable[[float], None]) -> None:
    problem = ""
    with urllib3.PoolManager(retries=False, timeout=TIMEOUT) as pool:
        for attempt in range(ATTEMPTS):
            try:
                status = pool.request("PUT", url, body=body, headers={"Content-Type": ""}).status
                if status < 300:
                    return
                problem = f"HTTP {status}"
            except urllib3.exceptions.HTTPError as error:
                problem = type(error).__name__
            if attempt < ATTEMPTS - 1:
                pause(random.uniform(0.1, 0.2) * 2**attempt)
    raise Unavailable(f"CloudFormation did not take the answer: {problem}", code=problem)
