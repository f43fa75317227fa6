"""The boot agent: looks at every instance again and again and moves its Node one step on.

launched -> (delay) -> registered, NotReady -> initialized by the cloud controller -> kubelet Ready;
shutting down or stopped -> NotReady, no kubelet; terminated -> (delay) -> Node deleted.
By one write each: launched -> (delays) -> registered, Ready; terminated -> (delay) -> Node deleted;
nothing between them, also where the instance shuts down or is stopped.
Every step is decided from the instance and the Node as they are, so that the agent may be restarted.
"""

import enum
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from local.boot.capacity import InstanceType
from local.boot.join_check import Cluster, Instance, JoiningNode, JoinRefusal, check_join
from local.boot.log import BootLog, timestamp
from local.boot.node import SHUTTING_DOWN, UNINITIALIZED, cloud_labels, node_condition, node_registration, provider_id
from local.kubernetes.api import ApiError, ApiUnavailable, KubernetesApi
from local.kubernetes.control_plane import KUBELET_LABEL

ALIVE = ("pending", "running")
# Real machines boot side by side; each waits for the API server, mostly.
INSTANCES_AT_ONCE = 8
TRANSIENT_ERRORS = (ApiError, ApiUnavailable, BotoCoreError, ClientError)


class AwsPort(Protocol):
    """Where the agent learns about instances and the cluster."""

    def instances(self) -> list[Instance]: ...
    def cluster(self) -> Cluster: ...
    def instance_type(self, name: str) -> InstanceType: ...
    def access_entries(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class BootDelays:
    """Seconds from launch to registration, from registration to Ready, from termination to deletion."""

    boot_seconds: float = 3.0
    ready_seconds: float = 2.0
    removal_seconds: float = 5.0


class NodeWrites(enum.StrEnum):
    """How a Node comes and goes: as on EC2, or by one write each, as by Karpenter's provider for kwok."""

    IN_STEPS = "in-steps"
    AT_ONCE = "at-once"


class BootAgent:
    """Call `reconcile` about twice a second."""

    def __init__(
        self,
        aws: AwsPort,
        api: KubernetesApi,
        log: BootLog,
        delays: BootDelays,
        writes: NodeWrites = NodeWrites.IN_STEPS,
    ) -> None:
        self._aws = aws
        self._api = api
        self._log = log
        self._delays = delays
        self._writes = writes
        self._registered_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._up: set[str] = set()
        self._done: set[str] = set()
        self._threads = ThreadPoolExecutor(INSTANCES_AT_ONCE, thread_name_prefix="instance")

    def reconcile(self) -> None:
        """Look at every instance once; what fails for one is written down and tried again.

        Raises AwsUnavailable.
        """
        instances = [instance for instance in self._aws.instances() if instance.id not in self._done]
        for _ in self._threads.map(self._try, instances):
            pass

    def _try(self, instance: Instance) -> None:
        try:
            self._look_at(instance)
        except TRANSIENT_ERRORS as error:
            self._log.log(instance, f"tried again: {type(error).__name__}: {error}")

    def _look_at(self, instance: Instance) -> None:
        if instance.state in ALIVE and not self._log.has_joined(instance):
            self._boot(instance)
        elif instance.state in ALIVE:
            self._come_up(instance)
        elif self._log.has_joined(instance):
            self._up.discard(instance.id)
            self._go_down(instance)
        elif instance.state == "terminated":
            self._done.add(instance.id)

    def _boot(self, instance: Instance) -> None:
        if instance.state != "running" or time.time() < instance.launch_time + self._boot_seconds():
            return
        instance_type = self._aws.instance_type(instance.type)
        verdict = check_join(instance, self._aws.cluster(), self._aws.access_entries(), instance_type)
        match verdict:
            case JoiningNode():
                self._register(verdict)
            case JoinRefusal():
                self._log.record_refusal(instance, verdict)
                if verdict.final:
                    self._done.add(instance.id)

    def _boot_seconds(self) -> float:
        at_once = self._writes is NodeWrites.AT_ONCE
        return self._delays.boot_seconds + (self._delays.ready_seconds if at_once else 0.0)

    def _register(self, joining_node: JoiningNode) -> None:
        node = node_registration(joining_node, timestamp())
        if self._writes is NodeWrites.AT_ONCE:
            node["metadata"]["labels"] |= {**cloud_labels(joining_node.instance), KUBELET_LABEL: "kwok"}
            node["spec"]["taints"].remove(UNINITIALIZED)
        try:
            self._api.create("/api/v1/nodes", node)
        except ApiError as error:
            if error.status != 409:
                self._log.record_refusal(joining_node.instance, JoinRefusal("ApiServer", str(error), final=False))
                return
            if self._node(joining_node.instance) is None:
                return  # the address of an instance whose Node is not deleted yet: wait for that
        self._registered_at[joining_node.instance.id] = time.monotonic()
        if self._writes is NodeWrites.AT_ONCE:
            self._up.add(joining_node.instance.id)
        self._log.record_join(joining_node.instance)

    def _come_up(self, instance: Instance) -> None:
        if instance.id in self._up:
            return
        node = self._node(instance)
        if node is None:
            self._log.log(instance, "its Node was deleted while it runs: it stays without one")
            self._done.add(instance.id)
        elif UNINITIALIZED in _taints(node):
            self._initialize(instance, node)
        elif self._is_settled(instance):
            self._api.patch(_path(instance), {"metadata": {"labels": {KUBELET_LABEL: "kwok"}}})
            self._up.add(instance.id)
            self._log.log(instance, "kubelet ready")

    def _initialize(self, instance: Instance, node: Mapping[str, Any]) -> None:
        """The cloud node controller's part, lost to whoever changes the taints at the same time."""
        taints = [taint for taint in _taints(node) if taint != UNINITIALIZED]
        version = node["metadata"]["resourceVersion"]
        change = {
            "metadata": {"labels": cloud_labels(instance), "resourceVersion": version},
            "spec": {"taints": taints},
        }
        if self._unless_conflict(_path(instance), change):
            self._log.log(instance, "initialized by the cloud node controller")

    def _is_settled(self, instance: Instance) -> bool:
        since = self._registered_at.setdefault(instance.id, time.monotonic())
        return time.monotonic() - since >= self._delays.ready_seconds

    def _go_down(self, instance: Instance) -> None:
        if self._writes is NodeWrites.AT_ONCE and not self._has_ended(instance):
            return
        node = self._node(instance)
        if node is None:
            self._done.add(instance.id)
        elif self._writes is NodeWrites.AT_ONCE:
            self._remove(instance, node)
        elif KUBELET_LABEL in node["metadata"]["labels"]:
            self._api.patch(_path(instance), {"metadata": {"labels": {KUBELET_LABEL: None}}})
            self._log.log(instance, f"{instance.state}: kubelet stops")
        elif _ready(node) == "True":
            now = timestamp()
            down = node_condition("Ready", "False", "KubeletNotReady", SHUTTING_DOWN, now)
            self._api.patch(
                _path(instance) + "/status",
                {"status": {"conditions": [down]}},
                kind="strategic-merge-patch+json",
            )
        elif self._has_ended(instance):
            self._remove(instance, node)

    def _has_ended(self, instance: Instance) -> bool:
        """Whether it was terminated so long ago that its Node is deleted."""
        if instance.state != "terminated":
            return False
        since = self._ended_at.setdefault(instance.id, time.monotonic())
        return time.monotonic() - since >= self._delays.removal_seconds

    def _remove(self, instance: Instance, node: Mapping[str, Any]) -> None:
        self._api.delete(_path(instance), {"preconditions": {"uid": node["metadata"]["uid"]}})
        self._done.add(instance.id)
        self._log.log(instance, "terminated: Node deleted by the cloud node controller")

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
    return f"/api/v1/nodes/{instance.private_dns_name}"


def _taints(node: Mapping[str, Any]) -> list[dict[str, str]]:
    return list(node["spec"].get("taints") or [])


def _ready(node: Mapping[str, Any]) -> str:
    conditions = node["status"].get("conditions") or []
    return next((str(entry["status"]) for entry in conditions if entry["type"] == "Ready"), "Unknown")
