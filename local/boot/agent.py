"""The boot agent: looks at every instance again and again and moves its Node one step on.

launched -> (delay) -> registered, NotReady -> initialized by the cloud controller -> kubelet Ready;
shutting down or stopped -> NotReady, no kubelet; terminated -> (delay) -> Node deleted.
Every step is decided from the instance and the Node as they are, so that the agent may be restarted.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from local.boot.capacity import Machine
from local.boot.judge import Cluster, Instance, Joins, Stays, judge
from local.boot.node import SHUTTING_DOWN, UNINITIALIZED, cloud_labels, condition, provider_id, registration
from local.boot.record import Record, timestamp
from local.kubernetes.api import Api, ApiError, ApiUnavailable
from local.kubernetes.plane import KUBELET_LABEL

ALIVE = ("pending", "running")
OUTSIDE = (ApiError, ApiUnavailable, BotoCoreError, ClientError)


class FactsPort(Protocol):
    """Where the agent learns about instances and the cluster."""

    def instances(self) -> list[Instance]: ...
    def cluster(self) -> Cluster: ...
    def machine(self, instance_type: str) -> Machine: ...
    def entries(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from launch to registration, from registration to Ready, from termination to deletion."""

    boot: float = 3.0
    ready: float = 2.0
    removal: float = 5.0


class Agent:
    """Call `step` about twice a second."""

    def __init__(self, facts: FactsPort, api: Api, record: Record, delays: Delays) -> None:
        self._facts = facts
        self._api = api
        self._record = record
        self._delays = delays
        self._registered_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._up: set[str] = set()
        self._done: set[str] = set()

    def step(self) -> None:
        """Look at every instance once; what fails for one is written down and tried again.

        Raises FactsUnavailable.
        """
        for instance in self._facts.instances():
            if instance.id in self._done:
                continue
            try:
                self._look_at(instance)
            except OUTSIDE as error:
                self._record.say(instance, f"tried again: {type(error).__name__}: {error}")

    def _look_at(self, instance: Instance) -> None:
        if instance.state in ALIVE and not self._record.has_joined(instance):
            self._boot(instance)
        elif instance.state in ALIVE:
            self._come_up(instance)
        elif self._record.has_joined(instance):
            self._up.discard(instance.id)
            self._go_down(instance)
        elif instance.state == "terminated":
            self._done.add(instance.id)

    def _boot(self, instance: Instance) -> None:
        if instance.state != "running" or time.time() < instance.launched + self._delays.boot:
            return
        machine = self._facts.machine(instance.type)
        verdict = judge(instance, self._facts.cluster(), self._facts.entries(), machine)
        match verdict:
            case Joins():
                self._register(verdict)
            case Stays():
                self._record.refused(instance, verdict)
                if verdict.final:
                    self._done.add(instance.id)

    def _register(self, joins: Joins) -> None:
        try:
            self._api.create("/api/v1/nodes", registration(joins, timestamp()))
        except ApiError as error:
            if error.status != 409:
                self._record.refused(joins.instance, Stays("ApiServer", str(error), final=False))
                return
            if self._node(joins.instance) is None:
                return  # the address of an instance whose Node is not deleted yet: wait for that
        self._registered_at[joins.instance.id] = time.monotonic()
        self._record.joined(joins.instance)

    def _come_up(self, instance: Instance) -> None:
        if instance.id in self._up:
            return
        node = self._node(instance)
        if node is None:
            self._record.say(instance, "its Node was deleted while it runs: it stays without one")
            self._done.add(instance.id)
        elif UNINITIALIZED in _taints(node):
            self._initialize(instance, node)
        elif self._is_settled(instance):
            self._api.patch(_path(instance), {"metadata": {"labels": {KUBELET_LABEL: "kwok"}}})
            self._up.add(instance.id)
            self._record.say(instance, "kubelet ready")

    def _initialize(self, instance: Instance, node: Mapping[str, Any]) -> None:
        """The cloud node controller's part, lost to whoever changes the taints at the same time."""
        taints = [taint for taint in _taints(node) if taint != UNINITIALIZED]
        version = node["metadata"]["resourceVersion"]
        change = {
            "metadata": {"labels": cloud_labels(instance), "resourceVersion": version},
            "spec": {"taints": taints},
        }
        if self._unless_conflict(_path(instance), change):
            self._record.say(instance, "initialized by the cloud node controller")

    def _is_settled(self, instance: Instance) -> bool:
        since = self._registered_at.setdefault(instance.id, time.monotonic())
        return time.monotonic() - since >= self._delays.ready

    def _go_down(self, instance: Instance) -> None:
        node = self._node(instance)
        if node is None:
            self._done.add(instance.id)
        elif KUBELET_LABEL in node["metadata"]["labels"]:
            self._api.patch(_path(instance), {"metadata": {"labels": {KUBELET_LABEL: None}}})
            self._record.say(instance, f"{instance.state}: kubelet stops")
        elif _ready(node) == "True":
            now = timestamp()
            down = condition("Ready", "False", "KubeletNotReady", SHUTTING_DOWN, now)
            self._api.patch(
                _path(instance) + "/status",
                {"status": {"conditions": [down]}},
                kind="strategic-merge-patch+json",
            )
        elif instance.state == "terminated":
            self._remove(instance, node)

    def _remove(self, instance: Instance, node: Mapping[str, Any]) -> None:
        since = self._ended_at.setdefault(instance.id, time.monotonic())
        if time.monotonic() - since < self._delays.removal:
            return
        self._api.delete(_path(instance), {"preconditions": {"uid": node["metadata"]["uid"]}})
        self._done.add(instance.id)
        self._record.say(instance, "terminated: Node deleted by the cloud node controller")

    def _node(self, instance: Instance) -> dict[str, Any] | None:
        """The instance's Node; one of that name with another provider id belongs to another instance."""
        node = self._api.find(_path(instance))
        if node is None or node["spec"].get("providerID") != provider_id(instance):
            return None
        return node

    def _unless_conflict(self, path: str, change: Mapping[str, Any]) -> bool:
        try:
            self._api.patch(path, change)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


def _path(instance: Instance) -> str:
    return f"/api/v1/nodes/{instance.private_dns}"


def _taints(node: Mapping[str, Any]) -> list[dict[str, str]]:
    return list(node["spec"].get("taints") or [])


def _ready(node: Mapping[str, Any]) -> str:
    conditions = node["status"].get("conditions") or []
    return next((str(entry["status"]) for entry in conditions if entry["type"] == "Ready"), "Unknown")
