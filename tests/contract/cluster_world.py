"""A cluster as a contract needs it, fake or real: what users, kubelets and schedulers do to it."""

import hashlib
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from local.stack import Stack
from spotwright.model import labels
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation.cluster import FakeCluster, Namespace
from spotwright.workflows.ports.cluster import ClusterPort
from tests.contract import capacity_buffers
from tests.contract.conftest import wait_served

NUMBERS = itertools.count(1)
IN_A = NodeSelectorRequirement(labels.ZONE, "In", ("ap-northeast-2a",))
ZONAL = StorageClass(
    ObjectMeta("zonal"), "ebs.csi.aws.com", waits_for_first_consumer=True, allowed_topologies=((IN_A,),)
)


class World(ABC):
    """``port``: what is tried on it."""

    port: ClusterPort

    @abstractmethod
    def add_node(self, name: str) -> None:
        """One that has just registered."""

    @abstractmethod
    def remove_node(self, name: str) -> None:
        """A user deletes it."""

    @abstractmethod
    def add_pod(self, name: str, node: str, app: str = "") -> None:
        """In namespace default; ``node``: "" = it waits. ``app``: the value of its label of that name."""

    @abstractmethod
    def start_pod(self, pod: Pod, *, is_ready: bool, phase: str = "Running") -> None:
        """Its kubelet says that it runs, or has ended."""

    @abstractmethod
    def add_budget(self, app: str, policy: str = "IfHealthyBudget") -> None:
        """A PodDisruptionBudget over the pods with this label, of which one must be there."""

    @abstractmethod
    def add_storage(self) -> None:
        """Namespace shop with claim data, class ZONAL, volume pv-1, and node attaching that takes 25 volumes."""

    @abstractmethod
    def attach_volume(self, node: str, volume: str) -> None:
        """A CSI driver has attached the PersistentVolume, which is also the driver's name for it, to the node."""

    @abstractmethod
    def add_buffers(self) -> None:
        """Buffers spare (two pods), shared (a fifth of a Deployment of ten) and lost (of a template that is not)."""

    @abstractmethod
    def run_karpenter(self) -> None:
        """A Deployment karpenter/karpenter that wants a pod, as Karpenter's chart labels it."""

    def pod(self, node: str = "", app: str = "") -> Pod:
        """A pod that no scheduler cares about, on ``node`` or waiting."""
        name = f"pod-{next(NUMBERS)}"
        self.add_pod(name, node, app)
        return self.current_pod(name)

    def current_pod(self, name: str) -> Pod:
        return next(pod for pod in self.port.pods() if pod.metadata.name == name)


class FakeWorld(World):
    def __init__(self, fake: FakeCluster) -> None:
        self.port = self._fake = fake

    def add_node(self, name: str) -> None:
        self._fake.put("nodes", Node(ObjectMeta(name), taints=(Taint("karpenter.sh/unregistered", "NoExecute"),)))

    def remove_node(self, name: str) -> None:
        self._fake.delete("nodes", ObjectMeta(name))

    def add_pod(self, name: str, node: str, app: str = "") -> None:
        labeled = {"app": app} if app else {}
        self._fake.put("pods", Pod(ObjectMeta(name, namespace="default", labels=labeled), node_name=node))

    def start_pod(self, pod: Pod, *, is_ready: bool, phase: str = "Running") -> None:
        self._fake.update("pods", pod.key, phase=phase, is_ready=is_ready)

    def add_budget(self, app: str, policy: str = "IfHealthyBudget") -> None:
        about = ObjectMeta(f"budget-{next(NUMBERS)}", namespace="default")
        selector = (NodeSelectorRequirement("app", "In", (app,)),)
        budget = PodDisruptionBudget(about, selector, min_available=1, unhealthy_pod_eviction_policy=policy)
        self._fake.put("poddisruptionbudgets", budget)

    def add_storage(self) -> None:
        self._fake.put("namespaces", Namespace(ObjectMeta("shop", labels={"team": "a"})))
        self._fake.put("storageclasses", ZONAL)
        self._fake.put("persistentvolumes", PersistentVolume(ObjectMeta("pv-1"), ((IN_A,),), "ebs.csi.aws.com"))
        self._fake.put(
            "persistentvolumeclaims",
            PersistentVolumeClaim(ObjectMeta("data", namespace="shop"), "", "zonal", phase="Pending"),
        )
        self._fake.put("csinodes", CSINode(ObjectMeta("attaching"), {"ebs.csi.aws.com": 25}))

    def attach_volume(self, node: str, volume: str) -> None:
        self._fake.attachments[node] = (volume,)

    def add_buffers(self) -> None:
        template = Pod(ObjectMeta("spare", "default", labels={"app": "web"}), requests={"cpu": 3000, "pods": 1})
        spare = CapacityBuffer(
            ObjectMeta("spare", "default"),
            template_pod=template,
            replicas=2,
            pod_template_ref="web",
            pod_template_generation=1,
        )
        shared = CapacityBuffer(
            ObjectMeta("shared", "default"), template_pod=template, scalable_replicas=10, percentage=20
        )
        lost = CapacityBuffer(
            ObjectMeta("lost", "default"),
            not_ready_reason="PodTemplateNotFound",
            not_ready_message="PodTemplate default/no",
        )
        for buffer in (spare, shared, lost):
            self._fake.put("capacitybuffers", buffer)

    def run_karpenter(self) -> None:
        self._fake.karpenter = "Deployment karpenter/karpenter"


