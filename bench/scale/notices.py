"""Many spot instances are interrupted at once: how soon everything is bought anew, and what becomes of the pods."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.scale.call_log import asked_at
from bench.scale.figures import Measured
from bench.scale.scene import FunctionLog, Scene
from bench.scale.workloads import INTERRUPTED, LABEL, NAMESPACE, interrupted
from spotwright.telemetry.log_lines import DECIDED_ON_INTERRUPTION

_SECONDS_GOAL: Final = 5.0
#: EC2 takes the instances back so long after its notices: not the real two minutes, in which a busy machine boots few.
_TAKEN_BACK_SECONDS: Final = 600
_LOOK_SECONDS: Final = 0.5
_AT_ONCE: Final = 8
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"

type Object = dict[str, Any]


class Notices:
    """A Deployment with a pod on each of so many spot nodes."""

    def __init__(self, scene: Scene, number: int) -> None:
        self._scene, self._number = scene, number
        self._uids: frozenset[str] = frozenset()
        self._claims: frozenset[str] = frozenset()

    def prepare(self) -> None:
        """Every part of the stack runs meanwhile."""
        self._scene.apply(interrupted(self._number))
        self._scene.until(lambda: len(self._running()) == self._number, f"{self._number} pods on spot nodes")
        self._uids = frozenset(pod["metadata"]["uid"] for pod in self._running())
        self._claims = frozenset(claim["metadata"]["name"] for claim in self._claims_now())

    def buy(self) -> Iterator[Measured]:
        """From the notices to the last CreateFleet, while nodes do not come up yet."""
        scene = self._scene
        scene.until_quiet()
        calls, log = scene.call_log(), FunctionLog(scene.stack, "lifecycle")
        begun = time.time()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(self._interrupt, self._instances()))
        last_notice = time.time()
        scene.until(lambda: len(self._new_claims(_is_launched)) >= self._number, f"{self._number} new instances")
        scene.until_quiet()
        fleets = [asked_at(call) for call in calls.fleets()]
        yield Measured("notices: seconds from the first to the last", last_notice - begun, None)
        yield Measured(
            "notices: seconds from the last to the last CreateFleet", max(fleets) - last_notice, _SECONDS_GOAL
        )
        yield Measured("notices: plans", len(planned(log.text())), None)
        yield Measured("notices: NodeClaims in the largest plan", max(planned(log.text())), None)
        yield Measured("notices: CreateFleet", len(fleets), None)
        yield Measured("notices: instances more than needed", len(self._new_claims(_is_launched)) - self._number, 0)

    def move(self) -> Iterator[Measured]:
        """Until every pod runs elsewhere. Every part of the stack runs meanwhile."""
        early, begun = 0, time.monotonic()

        def has_moved() -> bool:
            nonlocal early
            # Pods are read first: a place that comes between the two reads is a place.
            left = self._number - len(self._uids & _uids(self._staying()))
            early = max(early, left - len(self._new_claims(_is_initialized)))
            time.sleep(_LOOK_SECONDS)
            return not self._uids & _uids(self._running()) and len(self._running()) == self._number

        self._scene.until(has_moved, f"{self._number} pods on new nodes")
        waiting = [pod for pod in self._pods() if not pod["spec"].get("nodeName")]
        yield Measured("notices: pods evicted before there was a node for them, at most", early, 0)
        yield Measured("notices: pods that wait at the end", len(waiting), 0)
        yield Measured("notices: seconds until every pod runs again", time.monotonic() - begun, None)

    def _interrupt(self, instance: str) -> None:
        self._scene.stack.control("POST", "/_local/interrupt", {"instanceId": instance, "seconds": _TAKEN_BACK_SECONDS})

    def _instances(self) -> list[str]:
        old = (claim for claim in self._claims_now() if claim["metadata"]["name"] in self._claims)
        return sorted(claim["status"]["providerID"].rpartition("/")[2] for claim in old)

    def _new_claims(self, holds: Callable[[Object], bool]) -> list[Object]:
        return [claim for claim in self._claims_now() if claim["metadata"]["name"] not in self._claims and holds(claim)]

    def _claims_now(self) -> list[Object]:
        claims: list[Object] = self._scene.api.get(_CLAIMS, labelSelector=f"karpenter.sh/nodepool={INTERRUPTED}")[
            "items"
        ]
        return claims

    def _pods(self) -> list[Object]:
        pods: list[Object] = self._scene.api.get(_PODS, labelSelector=f"{LABEL}={INTERRUPTED}")["items"]
        return pods

    def _staying(self) -> list[Object]:
        return [pod for pod in self._pods() if "deletionTimestamp" not in pod["metadata"]]

    def _running(self) -> list[Object]:
        return [pod for pod in self._staying() if pod["status"].get("phase") == "Running"]


def planned(log: str) -> list[int]:
    """How many NodeClaims each plan replaced, of a log of lifecycle."""
    lines = (line for line in log.splitlines() if DECIDED_ON_INTERRUPTION.message in line)
    return [int(json.loads(line)["nodeclaims"]) for line in lines]


def _uids(pods: list[Object]) -> frozenset[str]:
    return frozenset(pod["metadata"]["uid"] for pod in pods)


def _is_launched(claim: Object) -> bool:
    return _is_true(claim, "Launched")


def _is_initialized(claim: Object) -> bool:
    return _is_true(claim, "Initialized")


def _is_true(claim: Object, kind: str) -> bool:
    conditions = claim.get("status", {}).get("conditions") or ()
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)
