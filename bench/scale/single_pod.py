"""One pending pod → CreateFleet, one pod after the other, each with a node of its own."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.latency import POD, WINDOW_SECONDS
from bench.scale import processes
from bench.scale.call_log import asked_at
from bench.scale.figures import FROM_STATE, Launch
from bench.scale.meter import peak_megabytes, processor_seconds
from bench.scale.scene import FunctionLog, Scene


class SinglePods:
    """Pods that wait get numbers; number 0 is there already."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._pods = scene, 0

    def launches(self, way: str, runs: int) -> tuple[Launch, ...]:
        """Raises TimeoutError."""
        try:
            if way == FROM_STATE:
                return tuple(self._launch(WINDOW_SECONDS, lambda: None) for _ in range(runs))
            with self._without_state():
                return tuple(self._launch(0.0, self._ring) for _ in range(runs))
        finally:
            # Together, many invocations would have less than each has on AWS.
            processes.release_processors(self._functions())

    def _launch(self, window: float, ring: Callable[[], None]) -> Launch:
        scene = self._scene
        scene.until_quiet()
        processes.hold_to_one_processor(self._functions())
        calls, log, before = scene.call_log(), FunctionLog(scene.stack, "provision"), scene.load()
        self._pods += 1
        scene.apply(POD.format(number=self._pods))
        scene.until(lambda: self._is_refused(self._pods), f"kube-scheduler to refuse pod bench-{self._pods}")
        refused = time.time()
        ring()
        scene.until(lambda: bool(calls.fleets()), f"CreateFleet for pod bench-{self._pods}")
        seconds = asked_at(calls.fleets()[0]) - refused - window
        load = scene.load().since(before)
        scene.until(lambda: peak_megabytes(log.text()) > 0, "the end of provision")
        report = log.text()
        return Launch(seconds, processor_seconds(report), peak_megabytes(report), load.requests, load.read_bytes)

    @contextmanager
    def _without_state(self) -> Iterator[None]:
        """The forwarder stands still, and what it shipped last is not there."""
        scene, table = self._scene, self._scene.outputs["TableName"]
        key: Any = {"pk": {"S": f"forwarder#{scene.stack.cluster}"}, "sk": {"S": "state"}}
        with processes.held([scene.forwarder()]):
            row = scene.dynamodb.get_item(TableName=table, Key=key)["Item"]
            scene.dynamodb.delete_item(TableName=table, Key=key)
            try:
                yield
            finally:
                scene.dynamodb.put_item(TableName=table, Item=row)

    def _functions(self) -> tuple[int, ...]:
        return processes.children(self._scene.stack.pids()["aws"])

    def _ring(self) -> None:
        """The doorbell that the forwarder would send."""
        body = {"schema": 1, "cluster": self._scene.stack.cluster, "kind": "pods", "key": "", "epoch": 0}
        self._scene.sqs.send_message(QueueUrl=self._scene.outputs["ProvisionQueueUrl"], MessageBody=json.dumps(body))

    def _is_refused(self, number: int) -> bool:
        pod = self._scene.api.get(f"/api/v1/namespaces/default/pods/bench-{number}")
        return any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions") or ())