class RealWorld(World):
    def __init__(self, stack: Stack, port: ClusterPort) -> None:
        self._stack, self.port = stack, port

    def run_karpenter(self) -> None:
        labeled = {"app.kubernetes.io/name": "karpenter"}
        pod = {"schedulerName": "nobody", "containers": [{"name": "controller", "image": "pause"}]}
        spec = {"selector": {"matchLabels": labeled}, "template": {"metadata": {"labels": labeled}, "spec": pod}}
        metadata = {"name": "karpenter", "namespace": "karpenter", "labels": labeled}
        self._apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}},
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
            ]
        )

    def add_node(self, name: str) -> None:
        node = {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        }  # fmt: skip
        self._stack.kubectl("create", "-f", "-", input=json.dumps(node))

    def remove_node(self, name: str) -> None:
        self._stack.kubectl("delete", "node", name, "--wait=false")

    def add_pod(self, name: str, node: str, app: str = "") -> None:
        spec = {"schedulerName": "nobody", "containers": [{"name": "app", "image": "pause"}]}
        about = {"name": name, "namespace": "default", "labels": {"app": app} if app else {}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
        self._stack.kubectl(
            "create", "-f", "-", input=json.dumps(pod | {"spec": spec | ({"nodeName": node} if node else {})})
        )

    def start_pod(self, pod: Pod, *, is_ready: bool, phase: str = "Running") -> None:
        ready = {"type": "Ready", "status": "True" if is_ready else "False"}
        status = json.dumps({"status": {"phase": phase, "conditions": [ready]}})
        self._stack.kubectl("patch", "pod", pod.metadata.name, "--subresource=status", "--type=merge", "-p", status)

    def add_budget(self, app: str, policy: str = "IfHealthyBudget") -> None:
        about = {"name": f"budget-{next(NUMBERS)}", "namespace": "default"}
        selector = {"matchLabels": {"app": app}}
        spec = {"minAvailable": 1, "selector": selector, "unhealthyPodEvictionPolicy": policy}
        self._apply([{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": about, "spec": spec}])

    def add_storage(self) -> None:
        term = {"matchExpressions": [{"key": labels.ZONE, "operator": "In", "values": list(IN_A.values)}]}
        objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}},
            {
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "zonal"},
                "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": labels.ZONE, "values": list(IN_A.values)}]}],
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                },
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "zonal",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
            {
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "attaching"},
                "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}}]},
            },
        ]  # fmt: skip
        self._apply(objects)

    def attach_volume(self, node: str, volume: str) -> None:
        driver = "ebs.csi.aws.com"
        name = f"csi-{hashlib.sha256(f'{volume}{driver}{node}'.encode()).hexdigest()}"
        attachment = {
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}},
        }  # fmt: skip
        self._stack.kubectl("create", "-f", "-", input=json.dumps(attachment))
        attached = [{"name": f"kubernetes.io/csi/{driver}^{volume}", "devicePath": ""}]
        status = json.dumps({"status": {"volumesAttached": attached}})
        self._stack.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", status)

    def add_buffers(self) -> None:
        container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "3"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        workload = {"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        buffer = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"}
        share = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 20}
        objects = [
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "web"}, "template": template},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": workload},
            buffer | {"metadata": {"name": "spare"}, "spec": {"podTemplateRef": {"name": "web"}, "replicas": 2}},
            buffer | {"metadata": {"name": "shared"}, "spec": share},
            buffer | {"metadata": {"name": "lost"}, "spec": {"podTemplateRef": {"name": "no"}, "replicas": 2}},
        ]
        self._apply([capacity_buffers.DEFINITION])
        wait_served(self._stack, capacity_buffers.SERVED_AT)
        self._apply(objects)

    def _apply(self, objects: Sequence[object]) -> None:
        """In namespace default where they do not say another."""
        self._stack.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )
