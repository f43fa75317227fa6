"""Machines that boot and join, kube-scheduler, kubelets and controllers.

A machine reads its own user data, as on AWS: its Node has only the labels and taints that the user data states.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint, untolerated_taints
from spotwright.model.requirements import from_expressions
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.ec2 import FakeEc2
from spotwright.simulation.volume_provisioner import VolumeProvisioner

_NODE_CONFIG: Final = re.compile(r'\{\s*"apiVersion": "node\.eks\.aws/v1alpha1".*\}', re.S)
_NODE_LABELS: Final = re.compile(r'--node-labels="?([^"]*)"?')
_NOT_READY: Final = (Taint(labels.NOT_READY, "NoSchedule"), Taint(labels.NOT_READY, "NoExecute"))


class Kubelets:
    """Plays everything between EC2 and the pods, step by step.

    ``boot_seconds``: from launch to a registered Node; ``ready_seconds``: from there to Ready;
    ``stop_seconds``: how long a pod takes to stop (at most its grace period).
    """

    def __init__(self, cluster: FakeCluster, ec2: FakeEc2, clock: Clock, types: Mapping[str, InstanceType]) -> None:
        self._cluster, self._ec2, self._clock, self._types = cluster, ec2, clock, types
        self.boot_seconds, self.ready_seconds, self.stop_seconds = 20.0, 3.0, 2.0
        self.broken_instances: set[str] = set()
        self._provisioner = VolumeProvisioner(cluster)
        self._joined: dict[str, datetime] = {}
        self._stop_requested: dict[str, datetime] = {}

    def reconcile(self) -> None:
        """Update the cluster to the state of its machines at this moment."""
        for instance in self._ec2.instances_of_cluster():
            self._machine(instance)
        self._cloud_controller()
        for pod in self._cluster.all("pods"):
            self._pod(pod)

    def _machine(self, instance: Instance) -> None:
        name, now = instance.private_dns_name, self._clock.now()
        age = (now - (instance.launch_time or now)).total_seconds()
        if instance.state == "pending" and age >= min(5.0, self.boot_seconds):
            self._ec2.boot(instance.id)
        alive = instance.state in ("pending", "running") and instance.id not in self.broken_instances
        if alive and age >= self.boot_seconds and instance.id not in self._joined:
            self._joined[instance.id] = now
            self._join(instance)
        node = self._cluster.node(name)
        if node is not None and instance.id in self._joined:
            up = alive and (now - self._joined[instance.id]).total_seconds() >= self.ready_seconds
            self._readiness(node, up)

    def _join(self, instance: Instance) -> None:
        config = self._node_config(instance)
        flags = " ".join(config["spec"]["kubelet"]["flags"])
        flag_labels = dict(pair.split("=", 1) for pair in _NODE_LABELS.findall(flags)[0].split(",") if pair)
        instance_type = self._types[instance.instance_type]
        self._cluster.put(
            "nodes",
            Node(
                metadata=ObjectMeta(
                    instance.private_dns_name,
                    labels=flag_labels
                    | {
                        labels.HOSTNAME: instance.private_dns_name,
                        labels.INSTANCE_TYPE: instance.instance_type,
                        labels.ZONE: instance.zone,
                        labels.ARCH: instance_type.requirements.get(labels.ARCH).sole_value or "",
                        labels.OS: "linux",
                    },
                ),
                provider_id=f"aws:///{instance.zone}/{instance.id}",
                taints=(*_taints(config["spec"]["kubelet"]["config"]), *_NOT_READY),
                allocatable=instance_type.allocatable,
                capacity=instance_type.capacity,
                conditions=(self._ready(up=False),),
            ),
        )

    def _node_config(self, instance: Instance) -> Any:
        text = base64.b64decode(self._ec2.template_data(instance.id)["UserData"]).decode()
        match = _NODE_CONFIG.search(text)
        if match is None:
            raise ValueError(f"user data of {instance.id} holds no NodeConfig")
        return json.loads(match[0])

    def _readiness(self, node: Node, up: bool) -> None:
        if node.is_ready != up:
            other_conditions = tuple(condition for condition in node.conditions if condition.type != "Ready")
            kept = tuple(taint for taint in node.taints if taint not in _NOT_READY)
            self._cluster.update(
                "nodes",
                node.name,
                conditions=(*other_conditions, self._ready(up=up)),
                taints=kept if up else (*kept, *_NOT_READY),
            )

    def _ready(self, *, up: bool) -> Condition:
        return Condition("Ready", "True" if up else "False", "Kubelet", last_transition_time=self._clock.seconds())

    def _cloud_controller(self) -> None:
        """Nodes whose instance terminates become not ready and are deleted; pods of deleted nodes are deleted."""
        states = {machine.id: machine.state for machine in self._ec2.all_instances()}
        for node in self._cluster.all("nodes"):
            instance = instance_id(node.provider_id)
            if instance and states.get(instance, "terminated") in ("shutting-down", "terminated"):
                self._readiness(node, up=False)
                self._cluster.delete_node(self._cluster.node(node.name))
        names = {node.name for node in self._cluster.all("nodes")}
        for pod in self._cluster.all("pods"):
            if pod.node_name and pod.node_name not in names:
                self._cluster.remove("pods", pod.key)

    def _pod(self, pod: Pod) -> None:
        if pod.key not in {existing.key for existing in self._cluster.all("pods")}:
            return
        if pod.metadata.deletion_timestamp is not None:
            requested = self._stop_requested.setdefault(pod.metadata.uid, self._clock.now())
            ended = (self._clock.now() - requested).total_seconds() >= self.stop_seconds
            if ended or self._clock.now() >= pod.metadata.deletion_timestamp:
                self._cluster.remove("pods", pod.key)
        elif not pod.node_name and pod.phase == "Pending":
            self._schedule(pod)

    def _schedule(self, pod: Pod) -> None:
        """Binds the pod, if possible to its nominated node; clears the nomination of a pod that fits nowhere."""
        for node in sorted(self._cluster.all("nodes"), key=lambda candidate: candidate.name != pod.nominated_node_name):
            if not node.unschedulable and self._admits(node, pod):
                self._provisioner.bind(node, pod)
                self._cluster.update(
                    "pods", pod.key, node_name=node.name, phase="Running", is_ready=True, unschedulable=False,
                    start_time=self._clock.seconds(), nominated_node_name="",
                )  # fmt: skip
                return
        if not pod.unschedulable or pod.nominated_node_name:
            self._cluster.update("pods", pod.key, unschedulable=True, nominated_node_name="")

    def _admits(self, node: Node, pod: Pod) -> bool:
        hard = [taint for taint in node.taints if taint.effect != "PreferNoSchedule"]
        has_affinity = any(_matches(node, term) for term in pod.node_affinity) if pod.node_affinity else True
        is_selected = all(node.metadata.labels.get(key) == value for key, value in pod.node_selector.items())
        if (
            untolerated_taints(hard, pod.tolerations)
            or not has_affinity
            or not is_selected
            or not self._provisioner.admits(node, pod)
        ):
            return False
        requests = (bound.requests for bound in self._cluster.all("pods") if _takes_room(bound, node.name, pod))
        return resources.fits(pod.requests, resources.subtract(node.allocatable, resources.add(*requests)))


def _takes_room(other_pod: Pod, node: str, pod: Pod) -> bool:
    """Whether a pod takes room on a node: it is bound there, or nominated with at least the priority of ``pod``."""
    if other_pod.node_name:
        return other_pod.node_name == node and not other_pod.is_terminal
    return other_pod.nominated_node_name == node and other_pod.key != pod.key and other_pod.priority >= pod.priority


def _taints(config: Mapping[str, Any]) -> Iterator[Taint]:
    for taint in config["registerWithTaints"]:
        yield Taint(taint["key"], taint["effect"], taint.get("value", ""))


def _matches(node: Node, term: tuple[Any, ...]) -> bool:
    return all(
        requirement.allows_absence
        if (value := node.metadata.labels.get(requirement.key)) is None
        else requirement.has(value)
        for requirement in from_expressions(term)
    )


def replacement_pod(pod: Pod, name: str) -> Pod:
    """The pod by which a ReplicaSet replaces another pod."""
    about = ObjectMeta(
        name,
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        owner_references=pod.metadata.owner_references,
    )
    return msgspec.structs.replace(
        pod, metadata=about, node_name="", phase="Pending", is_ready=False, start_time=None, unschedulable=False
    )
